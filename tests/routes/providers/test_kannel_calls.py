"""What Kannel is asked to do: text, coding, validity, sender, where it reports."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, Submission
from otp_service.routes.claim import Claimed
from otp_service.routes.providers.base import Posted, Question
from otp_service.routes.providers.kannel import Kannel
from tests.conftest import NOON
from tests.routes.providers import kannel_routes
from tests.routes.providers.contract_base import ATTEMPT, NUMBER, TEXT
from tests.routes.providers.kannel_routes import RECEIPTS_URL, attempt, route, said
from tests.servers.relay.peers import Peer, Request, answers, peer


async def asked(session: aiohttp.ClientSession, claimed: Claimed, kannel: Peer) -> Request:
    result = await Kannel(clock=lambda: NOON).submit(session, claimed)
    assert result.submission is Submission.ACCEPTED
    return kannel.requests[-1]


async def test_everything_but_the_text_is_in_headers_and_nothing_in_the_address(session: aiohttp.ClientSession) -> None:
    async with peer(said(202, "accepted")) as kannel:
        request = await asked(
            session, attempt(route(kannel.base_url, smsc="main"), sender="ACME", now=NOON, attempt_uuid=ATTEMPT), kannel
        )
    assert (request.method, request.path, request.body) == ("POST", "/cgi-bin/sendsms", TEXT.encode())
    assert {
        name: value for name, value in request.headers.items() if name.startswith(("x-kannel", "content-type"))
    } == {
        "content-type": "text/plain; charset=UTF-8",
        "x-kannel-username": "our-user",
        "x-kannel-password": "s3cret pass",
        "x-kannel-to": NUMBER,
        "x-kannel-from": "ACME",
        "x-kannel-smsc": "main",
        "x-kannel-coding": "0",
        "x-kannel-validity": "4",
        "x-kannel-dlr-mask": "31",
        "x-kannel-dlr-url": "https://otp.example/webhooks/providers/sms%%3Aone/"
        f"?attempt={ATTEMPT}&type=%d&id=%F&reply=%A&t=receipt-token",
    }


async def test_a_route_without_an_address_for_receipts_asks_for_none(session: aiohttp.ClientSession) -> None:
    async with peer(said(202, "accepted")) as kannel:
        request = await asked(session, attempt(route(kannel.base_url, receipts_url=""), now=NOON), kannel)
    assert not [name for name in request.headers if name.startswith("x-kannel-dlr")]


@pytest.mark.parametrize(
    ("sender", "names", "sent"),
    [
        pytest.param("ACME", ("Other",), "ACME", id="the message's"),
        pytest.param("", ("Other", "Third"), "Other", id="the route's first"),
        pytest.param("", (), None, id="the gateway's own"),
    ],
)
async def test_the_sender_name(
    session: aiohttp.ClientSession, sender: str, names: tuple[str, ...], sent: str | None
) -> None:
    async with peer(said(202, "accepted")) as kannel:
        claimed = attempt(route(kannel.base_url, names=names), sender=sender, now=NOON)
        request = await asked(session, claimed, kannel)
    assert request.headers.get("x-kannel-from") == sent


@pytest.mark.parametrize(
    "sender",
    [
        pytest.param("A\r\nX-Kannel-To: 1", id="a header of its own"),
        pytest.param("Ñandú", id="not ASCII"),
        pytest.param(" ACME", id="a blank in front"),
    ],
)
async def test_a_sender_name_that_is_no_header_does_not_leave(session: aiohttp.ClientSession, sender: str) -> None:
    async with peer(said(202, "accepted")) as kannel:
        result = await Kannel().submit(session, attempt(route(kannel.base_url), sender=sender))
    assert (result.submission, result.error_class) == (Submission.NOT_CONNECTED, ErrorClass.ROUTE_REJECTED)
    assert kannel.requests == []


@pytest.mark.parametrize(
    ("length", "max_messages", "leaves"),
    [
        pytest.param(160, {}, True, id="one part"),
        pytest.param(161, {}, False, id="two where Kannel takes one"),
        pytest.param(306, {"max_messages": 2}, True, id="two"),
        pytest.param(307, {"max_messages": 2}, False, id="three where it takes two"),
    ],
)
async def test_a_text_that_kannel_would_cut_off_does_not_leave(
    session: aiohttp.ClientSession, length: int, max_messages: dict[str, Any], leaves: bool
) -> None:
    async with peer(said(202, "accepted")) as kannel:
        claimed = attempt(route(kannel.base_url, **max_messages), text="x" * length)
        result = await Kannel().submit(session, claimed)
    assert result.error_class is (None if leaves else ErrorClass.ROUTE_REJECTED)
    assert [len(request.body) for request in kannel.requests] == [length] * leaves


@pytest.mark.parametrize(
    ("text", "coding"),
    [
        pytest.param("Ñ é ò: 123 @£$¥", "0", id="the basic table"),
        pytest.param("€5 [1] {2} ~", "0", id="the extension table"),
        pytest.param("Код 1234", "2", id="Cyrillic"),
        pytest.param("Tu código está listo", "2", id="a letter that only looks like one of the table"),
        pytest.param("1234 😀", "2", id="an emoji"),
    ],
)
async def test_the_coding_follows_the_text(session: aiohttp.ClientSession, text: str, coding: str) -> None:
    async with peer(said(202, "accepted")) as kannel:
        request = await asked(session, attempt(route(kannel.base_url), text=text, now=NOON), kannel)
    assert (request.headers["x-kannel-coding"], request.body.decode()) == (coding, text)


@pytest.mark.parametrize(
    ("seconds", "minutes"),
    [
        pytest.param(70, "1", id="a minute after the longest call"),
        pytest.param(129.9, "1", id="just under two"),
        pytest.param(130, "2", id="two"),
        pytest.param(86_410, "1440", id="a day"),
    ],
)
async def test_validity_is_what_is_left_after_the_longest_call(
    session: aiohttp.ClientSession, seconds: float, minutes: str
) -> None:
    async with peer(said(202, "accepted")) as kannel:
        claimed = attempt(route(kannel.base_url), now=NOON, lives=dt.timedelta(seconds=seconds))
        request = await asked(session, claimed, kannel)
    assert request.headers["x-kannel-validity"] == minutes


@pytest.mark.parametrize(
    ("lives", "submits"),
    [
        pytest.param(dt.timedelta(seconds=69.999), dt.timedelta(seconds=30), id="less than a minute"),
        pytest.param(dt.timedelta(seconds=-1), dt.timedelta(seconds=30), id="nothing"),
        pytest.param(dt.timedelta(minutes=5), dt.timedelta(0), id="too late to submit"),
    ],
)
async def test_what_would_arrive_stale_does_not_leave(
    session: aiohttp.ClientSession, lives: dt.timedelta, submits: dt.timedelta
) -> None:
    async with peer(said(202, "accepted")) as kannel:
        claimed = attempt(route(kannel.base_url), now=NOON, lives=lives, submits=submits)
        result = await Kannel(clock=lambda: NOON).submit(session, claimed)
    assert (result.submission, result.error_class) == (Submission.NOT_CONNECTED, ErrorClass.EXPIRED)
    assert kannel.requests == []


def filled_in(address: str) -> str:
    """As Kannel does it: what follows a % is put in, and two of them are one."""
    escapes = {"%%": "%", "%d": "1", "%F": "0x1F", "%A": "ACK%2F"}
    return re.sub("%(.)", lambda found: escapes[found[0]], address)


@pytest.mark.parametrize("token", ["receipt-token_1", "a+b/c=&d?#e", "%d%F%%41"])
async def test_the_token_and_the_attempt_come_back_as_they_left(session: aiohttp.ClientSession, token: str) -> None:
    async with peer(said(202, "accepted")) as kannel:
        spec = replace(route(kannel.base_url), credentials={**kannel_routes.CREDENTIALS, "receipt_token": token})
        request = await asked(session, attempt(spec, now=NOON, attempt_uuid=ATTEMPT), kannel)
    url = filled_in(request.headers["x-kannel-dlr-url"])
    assert url.startswith(f"{RECEIPTS_URL}?")
    receipt = Receipt(ReportedState.DELIVERED, attempt_uuid=ATTEMPT, provider_message_id="31")
    assert Kannel().receipts(spec, Posted("GET", url, {}, b"")) == [receipt]


async def test_it_cannot_be_asked_about_an_attempt(session: aiohttp.ClientSession) -> None:
    async with peer(answers(200)) as kannel:
        question = Question(route(kannel.base_url), ATTEMPT, "", NUMBER, submitted_at=NOON)
        assert await Kannel().query(session, question) is None
    assert kannel.requests == []


async def test_a_route_that_is_set_up_wrongly_sends_nothing(session: aiohttp.ClientSession) -> None:
    spec = replace(route("http://127.0.0.1:9"), credentials={})
    result = await Kannel().submit(session, attempt(spec))
    assert (result.submission, result.error_class) == (Submission.NOT_CONNECTED, ErrorClass.ROUTE_REJECTED)
    assert result.raw.startswith("username must be")
