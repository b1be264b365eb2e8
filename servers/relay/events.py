"""What relay hosts post to us: bytes in, typed events out, or the first fault with its place.

Pure: the signature is checked before, and what an event does is decided after.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from otp_service.core import strict_json
from servers.relay.fields import GUID_LIMIT, INT_MAX, Fields, RelayShapeError

BODY_LIMIT = 1024 * 1024  # bytes; the view answers 413 above it
EVENTS_LIMIT = 100  # in one call
DEPTH_LIMIT = 16  # of nested objects and lists; our own need three
TEXT_LIMIT = 64 * 1024  # characters of an inbound text

_TYPE_LIMIT = 64
_SERVICE_LIMIT = 32
_HANDLE_LIMIT = 254  # an iMessage handle may be an e-mail address
_DETAIL_LIMIT = 1000
_VERSION_LIMIT = 64
_NUMERAL_LIMIT = 20  # digits; the longest whole number that can mean something has 10


@dataclass(frozen=True, slots=True)
class MessageSent:
    """The host handed the message on (`success`), or could not."""

    attempt_id: uuid.UUID | None
    guid: str
    success: bool
    service: str
    error_code: int | None


@dataclass(frozen=True, slots=True)
class MessageFailed:
    """The message will not be delivered."""

    attempt_id: uuid.UUID | None
    guid: str
    error_code: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Delivered:
    """The message is on the phone."""

    attempt_id: uuid.UUID | None
    guid: str
    service: str


@dataclass(frozen=True, slots=True)
class Read:
    """The message was opened."""

    attempt_id: uuid.UUID | None
    guid: str


@dataclass(frozen=True, slots=True)
class Inbound:
    """Somebody wrote to a unit. Its repr shows neither numbers nor text."""

    sender: str
    recipient: str
    text: str
    guid: str
    service: str

    def __repr__(self) -> str:
        return f"<Inbound {self.guid}>"


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """A unit signed in or out."""

    signed_in: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The host is alive."""

    queue: int | None
    version: str


@dataclass(frozen=True, slots=True)
class Unrecognised:
    """An event of a type that we do not know yet: legal, kept, and without effect."""

    type: str


EventData = MessageSent | MessageFailed | Delivered | Read | Inbound | UnitStatus | Heartbeat | Unrecognised


@dataclass(frozen=True, slots=True)
class RelayEvent:
    """One event. `unit` is None only where the type allows it (heartbeats and unknown types)."""

    id: uuid.UUID
    type: str
    at: datetime
    unit: int | None
    data: EventData


def parse_events(body: bytes) -> list[RelayEvent]:
    """The events of one webhook call: one object, or a list of 1 to 100.

    Raises RelayShapeError for the first fault, whatever the bytes are.
    """
    document = _document(body)
    events = document if isinstance(document, list) else [document]
    if not 1 <= len(events) <= EVENTS_LIMIT:
        raise RelayShapeError(None, "", f"must be one event or a list of 1 to {EVENTS_LIMIT}")
    return [_event(index, event) for index, event in enumerate(events)]


def _document(body: bytes) -> object:
    if len(body) > BODY_LIMIT:
        raise RelayShapeError(None, "", f"must have at most {BODY_LIMIT} bytes")
    try:
        return strict_json.loads(body, depth=DEPTH_LIMIT, numeral=_NUMERAL_LIMIT)
    except strict_json.StrictJSONError as error:
        raise RelayShapeError(None, error.name, str(error)) from None


def _event(index: int, value: object) -> RelayEvent:
    if not isinstance(value, dict):
        raise RelayShapeError(index, "", "must be an object")
    fields = Fields(index, value)
    kind = fields.text("type", limit=_TYPE_LIMIT, required=True)
    shape = _SHAPES.get(kind)
    return RelayEvent(
        id=fields.uuid("id"),
        type=kind,
        at=fields.instant("at"),
        unit=_unit(fields, required=shape is not None and shape.has_unit),
        data=Unrecognised(kind) if shape is None else shape.read(fields.inner("data", required=shape.has_unit)),
    )


def _unit(fields: Fields, *, required: bool) -> int | None:
    unit = fields.integer("unit", low=0)
    if unit is None and required:
        raise fields.fault("unit", "must be a whole number")
    return unit


def _message_sent(data: Fields) -> MessageSent:
    attempt_id, guid = _reference(data)
    return MessageSent(
        attempt_id=attempt_id,
        guid=guid,
        success=data.boolean("success"),
        service=_service(data),
        error_code=data.integer("error_code"),
    )


def _message_failed(data: Fields) -> MessageFailed:
    attempt_id, guid = _reference(data)
    return MessageFailed(
        attempt_id=attempt_id,
        guid=guid,
        error_code=data.integer("error_code"),
        detail=data.text("detail", limit=_DETAIL_LIMIT),
    )


def _delivered(data: Fields) -> Delivered:
    attempt_id, guid = _reference(data)
    return Delivered(attempt_id=attempt_id, guid=guid, service=_service(data))


def _read(data: Fields) -> Read:
    attempt_id, guid = _reference(data)
    return Read(attempt_id=attempt_id, guid=guid)


def _inbound(data: Fields) -> Inbound:
    return Inbound(
        sender=data.text("from", limit=_HANDLE_LIMIT, required=True),
        recipient=data.text("to", limit=_HANDLE_LIMIT, required=True),
        text=data.text("text", limit=TEXT_LIMIT),
        guid=data.text("guid", limit=GUID_LIMIT),
        service=_service(data),
    )


def _unit_status(data: Fields) -> UnitStatus:
    return UnitStatus(signed_in=data.boolean("signed_in"), detail=data.text("detail", limit=_DETAIL_LIMIT))


def _heartbeat(data: Fields) -> Heartbeat:
    return Heartbeat(
        queue=data.integer("queue", low=0, high=INT_MAX),
        version=data.text("version", limit=_VERSION_LIMIT),
    )


def _reference(data: Fields) -> tuple[uuid.UUID | None, str]:
    """Which message it is about: our id, theirs, or both."""
    attempt_id = data.optional_uuid("attempt_id")
    guid = data.text("guid", limit=GUID_LIMIT)
    if attempt_id is None and not guid:
        raise data.fault("attempt_id", "attempt_id or guid must be given")
    return attempt_id, guid


def _service(data: Fields) -> str:
    """`imessage`, `sms`, or what else a host may learn to send by: a new word must not stop its events."""
    return data.text("service", limit=_SERVICE_LIMIT).lower()


@dataclass(frozen=True, slots=True)
class _Shape:
    read: Callable[[Fields], EventData]
    has_unit: bool = True


_SHAPES: Mapping[str, _Shape] = {
    "message_sent": _Shape(_message_sent),
    "message_failed": _Shape(_message_failed),
    "delivered": _Shape(_delivered),
    "read": _Shape(_read),
    "inbound": _Shape(_inbound),
    "unit_status": _Shape(_unit_status),
    "heartbeat": _Shape(_heartbeat, has_unit=False),
}
