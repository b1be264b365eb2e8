"""Ends in bulk, of lifetimes and of cancelled flows: nothing expires one message at a time in a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce

from otp_service.events import log as events
from otp_service.messages import queue
from otp_service.messages.client_events import message_event
from otp_service.messages.models import Attempt, Flow, Message, Ready
from otp_service.messages.rules import ALIVE, STATUS_EVENTS, MessageStatus, OnLateFirst, Reason

_NO_WAITS: Mapping[str, timedelta] = MappingProxyType({})

_END = f"""
UPDATE {Message._meta.db_table}
SET status = %(status)s, run_after = NULL, finished_at = %(now)s, final_reason = %(reason)s
WHERE id = ANY(%(ids)s)
RETURNING uuid, client_id, lane, reference, NULL
"""  # noqa: S608 - the table's own name

# As the end by an attempt has it: where the last one went, and what came of it.
_FAIL = f"""
UPDATE {Message._meta.db_table} AS m
SET status = %(status)s, run_after = NULL, finished_at = %(now)s, final_reason = %(reason)s,
  (final_route, final_error_code, final_server_id) = (
    SELECT COALESCE(max(a.route), ''), max(a.error_code), max(a.server_id) FROM (
      SELECT route, error_code, server_id FROM {Attempt._meta.db_table}
      WHERE message_id = m.id ORDER BY number DESC LIMIT 1
    ) a
  )
WHERE id = ANY(%(ids)s)
RETURNING uuid, client_id, lane, reference, final_error_code
"""  # noqa: S608 - the tables' own names

# The cost follows the number of flows that have something in the queue, not of flows that were cancelled long ago.
_CANCELLED = f"""
{queue.FLOWS_PRESENT}
SELECT f.id FROM present p JOIN {Flow._meta.db_table} f ON f.id = p.flow_id
WHERE f.state = '{Flow.State.CANCELLED.value}' ORDER BY f.id
"""  # noqa: S608 - the tables' own names

_QUEUED_IN = f"""
WITH first AS MATERIALIZED (
  SELECT message_id FROM {Ready._meta.db_table} WHERE flow_id = %(flow)s
  ORDER BY due_at, message_id LIMIT %(most)s FOR UPDATE SKIP LOCKED
)
SELECT id, status = '{MessageStatus.QUEUED.value}' FROM {Message._meta.db_table}
WHERE id = ANY(ARRAY(SELECT message_id FROM first))
  AND status IN ('{MessageStatus.QUEUED.value}', '{MessageStatus.SUBMITTED.value}')
ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""  # noqa: S608 - the tables' own names

_STAGE = f"""
WITH due AS MATERIALIZED (
  SELECT id FROM {Message._meta.db_table} WHERE run_after <= %(now)s
  ORDER BY run_after LIMIT %(most)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {Message._meta.db_table} SET status = %(queued)s, run_after = NULL
WHERE id = ANY(ARRAY(SELECT id FROM due))
RETURNING id, flow_id, CASE WHEN attempts_made = 0 THEN LEAST(first_attempt_by, expires_at) ELSE expires_at END
"""  # noqa: S608 - the table's own name


def expire(message_ids: Sequence[int], reason: Reason, *, now: datetime) -> None:
    """End messages whose rows the caller has locked; they leave the queue, and their clients are told."""
    _end(message_ids, MessageStatus.EXPIRED, reason, now)


def fail(message_ids: Sequence[int], reason: Reason, *, now: datetime) -> None:
    """The same for messages that nothing can carry any more."""
    _end(message_ids, MessageStatus.FAILED, reason, now)


def _end(message_ids: Sequence[int], status: MessageStatus, reason: Reason, now: datetime) -> None:
    if not message_ids:
        return
    queue.remove(message_ids)
    with connection.cursor() as cursor:
        statement = _FAIL if status is MessageStatus.FAILED else _END
        ended: dict[str, Any] = {"status": status.value, "reason": reason.value, "now": now}
        cursor.execute(statement, {"ids": list(message_ids), **ended})
        rows = cursor.fetchall()
    events.record_many(
        [
            message_event(
                STATUS_EVENTS[status],
                at=now,
                message_uuid=uuid,
                client_id=client_id,
                lane=lane,
                reference=reference,
                status=status.value,
                reason=reason.value,
                error_code=error_code,
            )
            for uuid, client_id, lane, reference, error_code in rows
        ]
    )


