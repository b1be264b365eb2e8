"""Events as hosts really post them (files) become our types; what is not of the shape is refused with its place."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from servers.relay.events import (
    BODY_LIMIT,
    DEPTH_LIMIT,
    EVENTS_LIMIT,
    TEXT_LIMIT,
    Delivered,
    EventData,
    Heartbeat,
    Inbound,
    MessageFailed,
    MessageSent,
    Read,
    RelayEvent,
    UnitStatus,
    Unrecognised,
    parse_events,
)
from servers.relay.fields import RelayShapeError

PAYLOADS = Path(__file__).parents[2] / "webhooks" / "payloads" / "native"
ATTEMPT = uuid.UUID("0b8f7d0e-3c7a-4a2e-9a55-6f1d2c3b4a59")
GUID = "5F1C2B7A-98D3-5E10-8C44-1A2B3C4D5E6F"

DATA: dict[str, EventData] = {
    "message_sent": MessageSent(ATTEMPT, GUID, success=True, service="imessage", error_code=None),
    "message_sent_by_sms": MessageSent(ATTEMPT, GUID, success=True, service="sms", error_code=None),
    "message_sent_without_success": MessageSent(ATTEMPT, "", success=False, service="imessage", error_code=120),
    "message_failed": MessageFailed(ATTEMPT, "", error_code=22, detail="The recipient is not registered."),
    "message_failed_with_unknown_code": MessageFailed(None, GUID, error_code=4711, detail=""),
    "delivered": Delivered(ATTEMPT, GUID, service="imessage"),
    "read": Read(None, GUID),
    "inbound": Inbound("+34600000001", "+34600000000", "STOP \U0001f6d1", GUID, "imessage"),
    "inbound_from_an_email_handle": Inbound("person@example.com", "+34600000000", "", "", "imessage"),
    "unit_status": UnitStatus(signed_in=False, detail="The account was signed out by the service."),
    "heartbeat": Heartbeat(queue=3, version="1.4.0"),
    "heartbeat_without_unit_and_data": Heartbeat(queue=None, version=""),
    "unknown_type": Unrecognised("typing_indicator"),
}


def payload(case: str) -> bytes:
    return (PAYLOADS / f"{case}.json").read_bytes()


def event(**changes: Any) -> dict[str, Any]:
    """A valid `delivered`, changed."""
    document: dict[str, Any] = json.loads(payload("delivered"))
    return {**document, **changes}


def sent(**changes: Any) -> dict[str, Any]:
    """A valid `message_sent` with its data changed."""
    document: dict[str, Any] = json.loads(payload("message_sent"))
    return {**document, "data": {**document["data"], **changes}}


def of_type(kind: str, **data: Any) -> dict[str, Any]:
    return event(type=kind, data=data)


def parse(document: Any) -> list[RelayEvent]:
    return parse_events(json.dumps(document).encode())


@pytest.mark.parametrize("case", DATA)
def test_reads_the_real_event(case: str) -> None:
    (read,) = parse_events(payload(case))

    assert read.data == DATA[case]


def test_every_payload_is_of_a_case_that_is_tested() -> None:
    assert {path.stem for path in PAYLOADS.glob("*.json")} == {*DATA, "list_out_of_order"}


def test_reads_the_envelope() -> None:
    (read,) = parse_events(payload("message_sent"))

    assert read.id == uuid.UUID("7d3c1f7e-0000-4000-8000-000000000001")
    assert read.type == "message_sent"
    assert read.unit == 228
    assert read.at == dt.datetime(2026, 9, 1, 12, 0, 1, 250_000, tzinfo=dt.UTC)


def test_turns_times_with_other_offsets_into_utc() -> None:
    (read,) = parse_events(payload("read"))

    assert read.at == dt.datetime(2026, 9, 1, 12, 0, 1, tzinfo=dt.UTC)
    assert read.at.tzinfo is dt.UTC


def test_a_heartbeat_needs_no_unit() -> None:
    (read,) = parse_events(payload("heartbeat_without_unit_and_data"))

    assert read.unit is None


def test_keeps_the_order_of_a_list() -> None:
    assert [read.type for read in parse_events(payload("list_out_of_order"))] == ["delivered", "message_sent"]


def test_takes_a_list_of_exactly_100_events() -> None:
    assert len(parse([event()] * EVENTS_LIMIT)) == 100


def test_members_that_we_do_not_know_are_ignored() -> None:
    assert parse(event(extra={"a": [1, 2.5, "\x00"]}))[0].data == DATA["delivered"]


def test_an_unknown_type_needs_neither_unit_nor_data() -> None:
    document = event(type="moon_phase")
    del document["unit"], document["data"]

    assert parse(document)[0].data == Unrecognised("moon_phase")


def test_an_unknown_service_is_kept_in_lower_case() -> None:
    (read,) = parse(sent(service="RCS"))

    assert isinstance(read.data, MessageSent)
    assert read.data.service == "rcs"


@pytest.mark.parametrize("text", ["x" * TEXT_LIMIT, "", "\U0001f600" * TEXT_LIMIT], ids=["longest", "empty", "emoji"])
def test_takes_inbound_texts_up_to_the_limit(text: str) -> None:
    (read,) = parse(of_type("inbound", **{"from": "+1", "to": "+2", "text": text}))

    assert isinstance(read.data, Inbound)
    assert read.data.text == text


INBOUND = {"from": "+34600000001", "to": "+34600000000", "text": "hi"}

FAULTS: list[tuple[str, Any, int | None, str]] = [
    # name, document, index, field
    ("an empty list", [], None, ""),
    ("101 events", [event()] * 101, None, ""),
    ("a number", 7, 0, ""),
    ("null", None, 0, ""),
    ("a list in a list", [[event()]], 0, ""),
    ("the second of two", [event(), event(id="7")], 1, "id"),
    ("no id", event(id=None), 0, "id"),
    ("an id in braces", event(id="{7d3c1f7e-0000-4000-8000-000000000001}"), 0, "id"),
    ("an id without hyphens", event(id="7d3c1f7e000040008000000000000001"), 0, "id"),
    ("an id in other digits", event(id="\uff17d3c1f7e-0000-4000-8000-000000000001"), 0, "id"),
    ("an id with a line end", event(id="7d3c1f7e-0000-4000-8000-000000000001\n"), 0, "id"),
    ("an id that is a number", event(id=12), 0, "id"),
    ("no type", event(type=None), 0, "type"),
    ("an empty type", event(type=""), 0, "type"),
    ("a type that is a list", event(type=["delivered"]), 0, "type"),
    ("a long type", event(type="x" * 65), 0, "type"),
    ("no time", event(at=None), 0, "at"),
    ("a naive time", event(at="2026-09-01T12:00:01"), 0, "at"),
    ("a date alone", event(at="2026-09-01"), 0, "at"),
    ("a time that is none", event(at="2026-13-01T12:00:01Z"), 0, "at"),
    ("unix seconds", event(at=1788264001), 0, "at"),
    ("a time before 2020", event(at="2019-12-31T23:59:59Z"), 0, "at"),
    ("a time in the year 1", event(at="0001-01-01T00:00:00+14:00"), 0, "at"),
    ("a time in 2100", event(at="2100-01-01T00:00:00Z"), 0, "at"),
    ("a time in the year 9999", event(at="9999-12-31T23:59:59-14:00"), 0, "at"),
    ("no unit", event(unit=None), 0, "unit"),
    ("a unit that is true", event(unit=True), 0, "unit"),
    ("a unit that is a text", event(unit="228"), 0, "unit"),
    ("a unit that is a fraction", event(unit=228.0), 0, "unit"),
    ("a negative unit", event(unit=-1), 0, "unit"),
    ("a unit over 31 bits", event(unit=2**31), 0, "unit"),
    ("a unit of 20 digits", event(unit=10**19), 0, "unit"),
    ("no data", event(data=None), 0, "data"),
    ("data that is a list", event(data=[]), 0, "data"),
    ("neither attempt nor guid", sent(attempt_id=None, guid=None), 0, "data.attempt_id"),
    ("an empty guid alone", sent(attempt_id=None, guid=""), 0, "data.attempt_id"),
    ("a failure about nothing", of_type("message_failed", error_code=120), 0, "data.attempt_id"),
    ("a delivery of nothing", of_type("delivered", service="sms"), 0, "data.attempt_id"),
    ("a reading of nothing", of_type("read"), 0, "data.attempt_id"),
    ("an attempt that is no UUID", sent(attempt_id="1"), 0, "data.attempt_id"),
    ("a guid that is a number", sent(guid=12), 0, "data.guid"),
    ("a guid of 201 characters", sent(guid="g" * 201), 0, "data.guid"),
    ("a guid with NUL", sent(guid="a\x00b"), 0, "data.guid"),
    ("a guid with half a surrogate pair", sent(guid="a\ud800"), 0, "data.guid"),
    ("no success", sent(success=None), 0, "data.success"),
    ("success as a number", sent(success=1), 0, "data.success"),
    ("an error code that is true", sent(error_code=True), 0, "data.error_code"),
    ("an error code that is a text", sent(error_code="120"), 0, "data.error_code"),
    ("an error code over 31 bits", sent(error_code=2**31), 0, "data.error_code"),
    ("a service that is a number", sent(service=1), 0, "data.service"),
    ("a long service", sent(service="s" * 33), 0, "data.service"),
    ("a long detail", of_type("message_failed", guid="g", detail="d" * 1001), 0, "data.detail"),
    ("an inbound from nobody", of_type("inbound", **{**INBOUND, "from": ""}), 0, "data.from"),
    ("an inbound to nobody", of_type("inbound", **{**INBOUND, "to": None}), 0, "data.to"),
    ("an inbound text with NUL", of_type("inbound", **{**INBOUND, "text": "\x00"}), 0, "data.text"),
    ("an inbound text that is too long", of_type("inbound", **{**INBOUND, "text": "x" * 65537}), 0, "data.text"),
    ("a status without a word", of_type("unit_status"), 0, "data.signed_in"),
    ("a status as a text", of_type("unit_status", signed_in="true"), 0, "data.signed_in"),
    ("a heartbeat with a negative queue", of_type("heartbeat", queue=-1), 0, "data.queue"),
    ("a heartbeat with a long version", of_type("heartbeat", version="v" * 65), 0, "data.version"),
    ("a heartbeat with data that is a text", event(type="heartbeat", data="x"), 0, "data"),
]


@pytest.mark.parametrize(
    ("document", "index", "field"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS]
)
def test_refuses(document: Any, index: int | None, field: str) -> None:
    with pytest.raises(RelayShapeError) as refusal:
        parse(document)

    assert (refusal.value.index, refusal.value.field) == (index, field)
    assert refusal.value.status == 400
    assert refusal.value.data == {"index": index, "field": field}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b'{"id": NaN}',
        b"[Infinity]",
        b"-Infinity",
        b"9" * 5000,
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * (DEPTH_LIMIT + 1) + b"]" * (DEPTH_LIMIT + 1),
        b'"\xff"',
        '{"id": 1}'.encode("utf-16"),
        b"\xef\xbb\xbf[]",
        b" " * (BODY_LIMIT + 1),
    ],
    ids=[
        "nothing",
        "no JSON",
        "NaN",
        "Infinity",
        "minus Infinity",
        "a huge number",
        "lists without end",
        "objects without end",
        "one level too deep",
        "not UTF-8",
        "UTF-16",
        "a byte order mark",
        "more than the limit",
    ],
)
def test_refuses_the_whole_body(body: bytes) -> None:
    with pytest.raises(RelayShapeError) as refusal:
        parse_events(body)

    assert refusal.value.index is None


def test_takes_the_deepest_nesting_that_is_allowed() -> None:
    extra: Any = 1
    for _level in range(DEPTH_LIMIT - 1):
        extra = [extra]

    assert parse(event(extra=extra))
    with pytest.raises(RelayShapeError):
        parse(event(extra=[extra]))


def test_a_refusal_repeats_nothing_of_what_was_sent() -> None:
    with pytest.raises(RelayShapeError) as refusal:
        parse(of_type("inbound", **{**INBOUND, "text": "code 483920\x00"}))

    shown = f"{refusal.value!r} {refusal.value} {refusal.value.data} {refusal.value.__cause__}"
    assert "483920" not in shown
    assert "34600" not in shown


def test_an_event_shows_neither_numbers_nor_text_in_its_repr() -> None:
    (read,) = parse_events(payload("inbound"))

    assert "STOP" not in repr(read)
    assert "34600" not in repr(read)


def test_a_name_that_stands_twice_is_told() -> None:
    body = payload("delivered").replace(b"{", b'{"unit": 1, ', 1)
    with pytest.raises(RelayShapeError) as refusal:
        parse_events(body)

    assert refusal.value.data == {"index": None, "field": "unit"}
