"""What the Twilio provider sends, and which settings it takes."""

from __future__ import annotations

import base64
import datetime as dt
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest

from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult, Submittable
from otp_service.routes.providers.twilio import Twilio, read_settings
from otp_service.routes.route_rules import RouteSpec
from tests.conftest import NOON
from tests.routes.providers.contract_base import NUMBER, PATIENT, RECEIPTS_URL, TEXT, a_claim, a_send
from tests.routes.providers.test_twilio_contract import SID, TOKEN, said, twilio_spec
from tests.servers.relay.peers import Request, peer

SERVICE = {"messaging_service_sid": "MG01"}


def lasting(seconds: float) -> Submittable:
    return a_send(expires_at=NOON + dt.timedelta(seconds=seconds), submit_by=NOON + dt.timedelta(seconds=5))


async def sent(
    session: aiohttp.ClientSession, send: Submittable, settings: dict[str, Any] | None = None, **changes: Any
) -> tuple[SubmitResult, list[Request]]:
    async with peer(said(201, "created")) as served:
        spec: RouteSpec = replace(twilio_spec(served.base_url), **changes)
        spec = replace(spec, settings={**spec.settings, **(settings or {})})
        result = await Twilio(PATIENT, clock=lambda: NOON).submit(session, a_claim(spec, send))
    return result, served.requests


def form_of(request: Request) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(request.body.decode(), strict_parsing=True).items()}


async def test_sends_what_the_api_asks_for(session: aiohttp.ClientSession) -> None:
    send = lasting(300.9)

    result, (request,) = await sent(session, send)

    assert (result.submission, result.provider_message_id) == (Submission.ACCEPTED, SID)
    account = twilio_spec("").credentials["account_sid"]
    assert (request.method, request.path) == ("POST", f"/2010-04-01/Accounts/{account}/Messages.json")
    assert request.headers["authorization"] == f"Basic {base64.b64encode(f'{account}:{TOKEN}'.encode()).decode()}"
    assert form_of(request) == {
        "To": NUMBER,
        "Body": TEXT,
        "From": "ACME",
        "ValidityPeriod": "300",
        "StatusCallback": f"{RECEIPTS_URL}?attempt={send.attempt_uuid}",
    }


@pytest.mark.parametrize(
    ("seconds", "validity"),
    [(1, "1"), (1.999, "1"), (36_000, "36000"), (90_000, "36000")],
    ids=["a second", "rounded down", "the longest", "longer"],
)
async def test_a_message_is_valid_as_long_as_it_lives(
    session: aiohttp.ClientSession, seconds: float, validity: str
) -> None:
    _result, (request,) = await sent(session, lasting(seconds))

    assert form_of(request)["ValidityPeriod"] == validity


async def test_less_than_a_second_is_too_little(session: aiohttp.ClientSession) -> None:
    result, requests = await sent(session, lasting(0.999))

    assert (result.submission, result.error_class, requests) == (
        Submission.NOT_CONNECTED,
        ErrorClass.EXPIRED,
        [],
    )


@pytest.mark.parametrize(
    ("asked_for", "settings", "names", "expected"),
    [
        ("BANK", {}, ("ACME",), {"From": "BANK"}),
        ("BANK", SERVICE, ("ACME",), {"From": "BANK"}),
        ("", SERVICE, ("ACME",), {"MessagingServiceSid": "MG01"}),
        ("", {}, ("ACME", "BANK"), {"From": "ACME"}),
    ],
    ids=["asked for", "asked for beside a service", "the service", "the route's first"],
)
async def test_the_sender_is_the_one_asked_for_or_the_routes_own(
    session: aiohttp.ClientSession,
    asked_for: str,
    settings: dict[str, str],
    names: tuple[str, ...],
    expected: dict[str, str],
) -> None:
    send = replace(lasting(60), sender=asked_for)

    _result, (request,) = await sent(session, send, settings, sender_names=names)

    form = form_of(request)
    assert {name: form[name] for name in ("From", "MessagingServiceSid") if name in form} == expected


async def test_without_any_sender_nothing_is_sent(session: aiohttp.ClientSession) -> None:
    result, requests = await sent(session, lasting(60), sender_names=())

    assert (result.submission, result.error_class) == (Submission.NOT_CONNECTED, ErrorClass.ROUTE_REJECTED)
    assert requests == []


async def test_no_receipts_are_asked_for_where_nobody_listens(session: aiohttp.ClientSession) -> None:
    _result, (request,) = await sent(session, lasting(60), receipts_url="")

    assert "StatusCallback" not in form_of(request)


@pytest.mark.parametrize(
    ("settings", "credentials", "named"),
    [
        ({"url": "https://x"}, {}, "base_url"),
        ({"base_url": 7}, {}, "base_url"),
        ({"base_url": "ftp://x"}, {}, "base_url"),
        ({"base_url": "https://"}, {}, "base_url"),
        ({"base_url": "https://x?y=1"}, {}, "base_url"),
        ({"base_url": "https://me:secret@x"}, {}, "base_url"),
        ({"base_url": "http://[::1"}, {}, "base_url"),
        ({"base_url": "http://x:99999"}, {}, "base_url"),
        ({"messaging_service_sid": "MG 1"}, {}, "messaging_service_sid"),
        ({"messaging_service_sid": 1}, {}, "messaging_service_sid"),
        ({}, {"account_sid": ""}, "account_sid"),
        ({}, {"account_sid": "AC1/../AC2"}, "account_sid"),
        ({}, {"auth_token": ""}, "auth_token"),
    ],
)
def test_refuses_settings_that_cannot_be(settings: dict[str, Any], credentials: dict[str, str], named: str) -> None:
    given = {"account_sid": "AC1", "auth_token": TOKEN, **credentials}

    with pytest.raises(ValueError, match=named) as raised:
        read_settings(settings, given)

    assert TOKEN not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_takes_settings_that_say_nothing() -> None:
    account = read_settings({}, {"account_sid": "AC1", "auth_token": TOKEN, "receipt_token": "x"})

    assert account.url == "https://api.twilio.com/2010-04-01/Accounts/AC1"
    assert TOKEN not in repr(account)