def expire_due(*, now: datetime, batch: int = 500, receipt_waits: Mapping[str, timedelta] = _NO_WAITS) -> int:
    """End a batch of messages whose time is over; returns how many. Safe beside itself and the claim.

    A message that a route has waits RECEIPT_GRACE longer for a receipt; `receipt_waits` says of routes, by name, for
    how long their receipts are waited for after a submission, where that may be later. One that is being handed over
    is left to its settling.
    """
    unsent = Q(status__in=[MessageStatus.QUEUED.value, MessageStatus.WAITING.value])
    late_first = Q(on_late_first=OnLateFirst.EXPIRE.value, first_attempt_by__lte=now, attempts_made=0)
    unconfirmed = Q(status=MessageStatus.SUBMITTED.value, expires_at__lte=now - settings.RECEIPT_GRACE)
    if slow := {name: wait for name, wait in receipt_waits.items() if wait > settings.RECEIPT_GRACE}:
        unconfirmed &= Q(~Exists(_may_report(slow, now)))
    return (
        _expire_where(unsent & Q(expires_at__lte=now), "expires_at", Reason.EXPIRED_UNSENT, now, batch)
        + _expire_where(unsent & late_first, "first_attempt_by", Reason.LATE_FIRST_ATTEMPT, now, batch)
        + _expire_where(unconfirmed, "expires_at", Reason.EXPIRED_UNCONFIRMED, now, batch)
    )


def _may_report(waits: Mapping[str, timedelta], now: datetime) -> QuerySet[Attempt]:
    """Attempts of the outer message that are alive, and whose receipts are not overdue."""
    in_time = Q()
    for route, wait in waits.items():
        in_time |= Q(route=route, since__gt=now - wait)
    alive = [state.value for state in ALIVE]
    attempts = Attempt.objects.filter(message=OuterRef("pk"), state__in=alive)
    return attempts.annotate(since=Coalesce("settled_at", "claimed_at")).filter(in_time)


def _expire_where(over: Q, oldest_first: str, reason: Reason, now: datetime, batch: int) -> int:
    with transaction.atomic():
        due = (
            Message.objects.filter(over, finished_at__isnull=True)
            .order_by(oldest_first)
            .select_for_update(no_key=True, skip_locked=True)
            .values_list("id", flat=True)[:batch]
        )
        ids = sorted(due)
        expire(ids, reason, now=now)
    return len(ids)


def cancel_due(*, now: datetime, batch: int = 1000) -> int:
    """End a batch of queued messages of cancelled flows; returns how many it took. Safe beside itself and the claim.

    What waits for its time comes into the queue then, and ends here; what has been handed over is left to its end.
    """
    ended = 0
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_CANCELLED)
        for (flow_id,) in cursor.fetchall():
            cursor.execute(_QUEUED_IN, {"flow": flow_id, "most": batch - ended})
            found = cursor.fetchall()
            # Of what has been handed over, only the extra copy is dropped that has not.
            queue.remove([message_id for message_id, is_queued in found if not is_queued])
            _end([each for each, is_queued in found if is_queued], MessageStatus.CANCELLED, Reason.CANCELLED, now)
            ended += len(found)
            if ended >= batch:
                break
    return ended


def stage_due(*, now: datetime, batch: int = 1000) -> int:
    """Queue a batch of waiting messages whose time has come; returns how many. Safe beside itself."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_STAGE, {"now": now, "most": batch, "queued": MessageStatus.QUEUED.value})
        rows = [queue.ReadyRow(*row) for row in cursor.fetchall()]
        queue.add(rows)
    return len(rows)
