"""Claiming: from `ready` rows to attempts that are committed before any call is made.

Rows and messages are locked with SKIP LOCKED, so a claim waits for nobody and nobody waits for a claim that
waits; what somebody else holds stays in the queue for the next claim.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from otp_service.core import clock
from otp_service.core.http import DEFAULT_TIMEOUTS
from otp_service.core.outcomes import Submittable
from otp_service.messages import expiry, queue, recipients
from otp_service.messages.models import Attempt, Message
from otp_service.messages.recipient_rules import RecipientView, Send, Suppress, Wait, verdict
from otp_service.messages.rules import (
    AttemptState,
    Channel,
    Lane,
    MessageStatus,
    OnLateFirst,
    Reason,
    RefusalReason,
)
from otp_service.routes.choose import Chosen, Refusals, Ways, choose
from otp_service.routes.eligibility import Outlook, Terms
from otp_service.routes.picked import Picked, pick
from otp_service.routes.route_rules import RouteSpec
from otp_service.routes.rules import FINAL_REASON
from otp_service.routes.settle import update_rows
from otp_service.routes.starting import SUBMIT_MARGIN, insert_attempts, probes, send
from servers import selection
from servers.hosts import address_of
from servers.models import Host
from servers.relay.base import HostAddress

#: A lease must be longer: the longest call, and the margin.
SHORTEST_LEASE = DEFAULT_TIMEOUTS.total + SUBMIT_MARGIN
#: A message that found no way out waits at least and at most so long before it is looked at again.
_NO_WAY_PAUSE = (timedelta(milliseconds=250), timedelta(seconds=10))
#: Refusals that do not pass within a second; those for good are beside them.
_SLOW = frozenset(RefusalReason) - {RefusalReason.NO_CAPACITY}
_NOTHING_KNOWN = RecipientView()
_RACE_PAUSE = timedelta(seconds=2)  # before an extra copy that found no way is considered again


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
    claimed_at: datetime
    generation: int = 0  # of its route's breaker when it was claimed
    ticket: int | None = None  # of a probe
    is_copy: bool = False  # another copy of its message may be on its way
    terms: Terms = Terms()  # noqa: RUF009 - frozen

    @property
    def route(self) -> str:
        """The route's name."""
        return self.spec.name


@dataclass(frozen=True, slots=True)
class Batch:
    """What one claim took: attempts, and by flow how many messages were there to be picked."""

    claimed: Sequence[Claimed] = ()
    picked: Mapping[int, int] = field(default_factory=dict)


def claim(plan: Sequence[tuple[int, int]], ways: Ways, *, now: datetime, rng: random.Random = clock.rng) -> Batch:
    """Claim what the plan says, `[(flow id, n)]`: lock, find each message its way, write attempts, commit.

    What is past its lifetime ends here, as does what no route can ever carry; what finds no way now waits. `now` is
    the caller's clock; leases use the database's.
    """
    if not plan:
        return Batch()
    # Not `now`: a process that is frozen, or a clock that is set, must not make an old claim look young.
    give_up_at = time.monotonic() + (settings.LEASE - SHORTEST_LEASE).total_seconds()
    turn = {flow: place for place, (flow, _) in enumerate(plan)}
    with transaction.atomic():
        lot = pick(plan)
        # It may be a key that is missing here: another process may have it.
        _let_wait({each: min(now + _NO_WAY_PAUSE[1], end) for each, end in lot.unreadable.items()}, {})
        alive = _end_what_is_late(lot.messages, now)
        alive, refused_channels = _heed_recipients(alive, ways, now)
        # Where ways are too few, they go by the plan, and in a flow to the earliest deadline.
        alive.sort(key=lambda message: (turn[message.flow_id], message.due_at, message.id))
        chosen = choose(alive, ways, now=now, rng=rng, refused_channels=refused_channels)
        _let_go([message for message in alive if message.id not in chosen.ways], chosen, ways, now)
        going = [message for message in alive if message.id in chosen.ways]
        claimed = _start(going, chosen, ways, now=now, give_up_at=give_up_at)
    return Batch(claimed, lot.by_flow)


