"""The Twilio provider against peers that misbehave, and its table of outcomes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import parse_qsl

import aiohttp
import pytest

from otp_service.core.http import RETRY_AFTER_LIMIT, Timeouts
from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState
from otp_service.messages.rules import Channel
from otp_service.routes.providers.base import OutsideProvider, Posted
from otp_service.routes.providers.twilio import Twilio, signature
from otp_service.routes.route_rules import RouteKind, RouteSpec
from tests.routes.providers.contract import ProviderContract
from tests.routes.providers.contract_base import (
    ATTEMPT,
    PATIENT,
    RECEIPTS_URL,
    Refused,
    Reported,
    a_question,
    payload,
)
from tests.servers.relay.peers import Reply, answers, peer

SID = "SM0123456789abcdef0123456789abcdef"
TOKEN = "0123456789abcdeffedcba9876543210"
URL = f"{RECEIPTS_URL}?attempt={ATTEMPT}"


def said(status: int, case: str, **headers: str) -> Reply:
    return answers(status, payload("twilio", f"{case}.json"), **headers)


def twilio_spec(base_url: str) -> RouteSpec:
    return RouteSpec(
        name="sms:one",
        channel=Channel.SMS,
        kind=RouteKind.TWILIO,
        settings={"base_url": base_url},
        credentials={"account_sid": "AC0123456789abcdef0123456789abcdef", "auth_token": TOKEN},
        sender_names=("ACME",),
        receipts_url=RECEIPTS_URL,
    )


def signed(body: bytes, *, url: str = URL, token: str = TOKEN) -> Posted:
    parameters = parse_qsl(body.decode(), keep_blank_values=True)
    headers = {
        "content-type": "application/x-www-form-urlencoded; charset=UTF-8",
        "x-twilio-signature": signature(token, url, parameters),
    }
    return Posted("POST", url, headers, body)


def receipt(state: ReportedState, error_class: ErrorClass | None = None, code: int | None = None) -> Receipt:
    return Receipt(state, ATTEMPT, SID, error_class=error_class, error_code=code)


ROUTE, THROTTLED, TEMPORARY = ErrorClass.ROUTE_REJECTED, ErrorClass.THROTTLED, ErrorClass.TEMPORARY


class TestTwilio(ProviderContract):
    CAN_BE_ASKED = True
    ACCEPTANCE = (said(201, "created"), SID)
    NONSENSE = (
        answers(201),
        answers(201, b"OK"),
        answers(201, b"[]"),
        answers(201, b"{}"),
        answers(200, b'{"sid": null, "status": "queued"}'),
        answers(201, b'{"sid": "../x", "status": "queued"}'),
        answers(201, b"[" * 60_000),
        answers(204),
    )
    REFUSALS = (
        Refused("400 without words", answers(400), ROUTE),
        Refused("401", said(401, "error_20003"), ROUTE, 20003),
        Refused("403", answers(403, b"<h1>Forbidden</h1>"), ROUTE),
        Refused("404", said(404, "error_20404"), ROUTE, 20404),
        Refused("no number", said(400, "error_21211"), ErrorClass.RECIPIENT_INVALID, 21211),
        Refused("no mobile", said(400, "error_21614"), ErrorClass.RECIPIENT_UNREACHABLE, 21614),
        Refused("stopped", said(400, "error_21610"), ErrorClass.RECIPIENT_UNREACHABLE, 21610),
        Refused("no permission", said(400, "error_21408"), ROUTE, 21408),
        Refused("too long", said(400, "error_21617"), ErrorClass.CONTENT_REJECTED, 21617),
        Refused("a new code", said(400, "error_99999"), ROUTE, 99999),
        Refused("failed at once", said(201, "created_failed"), ErrorClass.RECIPIENT_INVALID, 30005),
        Refused("429", said(429, "error_20429"), THROTTLED, 20429),
        Refused(
            "429 with seconds", said(429, "error_20429", Retry_After="7"), THROTTLED, 20429, dt.timedelta(seconds=7)
        ),
        Refused("429 with a year", answers(429, Retry_After="31536000"), THROTTLED, None, RETRY_AFTER_LIMIT),
        Refused("429 with nonsense", answers(429, Retry_After="soon"), THROTTLED),
        Refused("a full queue", said(429, "error_21611"), THROTTLED, 21611),
        Refused("503 in its own words", said(503, "error_20503"), TEMPORARY, 20503),
    )
    REPORTS = (
        Reported("sent", payload("twilio", "receipt_sent.txt"), [receipt(ReportedState.SENT)]),
        Reported("delivered", payload("twilio", "receipt_delivered.txt"), [receipt(ReportedState.DELIVERED)]),
        Reported("read", payload("twilio", "receipt_read.txt"), [replace(receipt(ReportedState.DELIVERED), read=True)]),
        Reported(
            "unreachable",
            payload("twilio", "receipt_undelivered_30003.txt"),
            [receipt(ReportedState.FAILED, TEMPORARY, 30003)],
        ),
        Reported(
            "unregistered",
            payload("twilio", "receipt_failed_30034.txt"),
            [receipt(ReportedState.FAILED, ROUTE, 30034)],
        ),
        Reported(
            "failed without a code",
            payload("twilio", "receipt_failed_no_code.txt"),
            [receipt(ReportedState.FAILED, TEMPORARY)],
        ),
        Reported("a new state", payload("twilio", "receipt_new_state.txt"), [receipt(ReportedState.UNKNOWN)]),
    )
    UNREADABLE = (b"", payload("twilio", "receipt_no_status.txt"))

    def provider_with(self, timeouts: Timeouts) -> OutsideProvider:
        return Twilio(timeouts)

    def spec_of(self, base_url: str) -> RouteSpec:
        return twilio_spec(base_url)

    def posted(self, spec: RouteSpec, payload: bytes) -> Posted:
        return signed(payload)

    def forged(self, spec: RouteSpec, payload: bytes) -> Mapping[str, Posted]:
        genuine = signed(payload)
        other_attempt = URL.replace("6f1c", "7f1c")
        return {
            "unsigned": replace(genuine, headers={"content-type": genuine.headers["content-type"]}),
            "signed with another token": signed(payload, token="another"),
            "of another attempt": replace(genuine, url=other_attempt),
            "with another body": replace(genuine, body=payload + b"&MessageStatus2=x"),
            "with a body that is no text": replace(genuine, body=b"\xff"),
            "with a signature that is no ASCII": replace(
                genuine, headers={**genuine.headers, "x-twilio-signature": "\udc80é"}
            ),
            "without an address": replace(genuine, url="http://[::1"),
        }


@pytest.mark.parametrize(
    ("case", "state", "code"),
    [("fetched_delivered", ReportedState.DELIVERED, None), ("fetched_undelivered", ReportedState.FAILED, 30003)],
)
async def test_an_answer_to_a_question_is_understood(
    session: aiohttp.ClientSession, case: str, state: ReportedState, code: int | None
) -> None:
    async with peer(said(200, case)) as served:
        report = await Twilio(PATIENT).query(session, a_question(twilio_spec(served.base_url), SID))

    assert report is not None
    assert (report.answered, report.state, report.error_code) == (True, state, code)
    assert served.requests[0].path.endswith(f"/Messages/{SID}.json")


async def test_a_message_that_is_not_there_is_not_found(session: aiohttp.ClientSession) -> None:
    async with peer(said(404, "error_20404")) as served:
        report = await Twilio(PATIENT).query(session, a_question(twilio_spec(served.base_url), SID))

    assert report is not None
    assert (report.answered, report.state) == (True, ReportedState.NOT_FOUND)


async def test_an_answer_about_another_message_proves_nothing(session: aiohttp.ClientSession) -> None:
    async with peer(said(200, "fetched_delivered")) as served:
        report = await Twilio(PATIENT).query(session, a_question(twilio_spec(served.base_url), "SM1"))

    assert report is not None
    assert not report.answered


@pytest.mark.parametrize("sid", ["", "../Calls", "SM/1", "é"], ids=["none", "a path", "two parts", "no ASCII"])
async def test_nobody_is_asked_without_an_id_of_the_provider(session: aiohttp.ClientSession, sid: str) -> None:
    async with peer(said(200, "fetched_delivered")) as served:
        assert await Twilio(PATIENT).query(session, a_question(twilio_spec(served.base_url), sid)) is None
        assert served.connections == 0


@pytest.mark.parametrize(
    ("reply", "ok"),
    [
        (answers(200, b'{"status": "active"}'), True),
        (answers(200, b'{"status": "suspended"}'), False),
        (answers(200, b"nonsense"), False),
        (said(401, "error_20003"), False),
    ],
    ids=["active", "suspended", "nonsense", "401"],
)
async def test_the_check_says_whether_the_account_is_active(
    session: aiohttp.ClientSession, reply: Reply, ok: bool
) -> None:
    async with peer(reply) as served:
        health = await Twilio(PATIENT).check(session, twilio_spec(served.base_url))

    assert health.ok is ok
    assert health.detail.endswith(".")
