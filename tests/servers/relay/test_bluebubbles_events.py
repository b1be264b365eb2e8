"""What BlueBubbles really posts (files) becomes our events; what is not of the shape is refused with its place."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servers.relay.bluebubbles_events import DEPTH_LIMIT, parse_events
from servers.relay.events import (
    BODY_LIMIT,
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
)
from servers.relay.fields import EARLIEST, LATEST, RelayShapeError

PAYLOADS = Path(__file__).parents[2] / "webhooks" / "payloads" / "bluebubbles"
ATTEMPT = uuid.UUID("0b8f7d0e-3c7a-4a2e-9a55-6f1d2c3b4a59")
GUID = "5F1C2B7A-98D3-5E10-8C44-1A2B3C4D5E6F"
UNIT = 7
NOW = dt.datetime(2026, 9, 1, 13, 0, tzinfo=dt.UTC)
CREATED = dt.datetime(2026, 9, 1, 12, 0, tzinfo=dt.UTC)
DELIVERED = CREATED + dt.timedelta(seconds=3.25)
READ = CREATED + dt.timedelta(minutes=1)


def sent(attempt: uuid.UUID | None, service: str = "imessage") -> MessageSent:
    return MessageSent(attempt, GUID, success=True, service=service, error_code=None)


NOTHING = "Unrecognised"
FACTS: dict[str, list[tuple[EventData, dt.datetime]]] = {
    "new_message": [(sent(ATTEMPT), CREATED)],
    "new_message_before_it_is_matched": [(sent(None), CREATED)],
    "new_message_of_another_program": [(sent(None), CREATED)],
    "new_message_in_an_any_chat": [(sent(ATTEMPT), CREATED)],
    "new_message_in_an_any_chat_without_handle": [(sent(ATTEMPT, ""), CREATED)],
    "new_message_by_sms": [(sent(ATTEMPT, "sms"), CREATED)],
    "new_message_with_an_error": [(MessageFailed(ATTEMPT, GUID, 22, ""), NOW)],
    "updated_message_delivered": [(sent(None), CREATED), (Delivered(None, GUID, "imessage"), DELIVERED)],
    "updated_message_delivered_without_time": [(sent(None), CREATED), (Delivered(None, GUID, "imessage"), NOW)],
    "updated_message_read": [
        (sent(None), CREATED),
        (Delivered(None, GUID, "imessage"), DELIVERED),
        (Read(None, GUID), READ),
    ],
    "updated_message_with_an_error": [(MessageFailed(None, GUID, 4, ""), NOW)],
    "message_send_error": [(MessageFailed(ATTEMPT, GUID, 22, ""), NOW)],
    "message_send_error_without_guid": [(MessageFailed(ATTEMPT, "", 4711, ""), NOW)],
    "message_send_error_without_code": [(Unrecognised("message-send-error"), NOW)],
    "inbound": [(Inbound("+34600000017", "+34600000001", "STOP \U0001f6d1", GUID, "imessage"), CREATED)],
    "inbound_in_a_group": [(Unrecognised("new-message"), NOW)],
    "inbound_reaction": [(Unrecognised("new-message"), NOW)],
    "inbound_updated": [(Unrecognised("updated-message"), NOW)],
    "aliases_removed": [(UnitStatus(signed_in=False, detail="1 of its handles were removed"), NOW)],
    "aliases_removed_none": [(Unrecognised("imessage-aliases-removed"), NOW)],
    "hello_world": [(Heartbeat(queue=None, version=""), NOW)],
    "typing_indicator": [(Unrecognised("typing-indicator"), NOW)],
    "new_server": [(Unrecognised("new-server"), NOW)],
}


def payload(case: str) -> bytes:
    return (PAYLOADS / f"{case}.json").read_bytes()


def parse(body: bytes, *, now: dt.datetime = NOW) -> list[RelayEvent]:
    return parse_events(body, unit=UNIT, now=now)


def changed(case: str, **changes: Any) -> bytes:
    """A payload with its data changed."""
    document = json.loads(payload(case))
    return json.dumps({**document, "data": {**document["data"], **changes}}).encode()


@pytest.mark.parametrize("case", FACTS)
def test_reads_the_real_post(case: str) -> None:
    events = parse(payload(case))

    assert [(event.data, event.at) for event in events] == FACTS[case]
    assert {event.unit for event in events} == {UNIT}


def test_every_payload_file_is_read() -> None:
    assert {path.stem for path in PAYLOADS.iterdir()} == set(FACTS)


@pytest.mark.parametrize("case", ["new_message", "updated_message_read", "message_send_error", "inbound"])
def test_a_fact_has_one_id_however_often_it_is_posted(case: str) -> None:
    later = NOW + dt.timedelta(hours=1)

    first, again = parse(payload(case)), parse(payload(case), now=later)

    assert [event.id for event in first] == [event.id for event in again]
    assert len({event.id for event in first}) == len(first)


def test_a_message_that_is_matched_at_its_second_post_is_not_a_repetition() -> None:
    (unmatched,) = parse(payload("new_message_before_it_is_matched"))
    (matched,) = parse(payload("new_message"))

    assert unmatched.id != matched.id


def test_aliases_that_are_removed_on_another_day_are_another_event() -> None:
    (first,) = parse(payload("aliases_removed"))
    (second,) = parse(payload("aliases_removed"), now=NOW + dt.timedelta(days=1))

    assert first.id != second.id


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"nonsense", ""),
        (b"[]", ""),
        (b"\xff", ""),
        (b'{"type": "new-message", "data": ' + b"[" * DEPTH_LIMIT + b"]" * DEPTH_LIMIT + b"}", ""),
        (b" " * (BODY_LIMIT + 1), ""),
        (b"{}", "type"),
        (b'{"type": 7}', "type"),
        (b'{"type": "new-message"}', "data"),
        (b'{"type": "new-message", "data": {}}', "data.isFromMe"),
        (b'{"type": "message-send-error", "data": {"error": 4}}', "data.guid"),
        (b'{"type": "imessage-aliases-removed", "data": {"aliases": "all"}}', "data.aliases"),
        (changed("new_message", guid=17), "data.guid"),
        (changed("new_message", error="22"), "data.error"),
        (changed("new_message", dateCreated=1788264000), "data.dateCreated"),
        (changed("new_message", dateCreated=10**13 + 1), "data.dateCreated"),
        (changed("new_message", dateCreated=10**13), "data.dateCreated"),
        (changed("new_message", dateCreated=-1), "data.dateCreated"),
        (changed("inbound", handle=None), "data.handle"),
        (changed("inbound", handle={"address": ""}), "data.handle.address"),
        (changed("inbound", guid=None), "data.guid"),
        (changed("inbound", text="\x00"), "data.text"),
    ],
)
def test_says_which_field_is_wrong(body: bytes, field: str) -> None:
    with pytest.raises(RelayShapeError) as refusal:
        parse(body)

    assert refusal.value.field == field


def test_a_refusal_and_an_event_show_neither_text_nor_number() -> None:
    (inbound,) = parse(payload("inbound"))
    with pytest.raises(RelayShapeError) as refusal:
        parse(changed("inbound", text="code 483920\x00"))

    shown = f"{inbound!r} {refusal.value!r} {refusal.value.data}"
    assert not [secret for secret in ("STOP", "34600", "483920") if secret in shown]


scalars: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
handles = st.dictionaries(st.sampled_from(["address", "service"]), scalars)
chats = st.lists(
    st.fixed_dictionaries({"guid": st.sampled_from(["iMessage;-;+1", "any;-;x", "iMessage;+;c"]) | anything})
)


def near(plausible: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly what belongs there."""
    return st.one_of(plausible, plausible, plausible, anything)


messages = st.fixed_dictionaries(
    {"isFromMe": near(st.booleans()), "guid": near(st.just(GUID))},
    optional={
        "tempGuid": near(st.just(str(ATTEMPT))),
        "error": near(st.sampled_from([0, 4, 22, None])),
        "dateCreated": near(st.integers(0, 10**13)),
        "dateDelivered": near(st.integers(0, 10**13)),
        "dateRead": near(st.integers(0, 10**13)),
        "handle": near(handles),
        "chats": near(chats),
        "text": near(st.text(st.characters(), max_size=9)),
    },
)
posts = st.fixed_dictionaries(
    {
        "type": near(st.sampled_from(["new-message", "updated-message", "message-send-error", "x"])),
        "data": near(messages),
    }
)


@settings(deadline=None)
@given(posts | anything)
def test_any_json_gives_events_or_a_shape_error(document: Any) -> None:
    try:
        events = parse(json.dumps(document).encode())
    except RelayShapeError:
        return

    assert 1 <= len(events) <= 3
    assert all(EARLIEST <= event.at < LATEST for event in events)
