"""Claiming: from `ready` rows to attempts that are committed before any call is made.

Rows and messages are locked with SKIP LOCKED, so a claim waits for nobody and nobody waits for a claim that
waits; what somebody else holds stays in the queue for the next claim.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction
from psycopg.types.datetime import TimestamptzLoader

from otp_service.core import clock
from otp_service.core.crypto import CryptoError
from otp_service.core.outcomes import Submittable
from otp_service.messages import expiry, queue
from otp_service.messages.models import Attempt, Flow, Message, Ready
from otp_service.messages.rules import AttemptState, Lane, MessageStatus, OnLateFirst, Reason
from otp_service.routes.choose import Way, Ways, choose
from otp_service.routes.route_rules import RouteSpec
from otp_service.routes.settle import update_rows
from otp_service.web.arrays import array
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
#: A message that found no way out waits at least and at most so long before it is looked at again.
_NO_WAY_PAUSE = (timedelta(milliseconds=250), timedelta(seconds=10))


@dataclass(frozen=True, slots=True)
class Claimed:
    """One attempt, committed as `submitting`, ready to be handed to its route."""

    attempt_id: int
    token: uuid.UUID
    lane: Lane
    spec: RouteSpec
    host: HostAddress | None  # of the server that carries it; None where the route is no pool
    send: Submittable = field(repr=False)
    give_up_at: float  # time.monotonic() after which the call must not start: it might outlast the lease
    accepted_at: datetime | None  # of its message, if this is its first attempt

    @property
    def route(self) -> str:
        """The route's name."""
        return self.spec.name


@dataclass(frozen=True, slots=True)
class Batch:
    """What one claim took: attempts, and by flow how many messages were there to be picked."""

    claimed: Sequence[Claimed] = ()
    picked: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, repr=False)
class _Picked:
    """A message that this claim holds."""

    id: int
    flow_id: int
    to: str
    text: str
    to_hash: bytes
    created_at: datetime
    expires_at: datetime
    first_attempt_by: datetime | None
    on_late_first: str
    attempts_made: int
    attempts_charged: int
    max_attempts: int
    lane: Lane

    @property
    def due_at(self) -> datetime:
        """What its `ready` row was ordered by."""
        first_by = None if self.attempts_made else self.first_attempt_by
        return min(first_by or self.expires_at, self.expires_at)


# The rows are picked flow by flow, by equality, so that each pick reads the index from its beginning;
# MATERIALIZED keeps the planner from merging the LIMIT away, `= ANY(ARRAY(...))` from a hash join over all messages.
# A flow that is being paused is passed over: to wait for it while holding others would invite a deadlock.
_PICK = f"""
WITH planned AS (
  SELECT f.id, p.n FROM unnest(%(flows)s::bigint[], %(counts)s::int[]) AS p (flow_id, n)
  JOIN {Flow._meta.db_table} f ON f.id = p.flow_id AND f.state = 'on' AND {queue.FLOW_IS_LEFT_ALONE}
  FOR SHARE OF f SKIP LOCKED
), picked AS MATERIALIZED (
  SELECT chosen.message_id FROM planned CROSS JOIN LATERAL (
    SELECT r.message_id FROM {Ready._meta.db_table} r WHERE r.flow_id = planned.id
    ORDER BY r.due_at, r.message_id LIMIT planned.n FOR UPDATE SKIP LOCKED
  ) chosen
)
SELECT m.id, m.flow_id, m."to", m.text, m.to_hash, m.created_at, m.expires_at, m.first_attempt_by, m.on_late_first,
       m.attempts_made, m.attempts_charged, m.max_attempts, m.lane, m.status
FROM {Message._meta.db_table} m
WHERE m.id = ANY(ARRAY(SELECT message_id FROM picked))
ORDER BY m.id FOR NO KEY UPDATE OF m SKIP LOCKED
"""  # noqa: S608 - the tables' own names

_START = f"""
WITH gone AS (
  DELETE FROM {Ready._meta.db_table} WHERE message_id = ANY(%(messages)s::bigint[])
), moved AS (
  UPDATE {Message._meta.db_table} SET status = '{MessageStatus.SENDING.value}',
    attempts_made = attempts_made + 1, attempts_charged = attempts_charged + 1
  WHERE id = ANY(%(messages)s::bigint[])
)
INSERT INTO {Attempt._meta.db_table}
  (uuid, message_id, number, route, server_id, is_last, state, token, claimed_at, lease_until,
   checks_made, submission, provider_message_id, service, error_class)
SELECT gen_random_uuid(), a.message_id, a.number, (%(routes)s::varchar[])[a.route], a.server_id, a.is_last = 1,
       '{AttemptState.SUBMITTING.value}', gen_random_uuid(), %(now)s, clock_timestamp() + %(lease)s, 0, '', '', '', ''
FROM unnest(%(messages)s::bigint[], %(numbers)s::smallint[], %(route_numbers)s::int[], %(servers)s::bigint[],
            %(lasts)s::int[])
  AS a (message_id, number, route, server_id, is_last)
RETURNING message_id, id, uuid, token
"""  # noqa: S608 - the tables' own names


