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
from typing import Any

from django.db import connection, transaction

from otp_service.core import clock
from otp_service.core.outcomes import ErrorClass
from otp_service.events import log as events
from otp_service.messages import queue, recipients
from otp_service.messages.client_events import message_event
from otp_service.messages.models import Attempt, Message
from otp_service.messages.rules import (
    CORRECTED_EVENT,
    STATUS_EVENTS,
    AttemptState,
    Lane,
    MessageStatus,
    OnUnknown,
    Reason,
    moves_attempt,
)
from otp_service.routes import route_health, rows, rules, server_news
from otp_service.routes.breakers import Reported
from otp_service.routes.changes import Change
from otp_service.routes.rows import AttemptRow, MessageRow

READ_EVENT = "message.read"
_RACE_PAUSE = timedelta(seconds=1)  # before it is looked again whether an extra copy may leave
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
    "copies_left": "smallint",
    "finished_at": "timestamptz",
    "final_reason": "varchar",
    "final_error_code": "integer",
    "final_route": "varchar",
    "final_server_id": "bigint",
}


@dataclass(slots=True)
class _Work:
    """What one call of `apply_changes` has read, and has to write."""

    messages: dict[int, MessageRow]
    attempts: dict[int, AttemptRow]  # all of these messages
    states: dict[int, dict[int, AttemptState]]  # by message: all its attempts
    changed: dict[int, AttemptRow] = field(default_factory=dict)
    touched: dict[int, MessageRow] = field(default_factory=dict)
    events: list[events.NewEvent] = field(default_factory=list)
    unready: list[int] = field(default_factory=list)  # messages whose planned retry or extra copy is dropped
    races: list[MessageRow] = field(default_factory=list)  # messages of which an extra copy may leave
    for_servers: list[tuple[AttemptRow, Change]] = field(default_factory=list)  # in the order of arrival
    reports: list[Reported] = field(default_factory=list)  # how attempts of providers ended
    invalid: list[tuple[bytes, str]] = field(default_factory=list)  # recipients, and the routes that called them so
    reached: set[bytes] = field(default_factory=set)  # recipients that something was delivered to


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
        _write(work, now)
        server_news.tell(work.for_servers, work.messages, then_servers=then_servers, now=now, rng=rng)
        if work.reports:
            transaction.on_commit(lambda: route_health.reported(work.reports), robust=True)
    return len(work.changed)


def _read(attempt_ids: Iterable[int]) -> _Work:
    ids = set(attempt_ids)
    messages, attempts = rows.lock(ids)
    states: dict[int, dict[int, AttemptState]] = defaultdict(dict)
    for attempt in attempts:
        states[attempt.message_id][attempt.id] = AttemptState(attempt.state)
    return _Work(messages, {attempt.id: attempt for attempt in attempts}, states)


def _apply(work: _Work, attempt: AttemptRow, change: Change, now: datetime) -> None:
    _learn(work, attempt, change, now)
    if change.state is None or not moves_attempt(AttemptState(attempt.state), change.state):
        if change.overdue:
            _mark_overdue(work, attempt, change)
        if change.undecided:
            _race(work, attempt, change, now)
        _set_limit(work, attempt, change)
        return  # an older report, or a repetition: the newer fact stands
    message = work.messages[attempt.message_id]
    if message.status == MessageStatus.SUBMITTED and (
        attempt.state == AttemptState.UNKNOWN or len(work.states[message.id]) > 1
    ):
        work.unready.append(message.id)  # it is known now, or another copy has left: no extra one
    _move_attempt(work, attempt, change, change.state, now)
    if change.state is AttemptState.NOT_SUBMITTED and attempt.possible_duplicate:
        message.copies_left += 1  # this one did not leave
        work.touched[message.id] = message
    if change.state in {AttemptState.NOT_SUBMITTED, AttemptState.FAILED}:
        _decide_anew(work, message, now)
    step = rules.step(
        _view(message),
        change.state,
        error_class=change.error_class,
        others=[state for other, state in work.states[message.id].items() if other != attempt.id],
        now=now,
        failures=_failures_like(work, attempt),
        retry_after=change.retry_after if attempt.server_id is None else None,
    )
    _move_message(work, message, attempt, step, now)


