"""Whose fault the failures are that Kannel reports, and what of a report is kept."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState
from otp_service.routes.providers.base import NotGenuine, Unreadable
from otp_service.routes.providers.kannel import Kannel
from tests.routes.providers.contract_base import ATTEMPT
from tests.routes.providers.kannel_routes import called, route

ROUTE = route("http://kannel.example")
FAILED = ReportedState.FAILED
GOOD = {"attempt": str(ATTEMPT), "type": "1", "t": "receipt-token"}


def read(query: str) -> Receipt:
    (receipt,) = Kannel().receipts(ROUTE, called(query))
    return receipt


@pytest.mark.parametrize(
    ("kind", "reply", "error_class", "error_code"),
    [
        pytest.param("16", "NACK/0x00000058/Throttling error", ErrorClass.THROTTLED, 0x58, id="a status of SMPP"),
        pytest.param("16", "NACK/0x0000000A/Source", ErrorClass.ROUTE_REJECTED, 10, id="capitals"),
        pytest.param("16", "NACK/0x00000777/", ErrorClass.TEMPORARY, 0x777, id="a status that nobody knows"),
        pytest.param("16", "NACK/0xffffffff/", ErrorClass.TEMPORARY, None, id="more than a column holds"),
        pytest.param("16", "", ErrorClass.TEMPORARY, None, id="no word of the SMSC"),
        pytest.param("2", "", ErrorClass.RECIPIENT_UNREACHABLE, None, id="no word of the phone's network"),
        pytest.param("2", "id:1 stat:EXPIRED err:001 text:", ErrorClass.EXPIRED, 1, id="their time ran out"),
        pytest.param("2", "stat:DELIVRD err:000", ErrorClass.RECIPIENT_UNREACHABLE, 0, id="a word that is no failure"),
        pytest.param("2", "stat:NEWWORD", ErrorClass.RECIPIENT_UNREACHABLE, None, id="a word that nobody knows"),
    ],
)
def test_whose_fault_a_failure_is(kind: str, reply: str, error_class: ErrorClass, error_code: int | None) -> None:
    receipt = read(urlencode(GOOD | {"type": kind, "reply": reply}))
    assert (receipt.state, receipt.error_class, receipt.error_code) == (FAILED, error_class, error_code)


def test_a_route_without_a_token_believes_nobody() -> None:
    with pytest.raises(NotGenuine):
        Kannel().receipts(replace(ROUTE, credentials={}), called(urlencode(GOOD | {"t": ""})))


def test_an_id_that_cannot_be_stored_is_left_out() -> None:
    assert read(urlencode(GOOD | {"id": "a\x00b"})).provider_message_id == ""
    assert read(urlencode(GOOD | {"id": "x" * 201})).provider_message_id == ""


def test_what_is_logged_of_a_type_that_nobody_knows_is_no_number_of_anybody() -> None:
    with capture_logs() as logs:
        read(urlencode(GOOD | {"type": "34600000000"}))
    assert [(entry["event"], entry["word"]) for entry in logs] == [("receipt_state_not_known", "(not shown)")]


@settings(deadline=None)  # a busy machine is no fault of what is read
@given(st.text(max_size=300))
def test_no_query_does_more_than_be_refused(query: str) -> None:
    with pytest.raises(NotGenuine):
        read(query)


@settings(deadline=None)  # a busy machine is no fault of what is read
@given(st.dictionaries(st.sampled_from(["attempt", "type", "id", "reply"]), st.text(max_size=80)))
def test_no_genuine_call_does_more_than_be_unreadable(changed: dict[str, str]) -> None:
    try:
        receipt = read(urlencode(GOOD | changed, errors="replace"))
    except Unreadable:
        return
    assert receipt.attempt_uuid is not None
    assert "\x00" not in receipt.provider_message_id