def claim(plan: Sequence[tuple[int, int]], ways: Ways, *, now: datetime, rng: random.Random = clock.rng) -> Batch:
    """Claim what the plan says, `[(flow id, n)]`: lock, find each message its way, write attempts, commit.

    What is past its lifetime ends here; what finds no way now waits. `now` is the caller's clock; leases use
    the database's.
    """
    if not plan:
        return Batch()
    # Not `now`: a process that is frozen, or a clock that is set, must not make an old claim look young.
    give_up_at = time.monotonic() + (settings.LEASE - SHORTEST_LEASE).total_seconds()
    turn = {flow: place for place, (flow, _) in enumerate(plan)}
    with transaction.atomic():
        picked, by_flow = _pick(plan, now)
        alive = _end_what_is_late(picked, now)
        # Where ways are too few, they go by the plan, and in a flow to the earliest deadline.
        alive.sort(key=lambda message: (turn[message.flow_id], message.due_at, message.id))
        chosen = choose(alive, ways, now=now, rng=rng) if alive else {}
        _put_back([message for message in alive if message.id not in chosen], ways, now)
        claimed = _start([m for m in alive if m.id in chosen], chosen, now=now, give_up_at=give_up_at)
    return Batch(claimed, by_flow)


def _pick(plan: Sequence[tuple[int, int]], now: datetime) -> tuple[list[_Picked], Mapping[int, int]]:
    """Lock messages of the planned flows; returns those that may be sent, and by flow how many there were."""
    with connection.cursor() as cursor:
        # Django's own one is Python for each value; both give aware times in UTC.
        cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
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
            unreadable[row[0]] = min(now + _NO_WAY_PAUSE[1], row[6])
    if strays:
        # Nobody writes such rows; one that is there all the same must not stand at the head of its flow for ever.
        log.error("ready_but_not_queued", messages=strays)
        queue.remove(strays)
    _let_wait(unreadable)
    return picked, Counter(row[1] for row in rows)


def _open(row: Sequence[Any]) -> _Picked:
    return _Picked(
        id=row[0],
        flow_id=row[1],
        to=encrypted_field(Message, "to").open(row[2]),
        text=encrypted_field(Message, "text").open(row[3]),
        to_hash=bytes(row[4]),
        created_at=row[5],
        expires_at=row[6],
        first_attempt_by=row[7],
        on_late_first=row[8],
        attempts_made=row[9],
        attempts_charged=row[10],
        max_attempts=row[11],
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


def _put_back(messages: Sequence[_Picked], ways: Ways, now: datetime) -> None:
    """No way now: wait until one of its pools has a free server, within bounds."""
    least, most = _NO_WAY_PAUSE
    pools = {message.flow_id: ways.pools(message.flow_id) for message in messages}
    free_at = {each: selection.next_free_at(each, now=now) or now + most for each in set(pools.values()) if each}
    at = {flow: min(max(free_at.get(each, now), now + least), now + most) for flow, each in pools.items()}
    _let_wait({m.id: min(at[m.flow_id], m.expires_at) for m in messages})


def _let_wait(until: Mapping[int, datetime]) -> None:
    queue.remove(list(until))
    waiting = [
        {"id": message_id, "status": MessageStatus.WAITING.value, "run_after": at} for message_id, at in until.items()
    ]
    update_rows(Message._meta.db_table, {"status": "varchar", "run_after": "timestamptz"}, waiting)


def _start(
    messages: Sequence[_Picked], chosen: Mapping[int, Way], *, now: datetime, give_up_at: float
) -> list[Claimed]:
    if not messages:
        return []
    attempts = _insert_attempts(messages, chosen, now)
    addresses = _addresses({way.server.host_id for way in chosen.values() if way.server}, now)
    submit_by = now + settings.LEASE - SUBMIT_MARGIN
    claimed = []
    for message in messages:
        attempt_id, attempt_uuid, token = attempts[message.id]
        server = chosen[message.id].server
        send = Submittable(
            attempt_uuid=attempt_uuid,
            to=message.to,
            text=message.text,
            expires_at=message.expires_at,
            submit_by=min(message.expires_at, submit_by),
            unit=server.unit if server else None,
        )
        claimed.append(
            Claimed(
                attempt_id=attempt_id,
                token=token,
                lane=message.lane,
                spec=chosen[message.id].route,
                host=addresses[server.host_id] if server else None,
                send=send,
                give_up_at=give_up_at,
                accepted_at=None if message.attempts_made else message.created_at,
            )
        )
    return claimed


def _insert_attempts(
    messages: Sequence[_Picked], chosen: Mapping[int, Way], now: datetime
) -> dict[int, tuple[int, uuid.UUID, uuid.UUID]]:
    """Write the attempts, and all that goes with it; returns the id, the uuid and the token of each, by message."""
    ways = [chosen[message.id] for message in messages]
    routes = sorted({way.route.name for way in ways})
    number_of = {route: number for number, route in enumerate(routes, 1)}
    parameters: dict[str, Any] = {
        "now": now,
        "lease": settings.LEASE,
        "messages": array(message.id for message in messages),
        "numbers": array(message.attempts_made + 1 for message in messages),
        "routes": routes,
        "route_numbers": array(number_of[way.route.name] for way in ways),
        "servers": array(way.server.server_id if way.server else None for way in ways),
        "lasts": array(int(message.attempts_charged + 1 >= message.max_attempts) for message in messages),
    }
    with connection.cursor() as cursor:
        cursor.execute(_START, parameters)
        return {row[0]: row[1:] for row in cursor.fetchall()}


def _addresses(host_ids: set[int], now: datetime) -> dict[int, HostAddress]:
    hosts = Host.objects.filter(id__in=host_ids) if host_ids else ()
    return {host.id: address_of(host, now=now) for host in hosts}
