"""Whatever bytes a host posts, the parser gives events or says what is wrong: nothing else comes out."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from servers.relay.events import RelayEvent, parse_events
from servers.relay.fields import EARLIEST, GUID_LIMIT, INT_MAX, LATEST, RelayShapeError, is_storable

#: How long one example takes says how busy the machine is, nothing else.
patiently = settings(deadline=None)

TYPES = ["message_sent", "message_failed", "delivered", "read", "inbound", "unit_status", "heartbeat", "other"]

scalars: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20)
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
uuids = st.uuids().map(str)
instants = st.datetimes(timezones=st.timezones() | st.none()).map(lambda at: at.isoformat())


def near(plausible: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly what belongs there."""
    return st.one_of(plausible, plausible, plausible, anything)


data = st.fixed_dictionaries(
    {},
    optional={
        "attempt_id": near(uuids),
        "guid": near(st.text(st.characters(), max_size=GUID_LIMIT + 1)),
        "success": near(st.booleans()),
        "signed_in": near(st.booleans()),
        "service": near(st.sampled_from(["imessage", "sms", "SMS"])),
        "error_code": near(st.sampled_from([22, 120, 125, 130, 140, 4711, None])),
        "detail": near(st.text(st.characters(), max_size=20)),
        "from": near(st.text(st.characters(), max_size=20)),
        "to": near(st.text(st.characters(), max_size=20)),
        "text": near(st.text(st.characters(), max_size=40)),
        "queue": near(st.integers(-1, INT_MAX + 1)),
        "version": near(st.text(max_size=70)),
    },
)
events = st.fixed_dictionaries(
    {
        "id": near(uuids),
        "type": near(st.sampled_from(TYPES)),
        "at": near(instants),
        "unit": near(st.integers(-1, INT_MAX + 1)),
        "data": near(data),
    }
)
documents = events | st.lists(events, max_size=4) | anything


def parsed(body: bytes) -> list[RelayEvent] | None:
    try:
        return parse_events(body)
    except RelayShapeError:
        return None


@patiently
@given(st.binary(max_size=400))
@example(b"\xff\xfe[\x00]\x00")
@example(b"[" * 2000)
@example(b'[{"' + b"\\ud800" * 50 + b'":1}]')
def test_any_bytes_give_events_or_a_shape_error(body: bytes) -> None:
    result = parsed(body)

    assert result is None or 1 <= len(result) <= 100


@patiently
@given(documents)
def test_any_json_gives_events_or_a_shape_error(document: Any) -> None:
    result = parsed(json.dumps(document).encode())

    for event in result or []:
        assert isinstance(event, RelayEvent)
        assert EARLIEST <= event.at < LATEST
        assert event.unit is None or 0 <= event.unit <= INT_MAX
        assert is_storable(event.type)


@patiently
@given(documents, st.data())
def test_a_body_that_was_cut_or_hit_gives_events_or_a_shape_error(document: Any, draw: st.DataObject) -> None:
    body = bytearray(json.dumps(document, ensure_ascii=False).encode("utf-8", errors="surrogatepass"))
    at = draw.draw(st.integers(0, len(body)))
    body[at : at + draw.draw(st.integers(0, 3))] = draw.draw(st.binary(max_size=3))

    parsed(bytes(body))