def _end_what_is_late(picked: Sequence[Picked], now: datetime) -> list[Picked]:
    """Returns those that are still to be sent. Of one that may be delivered yet, only the extra copy is dropped."""
    past = [message for message in picked if message.expires_at <= now]
    queue.remove([message.id for message in past if message.is_race])
    expiry.expire([message.id for message in past if not message.is_race], Reason.EXPIRED_UNSENT, now=now)
    late = [message for message in picked if message.expires_at > now and _first_is_late(message, now)]
    expiry.expire([message.id for message in late], Reason.LATE_FIRST_ATTEMPT, now=now)
    ended = {message.id for message in (*past, *late)}
    return [message for message in picked if message.id not in ended]


def _heed_recipients(
    messages: Sequence[Picked], ways: Ways, now: datetime
) -> tuple[list[Picked], dict[bytes, frozenset[Channel]]]:
    """Those whose recipients may be written to now, and the channels that some of these refuse, by their hashes."""
    views = recipients.standing_of({message.to_hash: message.to for message in messages}, now=now)
    if not views:
        return list(messages), {}
    going: list[Picked] = []
    refused: dict[bytes, frozenset[Channel]] = {}
    held: list[tuple[Picked, Wait | Suppress]] = []
    for message in messages:
        view = views.get(message.to_hash, _NOTHING_KNOWN)
        found = verdict(view, message.lane, stop_only_promo=settings.STOP_ONLY_PROMO)
        match found:
            case Send(channels):
                going.append(message)
                refused |= {message.to_hash: channels} if channels else {}
            case Wait() | Suppress():
                held.append((message, found))
    _hold_for_recipients(held, ways, now)
    return going, refused


def _hold_for_recipients(held: Sequence[tuple[Picked, Wait | Suppress]], ways: Ways, now: datetime) -> None:
    """Of one that may be delivered yet, only the extra copy is dropped."""
    queue.remove([message.id for message, _ in held if message.is_race])
    own = [(message, found) for message, found in held if not message.is_race]
    suppressed = [message.id for message, found in own if isinstance(found, Suppress)]
    expiry.fail(suppressed, Reason.SUPPRESSED, now=now)
    quiet = [(message, found.until) for message, found in own if isinstance(found, Wait)]
    _let_wait(
        {message.id: min(until, message.expires_at) for message, until in quiet},
        {message.id: _everywhere(RefusalReason.QUIET_HOURS, ways.of_flow[message.flow_id]) for message, _ in quiet},
    )


def _everywhere(reason: RefusalReason, routes: Sequence[RouteSpec]) -> Refusals:
    return dict.fromkeys([spec.name for spec in routes], reason)


def _first_is_late(message: Picked, now: datetime) -> bool:
    if message.on_late_first != OnLateFirst.EXPIRE or message.attempts_made or message.first_attempt_by is None:
        return False
    return now > message.first_attempt_by


def _let_go(messages: Sequence[Picked], chosen: Chosen, ways: Ways, now: datetime) -> None:
    """Those without a way now: they wait for one, or end where none will come."""
    races = [message for message in messages if message.is_race]
    queue.remove([message.id for message in races])
    _put_off([message for message in races if chosen.outlook[message.id] in {Outlook.GO, Outlook.WAIT}], now)
    of: dict[Outlook, list[Picked]] = {outlook: [] for outlook in Outlook}
    for message in messages:
        if not message.is_race:
            of[chosen.outlook[message.id]].append(message)
    ending = [*of[Outlook.TOO_LATE], *of[Outlook.NO_WAY]]
    refusals = [{"id": message.id, "refusals": chosen.refusals.get(message.id)} for message in ending]
    update_rows(Message._meta.db_table, {"refusals": "jsonb"}, refusals)
    expiry.expire([message.id for message in of[Outlook.TOO_LATE]], Reason.EXPIRED_UNSENT, now=now)
    for reason, those in _by_reason(of[Outlook.NO_WAY], chosen).items():
        expiry.fail(those, reason, now=now)
    _put_back([*of[Outlook.GO], *of[Outlook.WAIT]], chosen, ways, now)


