"""Against a Kannel of Debian's, with its own fake SMSC. Without it these tests are skipped, but never under CI."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest

from otp_service.core.outcomes import ErrorClass, ReportedState, Submission, SubmitResult
from otp_service.routes.providers.base import Inbound, Posted
from otp_service.routes.providers.kannel import Kannel
from otp_service.routes.route_rules import RouteSpec
from tests.deadline import eventually
from tests.routes.providers.contract_base import NUMBER
from tests.routes.providers.kannel_gateway import Gateway, Listener, missing
from tests.routes.providers.kannel_routes import CREDENTIALS, attempt, route

ACCEPTED, UNKNOWN = Submission.ACCEPTED, Submission.UNKNOWN
SENT, DELIVERED = ReportedState.SENT, ReportedState.DELIVERED
#: Texts, and how the SMSC gets them.
CODINGS = {"Your code: 123456 €[é]_@&+%41": "text", "Ваш код: 123456 😀 +%41": "ucs-2"}
FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)
TOKEN = "a+b/c=%41"


@pytest.fixture
def gateway(tmp_path: Path, listener: Listener) -> Iterator[Gateway]:
    """A Kannel that runs; its SMSC is not there yet."""
    if absent := missing():
        if os.environ.get("CI"):
            pytest.fail(f"CI has no {', '.join(absent)}: .ci/run installs kannel and kannel-extras")
        pytest.skip(f"no {', '.join(absent)}: apt-get install kannel kannel-extras")
    where = f"{listener.base_url}/webhooks/providers/sms%%3Aone/?from=%p&text=%a&t={_escaped(TOKEN)}"
    names = {"username": CREDENTIALS["username"], "password": CREDENTIALS["password"]}
    with Gateway(tmp_path, **names, inbound_url=where) as running:
        yield running


def _escaped(token: str) -> str:
    """As it stands in an address of Kannel's configuration."""
    return quote(token, safe="").replace("%", "%%")


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as running:
        yield running


@pytest.fixture
def spec(gateway: Gateway, listener: Listener) -> RouteSpec:
    """A route over that Kannel, whose receipts come to `listener`."""
    receipts_url = f"{listener.base_url}/webhooks/providers/sms%3Aone/"
    known = route(gateway.base_url, receipts_url=receipts_url, names=("ACME",), status_url=gateway.status_url)
    return replace(known, credentials={**CREDENTIALS, "receipt_token": TOKEN, "status_password": "status"})


async def hand_over(
    session: aiohttp.ClientSession, spec: RouteSpec, text: str, attempt_uuid: uuid.UUID = FIRST
) -> SubmitResult:
    return await Kannel().submit(session, attempt(spec, text=text, attempt_uuid=attempt_uuid))


def reported(spec: RouteSpec, listener: Listener, attempt_uuid: uuid.UUID) -> set[ReportedState | None]:
    """What is known of one attempt. Receipts come within a millisecond of each other, in either order."""
    receipts = [
        receipt
        for url in list(listener.urls)
        for receipt in Kannel().receipts(spec, Posted("GET", url, headers={}, body=b""))
    ]
    return {receipt.state for receipt in receipts if receipt.attempt_uuid == attempt_uuid}


@pytest.mark.parametrize("text", [pytest.param(text, id=coding) for text, coding in CODINGS.items()])
async def test_a_text_arrives_as_it_is_and_is_reported(
    session: aiohttp.ClientSession, gateway: Gateway, listener: Listener, spec: RouteSpec, text: str
) -> None:
    gateway.start_smsc()
    assert (await Kannel().check(session, spec)).ok
    result = await hand_over(session, spec, text)
    assert (result.submission, result.raw) == (ACCEPTED, "202 0: Accepted for delivery")
    eventually(lambda: reported(spec, listener, FIRST) == {SENT, DELIVERED})
    assert gateway.received() == [("ACME", NUMBER, CODINGS[text], text)]


async def test_a_long_text_arrives_whole(session: aiohttp.ClientSession, gateway: Gateway, spec: RouteSpec) -> None:
    gateway.start_smsc()
    text = "0123456789" * 40
    long = replace(spec, settings={**spec.settings, "max_messages": 3})
    assert (await hand_over(session, long, text)).submission is ACCEPTED
    eventually(lambda: len(gateway.received()) == 3)
    assert "".join(part for _, _, _, part in gateway.received()) == text


@pytest.mark.parametrize(
    ("writes", "inbound"),
    [
        pytest.param("+34600000017 12345 text STOP", Inbound("+34600000017", "STOP"), id="from a number"),
        pytest.param("34600000017 12345 data Stop%21", Inbound("+34600000017", "Stop!"), id="without a plus"),
        pytest.param("+34600000017 12345 text é & más", Inbound("+34600000017", "é & más"), id="more than ASCII"),
    ],
)
def test_what_somebody_writes_is_told(
    gateway: Gateway, listener: Listener, spec: RouteSpec, writes: str, inbound: Inbound
) -> None:
    gateway.start_smsc(writes)
    (url,) = eventually(lambda: list(listener.urls))
    posted = Posted("GET", url, headers={}, body=b"")
    assert (list(Kannel().inbound(spec, posted)), list(Kannel().receipts(spec, posted))) == ([inbound], [])


async def test_a_wrong_password_is_refused(session: aiohttp.ClientSession, spec: RouteSpec) -> None:
    wrong = replace(spec, credentials={**spec.credentials, "password": "another"})
    result = await hand_over(session, wrong, "1234")
    assert (result.submission, result.error_class) == (Submission.REFUSED, ErrorClass.ROUTE_REJECTED)
    assert result.raw == "403 Authorization failed for sendsms"


async def test_what_it_took_without_an_smsc_is_sent_once_when_that_is_back(
    session: aiohttp.ClientSession, gateway: Gateway, listener: Listener, spec: RouteSpec
) -> None:
    gateway.start_smsc()
    gateway.end_smsc()
    assert not (await Kannel().check(session, spec)).ok
    result = await hand_over(session, spec, "held")
    assert (result.submission, result.raw) == (ACCEPTED, "202 3: Queued for later delivery")
    assert reported(spec, listener, FIRST) == set()
    gateway.start_smsc()
    eventually(lambda: reported(spec, listener, FIRST) == {SENT, DELIVERED})
    await hand_over(session, spec, "later", SECOND)
    eventually(lambda: reported(spec, listener, SECOND) == {SENT, DELIVERED})
    assert [text for _, _, _, text in gateway.received()] == ["held", "later"]


async def test_a_crash_in_the_middle_leaves_it_open_and_afterwards_nothing_leaves(
    session: aiohttp.ClientSession, gateway: Gateway, spec: RouteSpec
) -> None:
    gateway.freeze_bearerbox()
    submission = asyncio.create_task(hand_over(session, spec, "1234"))
    await asyncio.to_thread(eventually, lambda: gateway.has_read(CREDENTIALS["username"]))
    gateway.kill_bearerbox()
    result = await submission
    assert (result.submission, result.error_class) == (UNKNOWN, ErrorClass.TIMEOUT_AFTER_SUBMIT)
    await asyncio.to_thread(eventually, gateway.is_closed)
    result = await hand_over(session, spec, "5678", SECOND)
    assert (result.submission, result.error_class) == (Submission.NOT_CONNECTED, ErrorClass.CONNECTION_REFUSED)
    assert not (await Kannel().check(session, spec)).ok
