"""The one place where what became known of attempts is written, with all that follows from it.

The dispatcher's settling, receipts, the rescuer and the resolver all end in `apply_changes`: one
transaction that moves attempts forward, moves their messages on, tells the servers' health, and leaves the
events. Locks are taken in one order everywhere: messages, attempts, servers, each by ascending id.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from otp_service.core import clock
from otp_service.core.outcomes import ErrorClass
from otp_service.events import log as events
from otp_service.messages import queue
from otp_service.messages.client_events import message_event
from otp_service.messages.models import Attempt, Message
from otp_service.messages.rules import (
    ALIVE,
    CORRECTED_EVENT,
    STATUS_EVENTS,
    AttemptState,
    Lane,
    MessageStatus,
    moves_attempt,
)
from otp_service.routes import rows, rules
from otp_service.routes.rows import AttemptRow, MessageRow
from servers import selection
from servers.deliverability_limits import Delivery, record_deliveries, record_failed_send
from servers.history import lock_servers

READ_EVENT = "message.read"
_ENDED_ATTEMPT = frozenset({AttemptState.NOT_SUBMITTED, AttemptState.DELIVERED, AttemptState.FAILED})


#: Columns to write, and their SQL types.
Columns = Mapping[str, str]

_ATTEMPT_COLUMNS: Columns = {
    "state": "varchar",
    "settled_at": "timestamptz",
    "check_at": "timestamptz",
    "provider_message_id": "varchar",
    "service": "varchar",
    "error_class": "varchar",
    "error_code": "integer",
    "sent_at": "timestamptz",
    "finished_at": "timestamptz",
    "read_at": "timestamptz",
}
_MESSAGE_COLUMNS: Columns = {
    "status": "varchar",
    "run_after": "timestamptz",
    "attempts_charged": "smallint",
    "finished_at": "timestamptz",
    "final_reason": "varchar",
    "final_error_code": "integer",
    "final_route": "varchar",
    "final_server_id": "bigint",
}


@dataclass(frozen=True, slots=True)
class Change:
    """What became known about one attempt.

    `state` is applied only if it is further along than what is known; None says nothing about it. Ids and
    the service are learned whatever the state, so that the order of arrival does not matter.
    """

    attempt_id: int
    state: AttemptState | None = None
    error_class: ErrorClass | None = None
    error_code: int | None = None
    provider_message_id: str = ""
    service: str = ""
    retry_after: timedelta | None = None  # the server is to be left alone for so long; given for throttling only
    reason: str = ""  # for the server's history
    check_at: datetime | None = None  # when the other side is asked, if nothing is heard until then
    read: bool = False  # the recipient opened it
    overdue: bool = False  # the other side was asked, and has nothing to show for it


@dataclass(slots=True)
class _Work:
    """What one call of `apply_changes` has read, and has to write."""

    messages: dict[int, MessageRow]
    attempts: dict[int, AttemptRow]
    states: dict[int, dict[int, AttemptState]]  # by message: all its attempts
    changed: dict[int, AttemptRow] = field(default_factory=dict)
    touched: dict[int, MessageRow] = field(default_factory=dict)
    events: list[events.NewEvent] = field(default_factory=list)
    unready: list[int] = field(default_factory=list)  # messages whose planned retry is dropped
    for_servers: list[tuple[AttemptRow, Change]] = field(default_factory=list)  # in the order of arrival


def apply_changes(
    changes: Sequence[Change], *, now: datetime, rng: random.Random = clock.rng, then_servers: Collection[int] = ()
) -> int:
    """Write what became known; returns how many attempts changed. Safe to repeat: a repetition changes nothing.

    `then_servers` are those that the caller changes afterwards in the same transaction: they are locked here,
    in one order with the servers that these changes reach.
    """
    if not changes:
        return 0
    with transaction.atomic(savepoint=False):
        work = _read([change.attempt_id for change in changes])
        for change in changes:
            attempt = work.attempts.get(change.attempt_id)
            if attempt is not None:
                _apply(work, attempt, change, now)
        _write(work)
        _tell_servers(work, then_servers, now, rng)
    return len(work.changed)


def _read(attempt_ids: Iterable[int]) -> _Work:
    ids = set(attempt_ids)
    messages, attempts = rows.lock(ids)
    states: dict[int, dict[int, AttemptState]] = defaultdict(dict)
    for attempt in attempts:
        states[attempt.message_id][attempt.id] = AttemptState(attempt.state)
    return _Work(messages, {attempt.id: attempt for attempt in attempts if attempt.id in ids}, states)


def _apply(work: _Work, attempt: AttemptRow, change: Change, now: datetime) -> None:
    _learn(work, attempt, change, now)
    if change.state is None or not moves_attempt(AttemptState(attempt.state), change.state):
        if change.overdue:
            _mark_overdue(work, attempt, change)
        return  # an older report, or a repetition: the newer fact stands
    _move_attempt(work, attempt, change, change.state, now)
    message = work.messages[attempt.message_id]
    others = (state for other, state in work.states[message.id].items() if other != attempt.id)
    step = rules.step(
        _view(message),
        change.state,
        error_class=change.error_class,
        others_alive=any(state in ALIVE for state in others),
        now=now,
    )
    _move_message(work, message, attempt, step, now)


def _learn(work: _Work, attempt: AttemptRow, change: Change, now: datetime) -> None:
    """What is true whatever the state, and not known yet."""
    before = (attempt.provider_message_id, attempt.service, attempt.read_at)
    attempt.provider_message_id = attempt.provider_message_id or change.provider_message_id
    attempt.service = attempt.service or change.service
    if change.read and attempt.read_at is None:
        attempt.read_at = now
        work.events.append(_event(work.messages[attempt.message_id], READ_EVENT, now))
    if (attempt.provider_message_id, attempt.service, attempt.read_at) != before:
        work.changed[attempt.id] = attempt


def _mark_overdue(work: _Work, attempt: AttemptRow, change: Change) -> None:
    """Accepted, and neither sent nor given an id in time: it stays as it is, and its server is told once."""
    if attempt.state != AttemptState.ACCEPTED or attempt.provider_message_id or attempt.error_class:
        return
    attempt.error_class = change.error_class.value if change.error_class else ""
    attempt.error_code = change.error_code
    work.changed[attempt.id] = attempt
    work.for_servers.append((attempt, change))


def _move_attempt(work: _Work, attempt: AttemptRow, change: Change, state: AttemptState, now: datetime) -> None:
    told_overdue = attempt.state == AttemptState.ACCEPTED and attempt.error_class != ""
    attempt.state = state.value
    attempt.settled_at = attempt.settled_at or now
    attempt.check_at = change.check_at
    attempt.service = change.service or attempt.service
    # An error belongs to its state: one that was overtaken by a delivery is no attribute of the attempt.
    attempt.error_class = change.error_class.value if change.error_class else ""
    attempt.error_code = change.error_code
    if state in {AttemptState.SENT, AttemptState.DELIVERED} and attempt.sent_at is None:
        attempt.sent_at = now
    attempt.finished_at = now if state in _ENDED_ATTEMPT else None
    work.states[attempt.message_id][attempt.id] = state
    work.changed[attempt.id] = attempt
    if state is AttemptState.DELIVERED or (state in _ENDED_ATTEMPT and not told_overdue):
        work.for_servers.append((attempt, change))


def _view(message: MessageRow) -> rules.MessageView:
    return rules.MessageView(
        status=MessageStatus(message.status),
        expires_at=message.expires_at,
        attempts_made=message.attempts_made,
        attempts_charged=message.attempts_charged,
        max_attempts=message.max_attempts,
    )


def _move_message(work: _Work, message: MessageRow, attempt: AttemptRow, step: rules.Step, now: datetime) -> None:
    match step:
        case rules.Keep():
            return
        case rules.Submit():
            if message.status != MessageStatus.SENDING:
                work.unready.append(message.id)
            message.status, message.run_after = MessageStatus.SUBMITTED.value, None
            event = STATUS_EVENTS[MessageStatus.SUBMITTED]
        case rules.Deliver(corrects):
            if message.status in {MessageStatus.QUEUED, MessageStatus.WAITING}:
                work.unready.append(message.id)
            _end(message, attempt, MessageStatus.DELIVERED, "", now)
            event = CORRECTED_EVENT if corrects else STATUS_EVENTS[MessageStatus.DELIVERED]
        case rules.Finish(status, reason):
            _end(message, attempt, status, reason, now)
            event = STATUS_EVENTS[status]
        case rules.Retry(run_after, charged):
            _plan_retry(message, run_after, now)
            if not charged and message.attempts_charged:  # 0: it was refused uncharged, left after all, and failed
                message.attempts_charged -= 1
            event = ""
    work.touched[message.id] = message
    if event:
        work.events.append(_event(message, event, now))


def _end(message: MessageRow, attempt: AttemptRow, status: MessageStatus, reason: str, now: datetime) -> None:
    message.status = status.value
    message.run_after = None
    message.finished_at = now
    message.final_reason = str(reason)
    message.final_error_code = attempt.error_code if reason else None
    message.final_route = attempt.route
    message.final_server_id = attempt.server_id


def _plan_retry(message: MessageRow, run_after: datetime, now: datetime) -> None:
    if run_after > now:
        message.status, message.run_after = MessageStatus.WAITING.value, run_after
    else:
        message.status, message.run_after = MessageStatus.QUEUED.value, None


def _event(message: MessageRow, event: str, now: datetime) -> events.NewEvent:
    return message_event(
        event,
        at=now,
        message_uuid=message.uuid,
        client_id=message.client_id,
        lane=message.lane,
        reference=message.reference,
        status=message.status,
        reason=message.final_reason,
        error_code=message.final_error_code,
    )


def _write(work: _Work) -> None:
    touched = [work.touched[key] for key in sorted(work.touched)]
    _write_attempts([work.changed[key] for key in sorted(work.changed)])
    _write_messages(touched)
    queue.remove(work.unready)
    # By where each message stands in the end: one that failed and was delivered in the same batch is not queued.
    again = [message for message in touched if message.status == MessageStatus.QUEUED]
    queue.add([queue.ReadyRow(message.id, message.flow_id, message.expires_at) for message in again])
    if any(message.lane == Lane.OTP for message in again):
        queue.wake()
    events.record_many(work.events)


def _write_attempts(attempts: Sequence[AttemptRow]) -> None:
    update_rows(Attempt._meta.db_table, _ATTEMPT_COLUMNS, [_values(attempt, _ATTEMPT_COLUMNS) for attempt in attempts])


def _write_messages(messages: Sequence[MessageRow]) -> None:
    update_rows(Message._meta.db_table, _MESSAGE_COLUMNS, [_values(message, _MESSAGE_COLUMNS) for message in messages])


def _values(row: AttemptRow | MessageRow, columns: Columns) -> dict[str, Any]:
    return {"id": row.id, **{column: getattr(row, column) for column in columns}}


def update_rows(table: str, columns: Columns, rows: Sequence[Mapping[str, Any]]) -> None:
    """Set each row's own values of these columns in one statement; `rows` have an `id` each.

    As JSON, which is several times cheaper to write down than a list for each column.
    """
    if not rows:
        return
    kinds = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    sets = ", ".join(f"{name} = new.{name}" for name in columns)
    statement = (
        f"UPDATE {table} AS old SET {sets} FROM jsonb_to_recordset(%s::jsonb) AS new (id bigint, {kinds}) "  # noqa: S608 - names from the code
        "WHERE old.id = new.id"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [json.dumps(rows, default=datetime.isoformat)])


def _tell_servers(work: _Work, then_servers: Collection[int], now: datetime, rng: random.Random) -> None:
    """Health consequences, by ascending server id: the last locks that this transaction takes."""
    news = [
        (attempt.server_id, attempt, change)
        for attempt, change in work.for_servers
        if attempt.server_id is not None and _concerns_server(change)
    ]
    # Where a server has other news too, what reaches it stays in the order of arrival: one by one.
    mixed = {server_id for server_id, _, change in news if not _is_delivery(change)}
    deliveries = [_delivery(work, server_id, attempt) for server_id, attempt, _ in news if server_id not in mixed]
    if then_servers or (mixed and deliveries):
        lock_servers({*then_servers, *(server_id for server_id, _, _ in news)})
    if deliveries:
        record_deliveries(deliveries, now=now, rng=rng)
    for server_id, attempt, change in sorted((row for row in news if row[0] in mixed), key=itemgetter(0)):
        if _is_delivery(change):
            record_deliveries([_delivery(work, server_id, attempt)], now=now, rng=rng)
        elif change.retry_after is not None:
            selection.rest(server_id, until=now + change.retry_after)
        else:
            _tell_of_failure(server_id, work.messages[attempt.message_id], attempt, change, now=now, rng=rng)


def _tell_of_failure(
    server_id: int, message: MessageRow, attempt: AttemptRow, change: Change, *, now: datetime, rng: random.Random
) -> None:
    # A number that fails everywhere says nothing about the server that tried last.
    count = not (attempt.is_last and message.attempts_charged > 1)
    record_failed_send(server_id, now=now, reason=change.reason, error_code=change.error_code, count=count, rng=rng)


def _is_delivery(change: Change) -> bool:
    return change.state is AttemptState.DELIVERED and change.retry_after is None


def _delivery(work: _Work, server_id: int, attempt: AttemptRow) -> Delivery:
    return Delivery(server_id, bytes(work.messages[attempt.message_id].to_hash))


def _concerns_server(change: Change) -> bool:
    if change.state is AttemptState.DELIVERED or change.retry_after is not None:
        return True
    only_sender_faults = settings.COUNT_ONLY_SENDER_FAULTS
    return rules.counts_against_server(change.state, change.error_class, only_sender_faults=only_sender_faults)
