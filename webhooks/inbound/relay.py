"""What relay hosts post: kept raw, each event once, and applied in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from otp_service.core.outcomes import Receipt, ReportedState
from otp_service.messages import recipients
from otp_service.routes.receipts import Named, apply_host_receipts, attempts_of_host
from otp_service.web.fields import encrypted_field
from servers.hosts import SEEN_EVERY, mark_seen
from servers.models import Host
from servers.relay.error_codes import DEFAULT_CODE, error_class
from servers.relay.events import Delivered, Inbound, MessageFailed, MessageSent, Read, RelayEvent
from webhooks.inbound import fleet
from webhooks.inbound.models import RawCall
from webhooks.inbound.models import RelayEvent as StoredEvent


@dataclass(frozen=True, slots=True)
class Taken:
    """What the host is told."""

    accepted: int
    duplicates: int


_KEEP = f"""
WITH new AS (
  INSERT INTO {StoredEvent._meta.db_table} (host_id, event_id, type, received_at)
  SELECT %(host)s, e.id, e.type, %(now)s FROM unnest(%(ids)s::uuid[], %(types)s::varchar[]) AS e (id, type)
  ON CONFLICT DO NOTHING RETURNING event_id
), raw AS (
  INSERT INTO {RawCall._meta.db_table} (host_id, received_at, body)
  SELECT %(host)s, %(now)s, %(body)s WHERE EXISTS (SELECT FROM new)
)
SELECT event_id FROM new
"""  # noqa: S608 - the tables' own names


def take(host: Host, body: bytes, posted: Sequence[RelayEvent], *, now: datetime) -> Taken:
    """Store and apply a call; all of it or nothing. An event that came before counts as a duplicate.

    A concurrent repetition waits at the unique index, and then finds every event stored.
    """
    by_id: dict[UUID, RelayEvent] = {}
    for event in posted:
        by_id.setdefault(event.id, event)
    ordered = sorted(by_id)  # one order for all calls: two that share events cannot block each other
    with transaction.atomic():
        new = keep(host, body, [by_id[key] for key in ordered], now=now)
        _apply(host.id, [event for key, event in by_id.items() if key in new], now)
    if host.last_seen_at is None or host.last_seen_at < now - SEEN_EVERY:
        mark_seen(host.id, now=now)
    return Taken(accepted=len(new), duplicates=len(posted) - len(new))


def keep(host: Host, body: bytes, events: Sequence[RelayEvent], *, now: datetime) -> set[UUID]:
    """Store a call of which any event is new; the ids of those that are. `events` have ascending ids."""
    parameters: dict[str, Any] = {
        "host": host.id,
        "now": now,
        "ids": [event.id for event in events],
        "types": [event.type for event in events],
        "body": encrypted_field(RawCall, "body").seal(body.decode()),
    }
    with connection.cursor() as cursor:
        cursor.execute(_KEEP, parameters)
        return {event_id for (event_id,) in cursor.fetchall()}


def _apply(host_id: int, new: Sequence[RelayEvent], now: datetime) -> None:
    """Attempts and messages first, servers after them by ascending id: the order of locks everywhere."""
    named = _named(host_id, new)
    news = fleet.read(host_id, new, named)
    receipts = [receipt for event in news.others if (receipt := _receipt(event)) is not None]
    apply_host_receipts(host_id, receipts, now=now, then_servers=news.servers, named=named)
    fleet.apply(news, now=now)
    heed_answers(new, now=now)


def heed_answers(new: Sequence[RelayEvent], *, now: datetime) -> None:
    """STOP and START among what people wrote. The last locks of the caller's transaction."""
    answers = [(event.data.sender, event.data.text) for event in new if isinstance(event.data, Inbound)]
    recipients.note_answers(answers, now=now)


def _named(host_id: int, events: Sequence[RelayEvent]) -> Named:
    """The clients' attempts that a call is about."""
    receipts = [receipt for event in events if (receipt := _receipt(event)) is not None]
    uuids = {receipt.attempt_uuid for receipt in receipts if receipt.attempt_uuid is not None}
    guids = {receipt.provider_message_id for receipt in receipts if receipt.provider_message_id}
    return attempts_of_host(host_id, uuids, guids) if receipts else Named({}, {})


def _receipt(event: RelayEvent) -> Receipt | None:
    match event.data:
        case MessageSent(attempt_id, guid, True, service, _):
            return Receipt(ReportedState.SENT, attempt_id, guid, service=service)
        case MessageSent(attempt_id, guid, False, service, code):
            return _failed(Receipt(ReportedState.FAILED, attempt_id, guid, service, reason="message_sent"), code)
        case MessageFailed(attempt_id, guid, code, _):
            return _failed(Receipt(ReportedState.FAILED, attempt_id, guid, reason="message_failed"), code)
        case Delivered(attempt_id, guid, service):
            return Receipt(ReportedState.DELIVERED, attempt_id, guid, service=service)
        case Read(attempt_id, guid):
            return Receipt(None, attempt_id, guid, read=True)
        case _:
            return None


def _failed(receipt: Receipt, code: int | None) -> Receipt:
    known = DEFAULT_CODE if code is None else code
    return Receipt(
        state=receipt.state,
        attempt_uuid=receipt.attempt_uuid,
        provider_message_id=receipt.provider_message_id,
        service=receipt.service,
        error_class=error_class(known),
        error_code=known,
        reason=receipt.reason,
    )
