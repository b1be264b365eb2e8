"""What the templated provider sends: fields filled into addresses, headers and bodies."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult, Submittable
from otp_service.routes.providers.http_json import HttpJson
from otp_service.routes.providers.http_json_settings import Template
from otp_service.routes.route_rules import RouteSpec
from tests.conftest import NOON
from tests.routes.providers.contract_base import NUMBER, PATIENT, RECEIPTS_URL, TEXT, a_claim, a_send
from tests.routes.providers.test_http_json_contract import (
    API_KEY,
    ID,
    RECEIPT_TOKEN,
    http_json_spec,
    said,
    signing_spec,
)
from tests.servers.relay.peers import Request, peer

ELSEWHERE = "http://127.0.0.1:9"


def lasting(seconds: float) -> Submittable:
    return a_send(expires_at=NOON + dt.timedelta(seconds=seconds), submit_by=NOON + dt.timedelta(seconds=5))


async def sent_over(
    session: aiohttp.ClientSession, spec: RouteSpec, send: Submittable, **request: Any
) -> tuple[SubmitResult, list[Request]]:
    """Submit; `request` changes the template, with {base} for the peer's address."""
    async with peer(said(200, "accepted")) as served:
        template = {
            **spec.settings["request"],
            "url": f"{served.base_url}/v1/messages",
            **{name: _based(value, served.base_url) for name, value in request.items()},
        }
        spec = replace(spec, settings={**spec.settings, "request": template})
        result = await HttpJson(PATIENT, clock=lambda: NOON).submit(session, a_claim(spec, send))
    return result, served.requests


def _based(value: Any, base_url: str) -> Any:
    return value.replace("{base}", base_url) if isinstance(value, str) else value


async def test_sends_what_the_template_says(session: aiohttp.ClientSession) -> None:
    send = lasting(300.9)

    result, (request,) = await sent_over(session, http_json_spec(ELSEWHERE), send)

    assert (result.submission, result.provider_message_id) == (Submission.ACCEPTED, ID)
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert request.headers["authorization"] == f"Bearer {API_KEY}"
    assert request.headers["x-request-id"] == str(send.attempt_uuid)
    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.body) == {
        "messages": [{"to": NUMBER, "text": TEXT, "from": "ACME"}],
        "reference": str(send.attempt_uuid),
        "ttl": 300,
        "callback": f"{RECEIPTS_URL}?attempt={send.attempt_uuid}&t={RECEIPT_TOKEN}",
    }


async def test_the_token_is_not_given_away_where_a_header_signs(session: aiohttp.ClientSession) -> None:
    spec = signing_spec(ELSEWHERE)
    spec = replace(spec, credentials={**spec.credentials, "receipt_token": RECEIPT_TOKEN})

    _result, (request,) = await sent_over(session, spec, send := lasting(60))

    assert json.loads(request.body)["callback"] == f"{RECEIPTS_URL}?attempt={send.attempt_uuid}"


async def test_no_receipts_are_asked_for_where_nobody_listens(session: aiohttp.ClientSession) -> None:
    _result, (request,) = await sent_over(session, replace(http_json_spec(ELSEWHERE), receipts_url=""), lasting(60))

    assert json.loads(request.body)["callback"] == ""


async def test_a_message_may_ask_for_its_sender(session: aiohttp.ClientSession) -> None:
    _result, (request,) = await sent_over(session, http_json_spec(ELSEWHERE), replace(lasting(60), sender="BANK"))

    assert json.loads(request.body)["messages"][0]["from"] == "BANK"


async def test_what_stands_in_an_address_cannot_leave_its_place(session: aiohttp.ClientSession) -> None:
    send = replace(lasting(60), text="a/../b?c=d&e=f#g +é\r\n%41")

    _result, (request,) = await sent_over(
        session,
        http_json_spec(ELSEWHERE),
        send,
        method="GET",
        url="{base}/send/{to_digits}?to={to}&text={text}",
        body=None,
    )

    assert request.method == "GET"
    parts = urlsplit(request.path)
    assert parts.path == "/send/34600000017"
    assert parse_qs(parts.query, strict_parsing=True) == {"to": [NUMBER], "text": [send.text]}
    assert request.body == b""


@pytest.mark.parametrize(
    ("unit", "seconds", "told"),
    [("{ttl_s}", 1, 1), ("{ttl_s}", 0.999, None), ("{ttl_min}", 119, 1), ("{ttl_min}", 59.9, None)],
    ids=["a second", "less than a second", "rounded down", "less than a minute"],
)
async def test_a_message_that_lives_for_less_than_can_be_told_is_not_sent(
    session: aiohttp.ClientSession, unit: str, seconds: float, told: int | None
) -> None:
    result, requests = await sent_over(session, http_json_spec(ELSEWHERE), lasting(seconds), body={"ttl": unit})

    if told is None:
        assert (result.submission, result.error_class) == (Submission.NOT_CONNECTED, ErrorClass.EXPIRED)
    assert [json.loads(request.body)["ttl"] for request in requests] == [told] * (told is not None)


async def test_changed_settings_are_valid_at_once(session: aiohttp.ClientSession) -> None:
    provider = HttpJson(PATIENT)
    async with peer(said(200, "accepted")) as old, peer(said(200, "accepted")) as new:
        for served in (old, old, new):
            await provider.submit(session, a_claim(http_json_spec(served.base_url)))

        assert (len(old.requests), len(new.requests)) == (2, 1)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8", exclude_characters="{}")),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(body=_JSON.filter(lambda body: body is not None), text=st.text(st.characters(codec="utf-8")))
def test_any_text_arrives_as_it_is_and_changes_nothing_around_it(body: object, text: str) -> None:
    template = Template("POST", "https://x/", {}, {"around": body, "text": "{text}", "within": ["<{text}>"]})

    call = template.call({"text": text})

    assert json.loads(call.body) == {"around": body, "text": text, "within": [f"<{text}>"]}
