"""Claiming: from `ready` rows to attempts that are committed before any call is made.

Rows and messages are locked with SKIP LOCKED, so a claim waits for nobody and nobody waits for a claim that
waits; what somebody else holds stays in the queue for the next claim.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction

from otp_service.core import clock
from otp_service.core.crypto import CryptoError
from otp_service.core.outcomes import ErrorClass, Submittable
from otp_service.messages import expiry, queue
from otp_service.messages.models import Attempt, Flow, Message, Ready
from otp_service.messages.rules import AttemptState, Lane, MessageStatus, OnLateFirst, Reason
from otp_service.routes import rules
from otp_service.routes.settle import Columns, update_rows
from otp_service.web.fields import encrypted_field
from servers import selection
from servers.hosts import address_of
from servers.models import Host
from servers.relay.base import HostAddress
from servers.relay.http import DEFAULT_TIMEOUTS

log = structlog.get_logger(__name__)

#: How long before its lease ends a submission is refused by the host: clocks differ a little.
SUBMIT_MARGIN = timedelta(seconds=2)
#: A lease must be longer: the longest call, and the margin.
SHORTEST_LEASE = DEFAULT_TIMEOUTS.total + SUBMIT_MARGIN
#: A message that found no server waits at least and at most so long before it is looked at again.
_NO_SERVER_PAUSE = (timedelta(milliseconds=250), timedelta(seconds=10))


@dataclass(frozen=True, slots=True)
class Claimed:
    """One attempt, committed as `submitting`, ready to be handed to its host."""

    attempt_id: int
    token: uuid.UUID
    host: HostAddress
    send: Submittable = field(repr=False)
    give_up_at: float  # time.monotonic() after which the call must not start: it might outlast the lease


@dataclass(frozen=True, slots=True, repr=False)
class _Picked:
    """A message that this claim holds."""

    id: int
    flow_id: int
    to: str
    text: str
    to_hash: bytes
    expires_at: datetime
    first_attempt_by: datetime | None
    on_late_first: str
    attempts_made: int
    attempts_charged: int
    max_attempts: int
    pools: tuple[str, ...]
    lane: Lane

    @property
    def due_at(self) -> datetime:
        """What its `ready` row was ordered by."""
        first_by = None if self.attempts_made else self.first_attempt_by
        return min(first_by or self.expires_at, self.expires_at)


_FLOWS_WITH_READY_ROWS = f"""
WITH RECURSIVE present AS (
  (SELECT flow_id FROM {Ready._meta.db_table} ORDER BY flow_id LIMIT 1)
  UNION ALL
  SELECT (SELECT r.flow_id FROM {Ready._meta.db_table} r WHERE r.flow_id > p.flow_id ORDER BY r.flow_id LIMIT 1)
  FROM present p WHERE p.flow_id IS NOT NULL
)
SELECT f.id, f.lane, f.pools,
       (SELECT count(*) FROM (SELECT 1 FROM {Ready._meta.db_table} r WHERE r.flow_id = f.id
         ORDER BY r.due_at LIMIT %(most)s) counted)  -- in the index's order: or the planner may read the whole flow
FROM present p JOIN {Flow._meta.db_table} f ON f.id = p.flow_id
WHERE f.state = 'on' AND f.lane = ANY(%(lanes)s)
ORDER BY f.id
"""  # noqa: S608 - the tables' own names

# The rows are picked flow by flow, by equality, so that each pick reads the index from its beginning;
# MATERIALIZED keeps the planner from merging the LIMIT away, `= ANY(ARRAY(...))` from a hash join over all messages.
# A flow that is being paused is passed over: to wait for it while holding others would invite a deadlock.
_PICK = f"""
WITH planned AS (
  SELECT f.id, p.n FROM unnest(%(flows)s::bigint[], %(counts)s::int[]) AS p (flow_id, n)
  JOIN {Flow._meta.db_table} f ON f.id = p.flow_id AND f.state = 'on' FOR SHARE OF f SKIP LOCKED
), picked AS MATERIALIZED (
  SELECT chosen.message_id FROM planned CROSS JOIN LATERAL (
    SELECT r.message_id FROM {Ready._meta.db_table} r WHERE r.flow_id = planned.id
    ORDER BY r.due_at, r.message_id LIMIT planned.n FOR UPDATE SKIP LOCKED
  ) chosen
)
SELECT m.id, m.flow_id, m."to", m.text, m.to_hash, m.expires_at, m.first_attempt_by, m.on_late_first,
       m.attempts_made, m.attempts_charged, m.max_attempts,
       (SELECT f.pools FROM {Flow._meta.db_table} f WHERE f.id = m.flow_id), m.lane, m.status
FROM {Message._meta.db_table} m
WHERE m.id = ANY(ARRAY(SELECT message_id FROM picked))
ORDER BY m.id FOR NO KEY UPDATE OF m SKIP LOCKED
"""  # noqa: S608 - the tables' own names

_INSERT_ATTEMPTS = f"""
INSERT INTO {Attempt._meta.db_table}
  (uuid, message_id, number, route, server_id, is_last, state, token, claimed_at, lease_until,
   checks_made, submission, provider_message_id, service, error_class)
