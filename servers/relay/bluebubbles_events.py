"""What BlueBubbles servers post to us, as the events of our own protocol: bytes in, events out, or the first fault.

Pure. Nothing of it is signed or repeated: a hint that something changed, never more than that.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from otp_service.core import strict_json
from servers.relay.events import (
    BODY_LIMIT,
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
)
from servers.relay.fields import EARLIEST, GUID_LIMIT, LATEST, Fields, RelayShapeError, is_storable

MILLISECONDS_LIMIT = 10**13  # since 1970: in the 23rd century
DEPTH_LIMIT = 64  # of nested objects and lists: a message may carry what an app attached to it

_TYPE_LIMIT = 64
_SERVICE_LIMIT = 32
_HANDLE_LIMIT = 254  # an iMessage handle may be an e-mail address
_NUMERAL_LIMIT = 20
_ONE_TO_ONE = ";-;"  # in the guid of a chat: between the service and the other's handle

#: BlueBubbles gives its posts no ids. A fact about a message has one id, however often it is posted.
_IDS = uuid.UUID("0f3b6a52-7a0f-4f3f-9a37-6c0c8a1e9d41")


@dataclass(frozen=True, slots=True)
class _Post:
    """What every event of one post needs."""

    unit: int
    now: datetime
    type: str


def parse_events(body: bytes, *, unit: int, now: datetime) -> list[RelayEvent]:
    """The events of one post to the host whose one account is `unit`; `now` is when it came.

    Several when one post tells several facts, one Unrecognised when it tells none that matter here.
    Raises RelayShapeError for the first fault, whatever the bytes are.
    """
    document = _document(body)
    if not isinstance(document, dict):
        raise RelayShapeError(None, "", "must be an object")
    fields = Fields(0, document)
    post = _Post(unit, now, fields.text("type", limit=_TYPE_LIMIT, required=True))
    match post.type:
        case "new-message" | "updated-message":
            data = fields.inner("data", required=True)
            return _outgoing(post, data) if data.boolean("isFromMe") else _incoming(post, data)
        case "message-send-error":
            return _outgoing(post, fields.inner("data", required=True))
        case "imessage-aliases-removed" | "imessage-alias-removed":
            return _signed_out(post, fields.inner("data", required=True))
        case "hello-world":
            return [_event(post, "heartbeat", Heartbeat(queue=None, version=""), at=now, key=now.isoformat())]
        case _:
            return _nothing(post)


def service_of(message: Mapping[str, object]) -> str:
    """`imessage`, `sms`, or another word; "" where a message does not say."""
    handle = message.get("handle")
    named = handle.get("service") if isinstance(handle, dict) else None
    prefix = _chat_guid(message).partition(_ONE_TO_ONE)[0].lower()
    service = named.lower() if isinstance(named, str) and named else prefix
    return "" if service == "any" or len(service) > _SERVICE_LIMIT or not is_storable(service) else service


def chat_address(message: Mapping[str, object]) -> str:
    """The handle at the other end of a message's chat; "" for a group, or where it does not say."""
    return _chat_guid(message).partition(_ONE_TO_ONE)[2]


def _chat_guid(message: Mapping[str, object]) -> str:
    chats = message.get("chats")
    chat = chats[0] if isinstance(chats, list) and chats else None
    guid = chat.get("guid") if isinstance(chat, dict) else None
    return guid if isinstance(guid, str) else ""


def _document(body: bytes) -> object:
    if len(body) > BODY_LIMIT:
        raise RelayShapeError(None, "", f"must have at most {BODY_LIMIT} bytes")
    try:
        return strict_json.loads(body, depth=DEPTH_LIMIT, numeral=_NUMERAL_LIMIT)
    except strict_json.StrictJSONError as error:
        raise RelayShapeError(None, error.name, str(error)) from None