def _failures_like(work: _Work, attempt: AttemptRow) -> int:
    """How many attempts of its message over its route ended with its error, itself included."""
    siblings = (work.attempts[attempt_id] for attempt_id in work.states[attempt.message_id])
    return sum((each.route, each.error_class) == (attempt.route, attempt.error_class) for each in siblings)


def _set_limit(work: _Work, attempt: AttemptRow, change: Change) -> None:
    """A receipt that came before its call had ended did not know the limit of its route."""
    is_on_its_way = attempt.check_at is not None and attempt.server_id is None
    if is_on_its_way and change.of_call and change.state is AttemptState.ACCEPTED:
        attempt.check_at = change.check_at
        work.changed[attempt.id] = attempt


def _race(work: _Work, attempt: AttemptRow, change: Change, now: datetime) -> None:
    """Nobody knows whether this attempt's copy has left: another may go over another route, if its message allows."""
    message = work.messages[attempt.message_id]
    states = work.states[message.id].values()
    if attempt.state != AttemptState.UNKNOWN:
        return
    attempt.check_at = change.check_at
    work.changed[attempt.id] = attempt
    if rules.may_race(_view(message), list(states), now):
        work.races.append(message)


def _decide_anew(work: _Work, message: MessageRow, now: datetime) -> None:
    """One attempt fewer is alive: whether an extra copy may leave because of an unclear one is another question now."""
    for sibling_id, state in work.states[message.id].items():
        if state is AttemptState.UNKNOWN:
            sibling = work.attempts[sibling_id]
            sibling.check_at = now + _RACE_PAUSE
            work.changed[sibling_id] = sibling


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
    attempt.check_at = _next_check(attempt, change)
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
    _tell_others(work, attempt, state, change, now)


def _next_check(attempt: AttemptRow, change: Change) -> datetime | None:
    """A provider's report of a step on the way leaves the question where its route's limit has set it."""
    if attempt.server_id is not None or change.check_at is None:
        return change.check_at
    return attempt.check_at or change.check_at


def _tell_others(work: _Work, attempt: AttemptRow, state: AttemptState, change: Change, now: datetime) -> None:
    """What an attempt's end says of the recipient, and of the provider's route."""
    recipient = bytes(work.messages[attempt.message_id].to_hash)
    if state is AttemptState.DELIVERED:
        work.reached.add(recipient)
    elif change.error_class is ErrorClass.RECIPIENT_INVALID:
        work.invalid.append((recipient, attempt.route))
    if attempt.server_id is None and state in {AttemptState.DELIVERED, AttemptState.FAILED}:
        is_delivered = state is AttemptState.DELIVERED
        work.reports.append(Reported(attempt.route, attempt.claimed_at, now, is_delivered, change.error_class))


def _view(message: MessageRow) -> rules.MessageView:
    return rules.MessageView(
        status=MessageStatus(message.status),
        expires_at=message.expires_at,
        attempts_made=message.attempts_made,
        attempts_charged=message.attempts_charged,
        max_attempts=message.max_attempts,
        on_unknown=OnUnknown(message.on_unknown),
        copies_left=message.copies_left,
        withdrawn=Reason(message.withdrawn) if message.withdrawn else None,
    )


def _move_message(work: _Work, message: MessageRow, attempt: AttemptRow, step: rules.Step, now: datetime) -> None:
    match step:
        case rules.Keep():
            return
        case rules.Submit(again):
            if message.status != MessageStatus.SENDING:
                work.unready.append(message.id)
            message.status, message.run_after = MessageStatus.SUBMITTED.value, None
            event = "" if again else STATUS_EVENTS[MessageStatus.SUBMITTED]
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


def _write(work: _Work, now: datetime) -> None:
    touched = [work.touched[key] for key in sorted(work.touched)]
    _write_attempts([work.changed[key] for key in sorted(work.changed)])
    _write_messages(touched)
    recipients.note_invalid(work.invalid, now=now)
    recipients.note_delivered(work.reached)
    queue.remove(work.unready)
    # By where each message stands in the end: one that failed and was delivered in the same batch is not queued.
    again = [message for message in touched if message.status == MessageStatus.QUEUED]
    again += [message for message in work.races if message.status == MessageStatus.SUBMITTED]
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
