"""SMPP's words and ours, at their edges."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
import uuid
from typing import Any

import pytest
import smpp34
from hypothesis import given
from hypothesis import strategies as st

from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, Submittable
from otp_service.routes.providers.smpp_rules import (
    MESSAGE_PAYLOAD,
    MESSAGE_STATE,
    RECEIPTED_MESSAGE_ID,
    Pauses,
    is_receipt,
    jittered,
    message_id,
    pause,
    receipt,
    refusal,
    status_code,
    submission,
)
from tests.conftest import NOON

ATTEMPT = Submittable(uuid.UUID(int=7), "+34600000000", "Your code is 123456", expires_at=NOON, submit_by=NOON)


@pytest.mark.parametrize(
    ("statuses", "error_class"),
    [
        pytest.param((0x01, 0x02, 0x03, 0x61, 0x62), ErrorClass.ROUTE_REJECTED, id="what we wrote"),
        pytest.param((0x04, 0x05), ErrorClass.CONNECTION_REFUSED, id="the bind"),
        pytest.param((0x08, 0x45, 0x64, 0xFE, 0xFF), ErrorClass.TEMPORARY, id="the SMSC"),
        pytest.param((0x0A,), ErrorClass.ROUTE_REJECTED, id="the sender"),
        pytest.param((0x0B,), ErrorClass.RECIPIENT_INVALID, id="the recipient"),
        pytest.param((0x0D, 0x0E, 0x0F), ErrorClass.ROUTE_REJECTED, id="the credentials"),
        pytest.param((0x14, 0x58), ErrorClass.THROTTLED, id="the speed"),
        pytest.param((0x65, 0x66), ErrorClass.ROUTE_REJECTED, id="for good"),
        pytest.param((0x09, 0x112, 0x400, 0xFFFFFFFF), ErrorClass.TEMPORARY, id="in no table"),
    ],
)
def test_a_status_says_whose_fault_it_is(statuses: tuple[int, ...], error_class: ErrorClass) -> None:
    assert {refusal(status) for status in statuses} == {error_class}


@pytest.mark.parametrize(
    ("status", "code"),
    [(0, None), (0x0B, 11), (2**31 - 1, 2**31 - 1), (2**31, None), (2**32 - 1, None)],
)
def test_a_status_is_kept_where_a_column_holds_it(status: int, code: int | None) -> None:
    assert status_code(status) == code


@pytest.mark.parametrize(
    ("text", "kept"),
    [("00A1", "161"), (" 161 ", "161"), ("x" * 200, "x" * 200), ("x" * 201, ""), ("a\0b", ""), ("", "")],
)
def test_an_id_is_kept_where_it_can_be(text: str, kept: str) -> None:
    assert message_id(text) == kept


def written(sender: str = "", **changes: Any) -> smpp34.SubmitSm:
    pdu = smpp34.decode(submission(dataclasses.replace(ATTEMPT, **changes), sender))
    assert isinstance(pdu, smpp34.SubmitSm)
    return pdu


@pytest.mark.parametrize(
    ("text", "coding", "in_payload"),
    [
        pytest.param("a" * 160, 0, None, id="the longest in the SMS alphabet"),
        pytest.param("a" * 161, 0, b"a" * 161, id="one more"),
        pytest.param("a\x1b(", 8, None, id="half a sign"),
        pytest.param("€" * 80, 0, None, id="signs that take two"),
        pytest.param("€" * 80 + "a", 0, b"\x1be" * 80 + b"a", id="one more after signs that take two"),
        pytest.param("Я" * 70, 8, None, id="the longest in another alphabet"),
        pytest.param("Я" * 71, 8, b"\x04\x2f" * 71, id="one more in another alphabet"),
        pytest.param("😀" * 35, 8, None, id="the longest of pairs"),
        pytest.param("😀" * 35 + "a", 8, b"\xd8\x3d\xde\x00" * 35 + b"\0a", id="one more than the longest of pairs"),
    ],
)
def test_a_text_that_does_not_fit_into_one_sms_goes_whole_as_payload(
    text: str, coding: int, in_payload: bytes | None
) -> None:
    pdu = written(text=text)
    assert pdu.data_coding == coding
    assert [tlv.value for tlv in pdu.tlvs] == ([] if in_payload is None else [in_payload])
    assert bool(pdu.short_message) is (in_payload is None)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=400))
def test_any_text_is_written_whole(text: str) -> None:
    pdu = written(text=text)
    octets = pdu.short_message or pdu.tlvs[0].value
    assert octets.decode({0: "gsm0338", 8: "utf-16-be"}[pdu.data_coding]) == text


@pytest.mark.parametrize(
    ("sender", "source"),
    [
        pytest.param("", (0, 0, ""), id="the SMSC's own"),
        pytest.param("ACME", (5, 0, "ACME"), id="a name"),
        pytest.param("ACME BANK 1", (5, 0, "ACME BANK 1"), id="the longest name"),
        pytest.param("+34600000001", (1, 1, "34600000001"), id="a number"),
        pytest.param("600000001", (1, 1, "600000001"), id="a number without a plus"),
        pytest.param("60000001", (3, 0, "60000001"), id="the longest short code"),
    ],
)
def test_a_sender_is_a_name_a_number_or_a_short_code(sender: str, source: tuple[int, int, str]) -> None:
    pdu = written(sender)
    assert (pdu.source_addr_ton, pdu.source_addr_npi, pdu.source_addr) == source


@pytest.mark.parametrize("sender", ["ACME BANK 12", "Ñandú", "A\0B", "1" * 21, "١٢٣"])
def test_a_sender_that_cannot_be_written_is_refused(sender: str) -> None:
    with pytest.raises(ValueError, match="A sender name is at most"):
        submission(ATTEMPT, sender)


def test_the_end_of_its_life_is_written_in_utc() -> None:
    madrid = dt.timezone(dt.timedelta(hours=2))
    pdu = written(expires_at=dt.datetime(2026, 9, 1, 1, 2, 3, 999_999, tzinfo=madrid))
    assert pdu.validity_period == "260831230203000+"


def delivered(text: bytes = b"", *tlvs: tuple[int, bytes], esm_class: int = 0x04) -> smpp34.DeliverSm:
    return smpp34.DeliverSm("1", "2", text, esm_class=esm_class, tlvs=[smpp34.Tlv(tag, value) for tag, value in tlvs])


def text_form(stat: str, err: str = "000", named: str = "0161", said: str = "") -> bytes:
    return (
        f"id:{named} sub:001 dlvrd:001 submit date:2609011200 done date:2609011201 stat:{stat} err:{err} text:{said}"
    ).encode()


FAILED = ReportedState.FAILED


@pytest.mark.parametrize(
    ("word", "state", "error_class"),
    [
        ("ENROUTE", ReportedState.SENT, None),
        ("ACCEPTD", ReportedState.SENT, None),
        ("DELIVRD", ReportedState.DELIVERED, None),
        ("EXPIRED", FAILED, ErrorClass.EXPIRED),
        ("DELETED", FAILED, ErrorClass.ROUTE_REJECTED),
        ("UNDELIV", FAILED, ErrorClass.RECIPIENT_UNREACHABLE),
        ("REJECTD", FAILED, ErrorClass.ROUTE_REJECTED),
        ("UNKNOWN", ReportedState.UNKNOWN, None),
        ("delivrd", ReportedState.DELIVERED, None),
        ("SKIPPED", ReportedState.UNKNOWN, None),
    ],
)
def test_a_receipt_in_words(word: str, state: ReportedState, error_class: ErrorClass | None) -> None:
    told = receipt(delivered(text_form(word, err="021")))
    code = 21 if error_class else None
    assert told == Receipt(state, provider_message_id="161", error_class=error_class, error_code=code)


@pytest.mark.parametrize(
    ("number", "state"),
    [
        (1, ReportedState.SENT),
        (2, ReportedState.DELIVERED),
        (3, FAILED),
        (4, FAILED),
        (5, FAILED),
        (6, ReportedState.SENT),
        (7, ReportedState.UNKNOWN),
        (8, FAILED),
        (9, ReportedState.UNKNOWN),
    ],
)
def test_a_receipt_in_parameters(number: int, state: ReportedState) -> None:
    told = receipt(delivered(b"", (RECEIPTED_MESSAGE_ID, b"00A1\0"), (MESSAGE_STATE, bytes([number]))))
    assert told is not None
    assert (told.state, told.provider_message_id) == (state, "161")


def test_parameters_go_before_words() -> None:
    told = receipt(
        delivered(
            text_form("UNDELIV", named="5"),
            (RECEIPTED_MESSAGE_ID, b"6"),
            (MESSAGE_STATE, b"\2"),
        )
    )
    assert told == Receipt(ReportedState.DELIVERED, provider_message_id="6")


def test_words_in_a_payload_are_read() -> None:
    told = receipt(delivered(b"", (MESSAGE_PAYLOAD, text_form("DELIVRD"))))
    assert told == Receipt(ReportedState.DELIVERED, provider_message_id="161")


def test_what_the_message_said_is_not_taken_for_the_receipt() -> None:
    told = receipt(delivered(b"id:161 text: id:9 stat:DELIVRD err:001"))
    assert told == Receipt(ReportedState.UNKNOWN, provider_message_id="161")


@pytest.mark.parametrize("err", ["12AB", "9" * 10, "1" * 11, "٣"])
def test_an_error_that_is_no_number_is_left_out(err: str) -> None:
    told = receipt(delivered(text_form("UNDELIV", err=err)))
    assert told is not None
    assert told.error_code is None


@pytest.mark.parametrize(
    ("pdu", "is_one"),
    [
        pytest.param(delivered(esm_class=0x04), True, id="a receipt"),
        pytest.param(delivered(esm_class=0x44), True, id="with a header"),
        pytest.param(delivered(esm_class=0x20), True, id="on the way"),
        pytest.param(delivered(esm_class=0), False, id="from a person"),
        pytest.param(delivered(esm_class=0x08), False, id="read by a person"),
        pytest.param(delivered(b"", (RECEIPTED_MESSAGE_ID, b"1"), esm_class=0), True, id="that names a message"),
    ],
)
def test_tells_receipts_from_what_people_write(pdu: smpp34.DeliverSm, is_one: bool) -> None:
    assert is_receipt(pdu) is is_one


@given(
    st.binary(max_size=254),
    st.lists(
        st.tuples(
            st.sampled_from([RECEIPTED_MESSAGE_ID, MESSAGE_STATE, MESSAGE_PAYLOAD, 0x1403]),
            st.binary(max_size=300),
        ),
        max_size=4,
    ),
)
def test_nothing_that_an_smsc_writes_is_a_fault_of_ours(text: bytes, tlvs: list[tuple[int, bytes]]) -> None:
    told = receipt(delivered(text, *tlvs))
    assert told is None or told.provider_message_id


SECONDS = tuple(dt.timedelta(seconds=s) for s in (1, 2, 5))
PAUSES = Pauses(lost=SECONDS, refused=(dt.timedelta(minutes=1), dt.timedelta(minutes=5)))


@pytest.mark.parametrize(
    ("failures", "status", "seconds"),
    [
        pytest.param(1, 0, 1, id="lost"),
        pytest.param(3, 0, 5, id="the last step"),
        pytest.param(4, 0, 5, id="the last step again"),
        pytest.param(1, 0x05, 1, id="bound already"),
        pytest.param(1, 0x0D, 60, id="bind failed"),
        pytest.param(1, 0x0E, 60, id="wrong password"),
        pytest.param(2, 0x0F, 300, id="wrong name again"),
        pytest.param(9, 0x0F, 300, id="and again"),
    ],
)
def test_pauses_grow_and_are_long_where_the_credentials_are_refused(failures: int, status: int, seconds: int) -> None:
    assert pause(PAUSES, failures, status) == dt.timedelta(seconds=seconds)


def test_the_pauses_of_every_day_never_shrink() -> None:
    for steps in (Pauses().lost, Pauses().refused):
        assert list(steps) == sorted(steps)
    assert min(Pauses().refused) >= max(Pauses().lost)


@given(st.integers())
def test_jitter_is_a_fifth_at_most(seed: int) -> None:
    delay = dt.timedelta(seconds=10)
    assert dt.timedelta(seconds=8) <= jittered(delay, random.Random(seed)) <= dt.timedelta(seconds=12)


def test_jitter_differs(rng: random.Random) -> None:
    assert len({jittered(dt.timedelta(seconds=10), rng) for _ in range(10)}) == 10
