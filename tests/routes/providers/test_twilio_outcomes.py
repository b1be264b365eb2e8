"""Every code and every state that Twilio's table knows, written down a second time."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import aiohttp
import pytest

from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, Submission
from otp_service.routes.providers.twilio import ERRORS, STATES, Twilio
from tests.routes.providers.contract_base import ATTEMPT, PATIENT, a_claim
from tests.routes.providers.test_twilio_contract import SID, signed, twilio_spec
from tests.servers.relay.peers import answers, peer

CODES = {
    14107: ErrorClass.THROTTLED,
    20003: ErrorClass.ROUTE_REJECTED,
    20429: ErrorClass.THROTTLED,
    20503: ErrorClass.TEMPORARY,
    21211: ErrorClass.RECIPIENT_INVALID,
    21217: ErrorClass.RECIPIENT_INVALID,
    21408: ErrorClass.ROUTE_REJECTED,
    21602: ErrorClass.CONTENT_REJECTED,
    21610: ErrorClass.RECIPIENT_UNREACHABLE,
    21611: ErrorClass.THROTTLED,
    21614: ErrorClass.RECIPIENT_UNREACHABLE,
    21617: ErrorClass.CONTENT_REJECTED,
    21635: ErrorClass.RECIPIENT_UNREACHABLE,
    21714: ErrorClass.ROUTE_REJECTED,
    30001: ErrorClass.TEMPORARY,
    30002: ErrorClass.ROUTE_REJECTED,
    30003: ErrorClass.TEMPORARY,
    30004: ErrorClass.ROUTE_REJECTED,
    30005: ErrorClass.RECIPIENT_INVALID,
    30006: ErrorClass.RECIPIENT_UNREACHABLE,
    30007: ErrorClass.ROUTE_REJECTED,
    30008: ErrorClass.TEMPORARY,
    30034: ErrorClass.ROUTE_REJECTED,
    30036: ErrorClass.EXPIRED,
}
WORDS = {
    "accepted": ReportedState.QUEUED,
    "scheduled": ReportedState.QUEUED,
    "queued": ReportedState.QUEUED,
    "sending": ReportedState.QUEUED,
    "sent": ReportedState.SENT,
    "partially_delivered": ReportedState.SENT,
    "delivered": ReportedState.DELIVERED,
    "read": ReportedState.DELIVERED,
    "undelivered": ReportedState.FAILED,
    "failed": ReportedState.FAILED,
    "canceled": ReportedState.NEVER,
}


def test_no_row_is_missing_here() -> None:
    assert (CODES.keys(), WORDS.keys()) == (ERRORS.keys(), STATES.keys())


def received(**parameters: object) -> Receipt:
    body = urlencode({"MessageSid": SID, **parameters}).encode()
    (receipt,) = Twilio().receipts(twilio_spec("https://api.twilio.com"), signed(body))
    return receipt


@pytest.mark.parametrize(("code", "error_class"), CODES.items(), ids=map(str, CODES))
async def test_a_refusal_with_this_code_is_somebodys_fault(
    session: aiohttp.ClientSession, code: int, error_class: ErrorClass
) -> None:
    async with peer(answers(400, json.dumps({"code": code, "status": 400}).encode())) as served:
        result = await Twilio(PATIENT).submit(session, a_claim(twilio_spec(served.base_url)))

    assert (result.submission, result.error_class, result.error_code) == (Submission.REFUSED, error_class, code)


@pytest.mark.parametrize("word", ["failed", "undelivered"])
@pytest.mark.parametrize(("code", "error_class"), CODES.items(), ids=map(str, CODES))
def test_a_receipt_with_this_code_is_somebodys_fault(word: str, code: int, error_class: ErrorClass) -> None:
    assert received(MessageStatus=word, ErrorCode=code) == Receipt(
        ReportedState.FAILED, ATTEMPT, SID, error_class=error_class, error_code=code
    )


@pytest.mark.parametrize(("word", "state"), WORDS.items(), ids=WORDS)
def test_a_receipt_with_this_word_means_one_state(word: str, state: ReportedState) -> None:
    error_class = ErrorClass.TEMPORARY if state is ReportedState.FAILED else None
    assert received(MessageStatus=word) == Receipt(state, ATTEMPT, SID, error_class=error_class, read=word == "read")