def _by_reason(messages: Sequence[Picked], chosen: Chosen) -> dict[Reason, list[int]]:
    """Why messages fail that no route is left for: by what their last attempt said of the recipient, if it did."""
    ids: dict[Reason, list[int]] = {}
    for message in messages:
        error_class = chosen.last_errors.get(message.id)
        reason = Reason.NO_ROUTE if error_class is None else FINAL_REASON.get(error_class, Reason.NO_ROUTE)
        ids.setdefault(reason, []).append(message.id)
    return ids


def _put_off(races: Sequence[Picked], now: datetime) -> None:
    """No way for an extra copy now: it is decided again soon. Where there never will be one, it is not."""
    if races:
        ids = [message.id for message in races]
        unclear = Attempt.objects.filter(message_id__in=ids, state=AttemptState.UNKNOWN.value)
        unclear.update(check_at=now + _RACE_PAUSE)


def _put_back(messages: Sequence[Picked], chosen: Chosen, ways: Ways, now: datetime) -> None:
    """No way now: wait until one of its pools has a free server, within bounds; the longest for what passes slowly."""
    least, most = _NO_WAY_PAUSE
    pools = {message.flow_id: ways.pools(message.flow_id) for message in messages}
    free_at = {each: selection.next_free_at(each, now=now) or now + most for each in set(pools.values()) if each}
    at = {flow: min(max(free_at.get(each, now), now + least), now + most) for flow, each in pools.items()}
    slow = {m.id for m in messages if m.lane is not Lane.OTP and _passes_slowly(chosen.refusals.get(m.id, {}))}
    until = {m.id: now + most if m.id in slow else at[m.flow_id] for m in messages}
    _let_wait({m.id: min(until[m.id], m.expires_at) for m in messages}, chosen.refusals)


def _passes_slowly(refusals: Refusals) -> bool:
    return bool(refusals) and _SLOW.issuperset(refusals.values())


def _let_wait(until: Mapping[int, datetime], refusals: Mapping[int, Refusals]) -> None:
    queue.remove(list(until))
    waiting = [
        {
            "id": message_id,
            "status": MessageStatus.WAITING.value,
            "run_after": at,
            "refusals": refusals.get(message_id),
        }
        for message_id, at in until.items()
    ]
    columns = {"status": "varchar", "run_after": "timestamptz", "refusals": "jsonb"}
    update_rows(Message._meta.db_table, columns, waiting)


def _start(
    messages: Sequence[Picked], chosen: Chosen, ways: Ways, *, now: datetime, give_up_at: float
) -> list[Claimed]:
    if not messages:
        return []
    attempts = insert_attempts(messages, chosen, ways, now)
    servers = [way.server for way in chosen.ways.values() if way.server]
    addresses = _addresses({server.host_id for server in servers}, now)
    tickets = probes(messages, chosen, ways, attempts)
    claimed = []
    for message in messages:
        attempt_id, attempt_uuid, token = attempts[message.id]
        way = chosen.ways[message.id]
        of_route = ways.tickets.get(way.route.name)
        claimed.append(
            Claimed(
                attempt_id=attempt_id,
                token=token,
                lane=message.lane,
                spec=way.route,
                host=addresses[way.server.host_id] if way.server else None,
                send=send(message, way, attempt_uuid, now),
                give_up_at=give_up_at,
                accepted_at=None if message.attempts_made else message.created_at,
                claimed_at=now,
                generation=of_route.generation if of_route else 0,
                ticket=tickets.get(attempt_id),
                is_copy=message.is_race,
                terms=ways.terms_of(way.route.name),
            )
        )
    return claimed


def _addresses(host_ids: set[int], now: datetime) -> dict[int, HostAddress]:
    hosts = Host.objects.filter(id__in=host_ids) if host_ids else ()
    return {host.id: address_of(host, now=now) for host in hosts}