SELECT a.uuid, a.message_id, a.number, a.route, a.server_id, a.is_last, '{AttemptState.SUBMITTING.value}', a.token,
       %(now)s, clock_timestamp() + %(lease)s, 0, '', '', '', ''
FROM unnest(%(uuids)s::uuid[], %(messages)s::bigint[], %(numbers)s::smallint[], %(routes)s::varchar[],
            %(servers)s::bigint[], %(lasts)s::boolean[], %(tokens)s::uuid[])
  AS a (uuid, message_id, number, route, server_id, is_last, token)
RETURNING id, uuid
"""  # noqa: S608 - the table's own name


def flows_with_ready_rows(lanes: Sequence[Lane], *, most: int) -> list[tuple[int, Lane, tuple[str, ...], int]]:
    """Flows that have something to claim: `(id, lane, pools, ready rows counted up to most)`.

    Jumps along the index from flow to flow: the cost follows the number of such flows, not of messages.
    """
    with connection.cursor() as cursor:
        cursor.execute(_FLOWS_WITH_READY_ROWS, {"lanes": [lane.value for lane in lanes], "most": most})
        return [(flow_id, Lane(lane), tuple(pools), count) for flow_id, lane, pools, count in cursor.fetchall()]


def claim(plan: Sequence[tuple[int, int]], *, now: datetime, rng: random.Random = clock.rng) -> list[Claimed]:
    """Claim what the plan says, `[(flow id, n)]`: lock, reserve a server each, write attempts, commit.

    What is past its lifetime ends here; what finds no server waits. `now` is the caller's clock; leases use
    the database's.
    """
    if not plan:
        return []
    # Not `now`: a process that is frozen, or a clock that is set, must not make an old claim look young.
    give_up_at = time.monotonic() + (settings.LEASE - SHORTEST_LEASE).total_seconds()
    turn = {flow: place for place, (flow, _) in enumerate(plan)}
    with transaction.atomic():
        alive = _end_what_is_late(_pick(plan, now), now)
        if not alive:
            return []
        # Where servers are too few, they go by the plan, and in a flow to the earliest deadline.
        alive.sort(key=lambda message: (turn[message.flow_id], message.due_at, message.id))
        tried = _tried(alive)
        reserved = selection.reserve([_request(message, tried) for message in alive], now=now, rng=rng)
        _put_back([message for message in alive if message.id not in reserved], now)
        return _start([m for m in alive if m.id in reserved], reserved, now=now, give_up_at=give_up_at)


def _pick(plan: Sequence[tuple[int, int]], now: datetime) -> list[_Picked]:
    with connection.cursor() as cursor:
        cursor.execute(_PICK, {"flows": [flow for flow, _ in plan], "counts": [count for _, count in plan]})
        rows = cursor.fetchall()
    picked, strays, unreadable = [], [], {}
    for row in rows:
        if row[-1] != MessageStatus.QUEUED:
            strays.append(row[0])
            continue
        try:
            picked.append(_open(row))
        except CryptoError as error:
            # One that cannot be opened must not hold up those behind it. It may be a key that is missing here.
            log.error("message_unreadable", message=row[0], error=str(error))  # noqa: TRY400 - frames may hold texts
            unreadable[row[0]] = min(now + _NO_SERVER_PAUSE[1], row[5])
    if strays:
        # Nobody writes such rows; one that is there all the same must not stand at the head of its flow for ever.
        log.error("ready_but_not_queued", messages=strays)
        queue.remove(strays)
    _let_wait(unreadable)
    return picked


def _open(row: Sequence[Any]) -> _Picked:
    return _Picked(
        id=row[0],
        flow_id=row[1],
        to=encrypted_field(Message, "to").open(row[2]),
        text=encrypted_field(Message, "text").open(row[3]),
        to_hash=bytes(row[4]),
        expires_at=row[5],
        first_attempt_by=row[6],
        on_late_first=row[7],
        attempts_made=row[8],
        attempts_charged=row[9],
        max_attempts=row[10],
        pools=tuple(row[11]),
        lane=Lane(row[12]),
    )


def _end_what_is_late(picked: Sequence[_Picked], now: datetime) -> list[_Picked]:
    past = [message for message in picked if message.expires_at <= now]
    late = [message for message in picked if message.expires_at > now and _first_is_late(message, now)]
    expiry.expire([message.id for message in past], Reason.EXPIRED_UNSENT, now=now)
    expiry.expire([message.id for message in late], Reason.LATE_FIRST_ATTEMPT, now=now)
    ended = {message.id for message in (*past, *late)}
    return [message for message in picked if message.id not in ended]


def _first_is_late(message: _Picked, now: datetime) -> bool:
    if message.on_late_first != OnLateFirst.EXPIRE or message.attempts_made or message.first_attempt_by is None:
        return False
    return now > message.first_attempt_by


@dataclass(frozen=True, slots=True)
class _Tried:
    """Where a message has been: servers that are not tried again, hosts that others are preferred to."""

    servers: set[int] = field(default_factory=set)
    hosts: set[int] = field(default_factory=set)


def _tried(messages: Sequence[_Picked]) -> Mapping[int, _Tried]:
    """By message: what its earlier attempts say."""
    again = [message.id for message in messages if message.attempts_made]
    tried: dict[int, _Tried] = defaultdict(_Tried)
    if again:
        rows = Attempt.objects.filter(message_id__in=again, server__isnull=False)
        columns = ("message_id", "server_id", "server__host_id", "error_class")
        for message_id, server_id, host_id, error_class in rows.values_list(*columns):
            tried[message_id].hosts.add(host_id)
            if not rules.same_server_may_help(ErrorClass(error_class) if error_class else None):
                tried[message_id].servers.add(server_id)
    return tried


def _request(message: _Picked, tried: Mapping[int, _Tried]) -> selection.SendRequest:
    earlier = tried.get(message.id, _Tried())
    return selection.SendRequest(
        key=message.id,
        pools=message.pools,
        recipient_hash=message.to_hash,
        recipient=message.to,
        is_otp=message.lane is Lane.OTP,
        excluded_servers=frozenset(earlier.servers),
        excluded_hosts=frozenset(earlier.hosts),
    )


def _put_back(messages: Sequence[_Picked], now: datetime) -> None:
    """No server fits: wait until one of its pools is free again, within bounds."""
    least, most = _NO_SERVER_PAUSE
    free_at = {pools: selection.next_free_at(pools, now=now) for pools in {message.pools for message in messages}}
    _let_wait({m.id: min(max(free_at[m.pools] or now + most, now + least), now + most, m.expires_at) for m in messages})


def _let_wait(until: Mapping[int, datetime]) -> None:
    ids = list(until)
    queue.remove(ids)
    columns: Columns = {
        "status": ("varchar", [MessageStatus.WAITING.value] * len(ids)),
        "run_after": ("timestamptz", list(until.values())),
    }
    update_rows(Message._meta.db_table, ids, columns)


def _start(
    messages: Sequence[_Picked],
    reserved: Mapping[Any, selection.Reservation],
    *,
    now: datetime,
    give_up_at: float,
) -> list[Claimed]:
    if not messages:
        return []
    ids = [message.id for message in messages]
    queue.remove(ids)
    columns: Columns = {
        "status": ("varchar", [MessageStatus.SENDING.value] * len(ids)),
        "attempts_made": ("smallint", [message.attempts_made + 1 for message in messages]),
        "attempts_charged": ("smallint", [message.attempts_charged + 1 for message in messages]),
    }
    update_rows(Message._meta.db_table, ids, columns)
    uuids, tokens = [uuid.uuid4() for _ in ids], [uuid.uuid4() for _ in ids]
    attempt_ids = _insert_attempts(messages, reserved, uuids, tokens, now)
    addresses = _addresses({reserved[message.id].host_id for message in messages}, now)
    return [
        Claimed(
            attempt_ids[attempt_uuid],
            token,
            addresses[reserved[message.id].host_id],
            Submittable(
                attempt_uuid=attempt_uuid,
                to=message.to,
                text=message.text,
                expires_at=message.expires_at,
                submit_by=min(message.expires_at, now + settings.LEASE - SUBMIT_MARGIN),
                unit=reserved[message.id].unit,
            ),
            give_up_at,
        )
        for message, attempt_uuid, token in zip(messages, uuids, tokens, strict=True)
    ]


def _insert_attempts(
    messages: Sequence[_Picked],
    reserved: Mapping[Any, selection.Reservation],
    uuids: Sequence[uuid.UUID],
    tokens: Sequence[uuid.UUID],
    now: datetime,
) -> dict[uuid.UUID, int]:
    parameters: dict[str, Any] = {
        "now": now,
        "lease": settings.LEASE,
        "uuids": list(uuids),
        "tokens": list(tokens),
        "messages": [message.id for message in messages],
        "numbers": [message.attempts_made + 1 for message in messages],
        "routes": [f"imessage:{reserved[message.id].region}" for message in messages],
        "servers": [reserved[message.id].server_id for message in messages],
        "lasts": [message.attempts_charged + 1 >= message.max_attempts for message in messages],
    }
    with connection.cursor() as cursor:
        cursor.execute(_INSERT_ATTEMPTS, parameters)
        return {attempt_uuid: attempt_id for attempt_id, attempt_uuid in cursor.fetchall()}


def _addresses(host_ids: set[int], now: datetime) -> dict[int, HostAddress]:
    hosts = Host.objects.filter(id__in=host_ids)
    return {host.id: address_of(host, now=now) for host in hosts}
