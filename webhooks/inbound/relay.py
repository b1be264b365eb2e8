"""What relay hosts post: kept raw, each event once, and applied in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from otp_service.core.outcomes import ReportedState
from otp_service.routes.receipts import Receipt, apply_host_receipts
from servers.hosts import mark_seen
from servers.models import Host
from servers.relay.error_codes import DEFAULT_CODE, error_class
from servers.relay.events import Delivered, MessageFailed, MessageSent, Read, RelayEvent
from webhooks.inbound import fleet
from webhooks.inbound.models import RawCall
from webhooks.inbound.models import RelayEvent as StoredEvent


@dataclass(frozen=True, slots=True)
class Taken:
    """What the host is told."""

    accepted: int
    duplicates: int


_INSERT_NEW = f"""
INSERT INTO {StoredEvent._meta.db_table} (host_id, event_id, type, received_at)
SELECT %s, e.id, e.type, %s FROM unnest(%s::uuid[], %s::varchar[]) AS e (id, type)
ON CONFLICT DO NOTHING RETURNING event_id
"""  # noqa: S608 - the table's own name


def take(host: Host, body: bytes, posted: Sequence[RelayEvent], *, now: datetime) -> Taken:
    """Store and apply a call; all of it or nothing. An event that came before counts as a duplicate.

    A concurrent repetition waits at the unique index, and then finds every event stored.
    """
    by_id: dict[UUID, RelayEvent] = {}
    for event in posted:
        by_id.setdefault(event.id, event)
    ordered = sorted(by_id)  # one order for all calls: two that share events cannot block each other
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(_INSERT_NEW, [host.id, now, ordered, [by_id[key].type for key in ordered]])
            new = {event_id for (event_id,) in cursor.fetchall()}
        if new:
            RawCall.objects.create(host=host, received_at=now, body=body.decode())
        _apply(host.id, [event for key, event in by_id.items() if key in new], now)
    mark_seen(host.id, now=now)
    return Taken(accepted=len(new), duplicates=len(posted) - len(new))


def _apply(host_id: int, new: Sequence[RelayEvent], now: datetime) -> None:
    """Attempts and messages first, servers after them by ascending id: the order of locks everywhere."""
    news = fleet.read(host_id, new)
    receipts = [receipt for event in news.others if (receipt := _receipt(event)) is not None]
    apply_host_receipts(host_id, receipts, now=now, then_servers=news.servers)
    fleet.apply(news, now=now)


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