def _outgoing(post: _Post, data: Fields) -> list[RelayEvent]:
    """A message of ours: failed, or sent, and perhaps delivered and read by now.

    An error without a code proves nothing: the host posts one as well when it only gave up waiting.
    """
    attempt_id, guid = _reference(data)
    key = f"{guid}/{attempt_id}"
    code = data.integer("error")
    if code:
        return [_event(post, "message_failed", MessageFailed(attempt_id, guid, code, ""), at=post.now, key=key)]
    if post.type == "message-send-error":
        return _nothing(post)
    service = service_of(data.values)
    created, delivered, read = (_instant(data, name) for name in ("dateCreated", "dateDelivered", "dateRead"))
    sent = MessageSent(attempt_id, guid, success=True, service=service, error_code=None)
    events = [_event(post, "message_sent", sent, at=created or post.now, key=key)]
    if delivered or read or data.values.get("isDelivered") is True:
        on_phone = Delivered(attempt_id, guid, service)
        events.append(_event(post, "delivered", on_phone, at=delivered or read or post.now, key=key))
    if read:
        events.append(_event(post, "read", Read(attempt_id, guid), at=read, key=key))
    return events


def _incoming(post: _Post, data: Fields) -> list[RelayEvent]:
    """What a person wrote to us; not what changed about it later, what happens in groups, or reactions."""
    is_plain = data.values.get("associatedMessageGuid") is None and not data.integer("itemType")
    if post.type != "new-message" or not is_plain or not chat_address(data.values):
        return _nothing(post)
    guid = data.text("guid", limit=GUID_LIMIT, required=True)
    inbound = Inbound(
        sender=data.inner("handle", required=True).text("address", limit=_HANDLE_LIMIT, required=True),
        recipient=_addressed(data),
        text=data.text("text", limit=TEXT_LIMIT),
        guid=guid,
        service=service_of(data.values),
    )
    return [_event(post, "inbound", inbound, at=_instant(data, "dateCreated") or post.now, key=guid)]


def _addressed(data: Fields) -> str:
    """Which of our handles it was written to, as far as the chat says."""
    chats = data.values["chats"]
    assert isinstance(chats, list)  # it has an address
    return Fields(data.index, chats[0], "data.chats.0.").text("lastAddressedHandle", limit=_HANDLE_LIMIT)


def _signed_out(post: _Post, data: Fields) -> list[RelayEvent]:
    """Handles that the service took away from the account: it cannot be relied on until somebody looks."""
    aliases = data.values.get("aliases")
    if not isinstance(aliases, list):
        raise data.fault("aliases", "must be a list")
    if not aliases:
        return _nothing(post)
    status = UnitStatus(signed_in=False, detail=f"{len(aliases)} of its handles were removed")
    return [_event(post, "unit_status", status, at=post.now, key=post.now.isoformat())]


def _nothing(post: _Post) -> list[RelayEvent]:
    return [_event(post, post.type, Unrecognised(post.type), at=post.now, key=post.now.isoformat())]


def _event(post: _Post, kind: str, data: EventData, *, at: datetime, key: str) -> RelayEvent:
    return RelayEvent(id=uuid.uuid5(_IDS, f"{post.unit}/{kind}/{key}"), type=kind, at=at, unit=post.unit, data=data)


def _reference(data: Fields) -> tuple[uuid.UUID | None, str]:
    """Our id, theirs, or both. A `tempGuid` that is no UUID is that of another program on the same account."""
    guid = data.text("guid", limit=GUID_LIMIT)
    try:
        attempt_id = data.optional_uuid("tempGuid")
    except RelayShapeError:
        attempt_id = None
    if attempt_id is None and not guid:
        raise data.fault("guid", "guid or tempGuid must be given")
    return attempt_id, guid


def _instant(data: Fields, name: str) -> datetime | None:
    """A time in milliseconds since 1970, None if absent, null or 0."""
    milliseconds = data.integer(name, low=0, high=MILLISECONDS_LIMIT)
    if not milliseconds:
        return None
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    if not EARLIEST <= moment < LATEST:
        raise data.fault(name, f"must be milliseconds between {EARLIEST.year} and {LATEST.year}")
    return moment
