"""What failures and deliveries do to a server: counters, cooldowns, Need Check.

Each function locks the server's row first and writes the change and its history row together. All may be
called inside a transaction of the caller's; one that touches several servers takes them by ascending id,
as everybody does, or two of them could wait for each other. There is no savepoint: what fails halfway fails
the caller's transaction, and one that settles hundreds of servers does not pile up subtransactions.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Greatest

from otp_service.core import clock
from otp_service.events import log
from servers import evidence, history, rules, storm
from servers.groups import default_policy
from servers.models import Group, RecipientLink, Server, ServerDelivery, ServerStatusHistory
from servers.recovery_rules import NO_COOLDOWN
from servers.rules import Event, NeedCheckPath, ResetCause, Status

#: From which status the machine puts a server into Need Check.
_IN_ROTATION = frozenset({Status.ACTIVE, Status.NEW})

Step = rules.StartCooldown | rules.NeedCheck
AfterFailure = rules.NoChange | rules.ResetTimes | Step


def record_failed_send(
    server_id: int,
    *,
    now: datetime,
    reason: str,
    error_code: int | None = None,
    count: bool = True,
    rng: random.Random = clock.rng,
) -> AfterFailure:
    """A client message failed on this server: count it, then look at the limits. Returns what followed.

    With `count=False` (the last attempt of a message that failed on another server too) only the look is
    taken: a number that fails everywhere says nothing about the last server.
    """
    with transaction.atomic(savepoint=False):
        server = history.locked(server_id)
        if count:
            _count_failure(server, now=now, reason=reason, error_code=error_code)
        return _check(server, now=now, rng=rng)


def _count_failure(server: Server, *, now: datetime, reason: str, error_code: int | None) -> None:
    note = reason if error_code is None else f"{reason} ({error_code})".strip()
    data = {"reason": reason, "error_code": error_code}
    history.change(server, Event.SEND_FAILED, {"failed_in_row": server.failed_in_row + 1}, at=now, note=note, data=data)


def check_deliverability_limits(server_id: int, *, now: datetime, rng: random.Random = clock.rng) -> AfterFailure:
    """Start a cooldown or Need Check if the counter stands at the threshold; else reset the ladder if it is due.

    A server that is in cooldown, or is not active, is left as it is.
    """
    with transaction.atomic(savepoint=False):
        return _check(history.locked(server_id), now=now, rng=rng)


def _check(server: Server, *, now: datetime, rng: random.Random) -> AfterFailure:
    if rules.rests(server):
        return rules.NoChange()
    group, policy = _figures(server, now)
    decision = rules.decide_after_failure(server, policy, _deliveries(server, policy, now), now=now, rng=rng)
    match decision:
        case rules.NoChange():
            pass
        case rules.ResetTimes(cause):
            _reset(server, now=now, cause=cause, cooldown_times=0)
        case rules.StartCooldown() | rules.NeedCheck():
            step = storm.brake(server, decision, policy, now=now, rng=rng)
            _take_step(server, step, now=now, reason=rules.FAILED_IN_ROW_REASON, group=group)
            return step
    return _check_volume(server, now=now, rng=rng) or decision


def start_cooldown(
    server_id: int, *, now: datetime, reason: str, rng: random.Random = clock.rng
) -> rules.NoChange | Step:
    """Start the server's next cooldown, or Need Check when its ladder is used up. Returns what was done.

    Nothing is done to a server that is in cooldown already, or is not active.
    """
    with transaction.atomic(savepoint=False):
        server = history.locked(server_id)
        if rules.rests(server):
            return rules.NoChange()
        return _start_next(server, now=now, reason=reason, rng=rng)


def _start_next(server: Server, *, now: datetime, reason: str, rng: random.Random) -> Step:
    group, policy = _figures(server, now)
    step = rules.next_cooldown(server.cooldown_times, policy, now=now, rng=rng)
    _take_step(server, step, now=now, reason=reason, group=group)
    return step


def _take_step(server: Server, step: Step, *, now: datetime, reason: str, group: Group | None) -> None:
    match step:
        case rules.StartCooldown():
            _start_cooldown(server, step, now=now, reason=reason, group=group)
        case rules.NeedCheck(path, streak):
            _set_need_check(server, now=now, path=path, reason=reason, fail_open_streak=streak)


def _start_cooldown(
    server: Server, plan: rules.StartCooldown, *, now: datetime, reason: str, group: Group | None
) -> None:
    new = NO_COOLDOWN | {
        "cooldown": True,
        "cooldown_times": plan.number,
        "cooldown_start_date": now,
        "cooldown_end_date": plan.end,
        "cooldown_reason": reason,
        "cooldown_warmup_at": plan.warmup_at,
    }
    data = {
        "reason": reason,
        "number": plan.number,
        "minutes": plan.minutes,
        "drawn_from": list(plan.drawn_from),
        "failed_in_row": server.failed_in_row,
        "group": evidence.group_data(group),
    }
    note = f"cooldown #{plan.number} until {plan.end:%Y-%m-%d %H:%M:%S} UTC"
    history.change(server, Event.COOLDOWN_STARTED, new, at=now, note=note, data=data)


def set_need_check(
    server_id: int,
    *,
    now: datetime,
    path: NeedCheckPath,
    reason: str = "",
    fail_open_streak: int | None = None,
) -> bool:
    """Take a server out of rotation until a person decides; False when it is out of it already.

    `fail_open_streak` is written with it where the exit from the cooldown counted as one more without proof. A
    person's own verdict is carried out by servers/recovery.py.
    """
    with transaction.atomic(savepoint=False):
        server = history.locked(server_id)
        if server.status not in _IN_ROTATION:
            return False
        _set_need_check(server, now=now, path=path, reason=reason, fail_open_streak=fail_open_streak)
        return True


def _set_need_check(
    server: Server, *, now: datetime, path: NeedCheckPath, reason: str, fail_open_streak: int | None
) -> None:
    found = evidence.collected([server], now)[server.pk]
    data = {"path": path.value, "reason": reason, "by": "", **found}
    streak = {} if fail_open_streak is None else {"fail_open_streak": fail_open_streak}
    new = NO_COOLDOWN | {"status": Status.NEED_CHECK.value} | streak
    note = evidence.need_check_note(path, reason)
    history.change(server, Event.NEED_CHECK, new, at=now, note=note, data=data)
    log.record_many([evidence.need_check_event(server, path, now)])


# --- what is off as shipped ----------------------------------------------------------------------------


def check_blocking_servers(*, now: datetime, rng: random.Random = clock.rng) -> int:
    """Start a cooldown where too large a share of the last day's outcomes are failures; returns how many.

    Off with FAILURE_RATE_LIMIT at 0. What happened before a server's last release does not count again.
    """
    started = 0
    for server_id in _blocking(now) if settings.FAILURE_RATE_LIMIT else ():
        step = start_cooldown(server_id, now=now, reason=rules.FAILURE_RATE_REASON, rng=rng)
        started += not isinstance(step, rules.NoChange)
    return started


def _blocking(now: datetime) -> list[int]:
    """By ascending id, as servers are locked everywhere. Each server's rows are found by its own index."""
    since = Greatest(OuterRef("released_at"), Value(_day_before(now)))  # never released: the day alone
    failures = ServerStatusHistory.objects.filter(server=OuterRef("pk"), event=Event.SEND_FAILED, at__gte=since)
    deliveries = ServerDelivery.objects.filter(server=OuterRef("pk"), at__gte=since)
    rotation = Server.objects.filter(status=Status.ACTIVE, cooldown=False).order_by("pk")
    counts = rotation.values_list("pk").annotate(failed=_count_of(failures), delivered=_count_of(deliveries))
    return [pk for pk, failed, delivered in counts if failed and _is_blocking(failed, failed + delivered)]


def _count_of(rows: QuerySet[Any]) -> Coalesce:
    count = rows.order_by().values("server").annotate(count=Count("pk")).values("count")
    return Coalesce(Subquery(count), Value(0))


def _is_blocking(failed: int, outcomes: int) -> bool:
    return outcomes >= settings.FAILURE_RATE_MIN_MESSAGES and failed / outcomes >= settings.FAILURE_RATE_LIMIT


def _check_volume(server: Server, *, now: datetime, rng: random.Random) -> Step | None:
    """Start a cooldown where a limit on messages is reached; asks nothing while the limits are 0."""
    reason = _volume_reached(server, now)
    return _start_next(server, now=now, reason=reason, rng=rng) if reason else None


def _volume_reached(server: Server, now: datetime) -> str:
    """The reason that its cooldown gives; "" where no limit is reached."""
    hour_limit, day_limit = settings.OTP_LIMITS_1_HOUR, settings.MESSAGES_LIMIT_24_HOURS
    if hour_limit and server.otp_hour == clock_hour(now) and server.otp_in_hour >= hour_limit:
        return rules.OTP_HOUR_LIMIT_REASON
    if day_limit and _outcomes_of_day(server, now) >= day_limit:
        return rules.DAY_LIMIT_REASON
    return ""


def _outcomes_of_day(server: Server, now: datetime) -> int:
    since = max(_day_before(now), server.released_at or _day_before(now))
    failed = ServerStatusHistory.objects.filter(server=server, event=Event.SEND_FAILED, at__gte=since)
    return failed.count() + ServerDelivery.objects.filter(server=server, at__gte=since).count()


def _day_before(now: datetime) -> datetime:
    return now - timedelta(hours=24) / settings.HEALTH_SPEED


def clock_hour(now: datetime) -> datetime:
    """The beginning of the hour (UTC) that otp messages are counted in."""
    return now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


# --- deliveries ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Delivery:
    """A client message that a server delivered; without a recipient none is remembered."""

    server_id: int
    recipient_hash: bytes | None = None


def record_delivery(
    server_id: int, *, now: datetime, recipient_hash: bytes | None = None, rng: random.Random = clock.rng
) -> None:
    """A client message was delivered: keep it, remember the server for the recipient, set `failed_in_row` to 0."""
    record_deliveries([Delivery(server_id, recipient_hash)], now=now, rng=rng)


def record_deliveries(deliveries: Sequence[Delivery], *, now: datetime, rng: random.Random = clock.rng) -> None:
    """As `record_delivery` for each, server by server by ascending id, those of one in the order given.

    Set-wise where a delivery moves no more than the counter; servers that a rule looks at go one by one.
    """
    ordered = sorted(deliveries, key=lambda delivery: delivery.server_id)
    with transaction.atomic(savepoint=False):
        servers = _counted(ordered)
        plain = {key: server for key, server in servers.items() if not _has_rule(server)}
        _keep([d.server_id for d in ordered if d.server_id in plain], now)
        _end_failures(plain.values(), now)
        for delivery in ordered:
            if delivery.server_id not in plain:
                _record_by_rule(delivery.server_id, now=now, rng=rng)
        _remember(ordered, now)


def _keep(server_ids: Sequence[int], now: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {ServerDelivery._meta.db_table} (server_id, at) "  # noqa: S608 - the table's own name
            "SELECT server_id, %s FROM unnest(%s::bigint[]) AS server_id",
            [now, list(server_ids)],
        )


_COUNTED = ("id", "status", "failed_in_row", "cooldown", "cooldown_times")  # in the order of the model: see from_db
_LOCK_COUNTED = f"""
SELECT {", ".join(_COUNTED)} FROM {Server._meta.db_table} WHERE id = ANY(%s::bigint[]) ORDER BY id FOR NO KEY UPDATE
"""  # noqa: S608 - names of our own


def _counted(deliveries: Iterable[Delivery]) -> dict[int, Server]:
    """Their servers, locked, with the columns that tell whether a rule looks at them."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK_COUNTED, [sorted({delivery.server_id for delivery in deliveries})])
        return {row[0]: Server.from_db(connection.alias, _COUNTED, row) for row in cursor.fetchall()}


def _has_rule(server: Server) -> bool:
    """Whether a delivery may do more than end the failures in a row: reset the ladder, or reach a limit."""
    limits = settings.OTP_LIMITS_1_HOUR or settings.MESSAGES_LIMIT_24_HOURS
    # At 0 cooldowns every rule of the ladder says the same, without asking for groups and deliveries.
    return not rules.rests(server) and bool(server.cooldown_times or limits)


def _end_failures(servers: Iterable[Server], now: datetime) -> None:
    cause, new = ResetCause.DELIVERY.value, {"failed_in_row": 0}
    failing = [server for server in servers if server.failed_in_row]
    changes = [history.ServerChange(one, Event.COUNTERS_RESET, new, cause, {"cause": cause}) for one in failing]
    history.change_many(changes, at=now)


def _record_by_rule(server_id: int, *, now: datetime, rng: random.Random) -> None:
    server = history.locked(server_id)
    ServerDelivery.objects.create(server=server, at=now)
    if server.failed_in_row:
        _reset(server, now=now, cause=ResetCause.DELIVERY, failed_in_row=0)
    if rules.rests(server):
        return
    if server.cooldown_times:
        _reset_if_enough(server, now)
    _check_volume(server, now=now, rng=rng)


def _reset_if_enough(server: Server, now: datetime) -> None:
    _, policy = _figures(server, now)
    match rules.decide_after_delivery(server, policy, _deliveries(server, policy, now)):
        case rules.ResetTimes(cause):
            _reset(server, now=now, cause=cause, cooldown_times=0)
        case rules.NoChange():
            pass


# The lock is only tried: two transactions that settle several deliveries each could otherwise wait for each
# other's recipients. Losing it means that somebody is writing down another server for the same recipient
# right now; the link is a preference, and either server will do. An older delivery does not replace a newer.
_REMEMBER = f"""
INSERT INTO {RecipientLink._meta.db_table} AS link (recipient_hash, server_id, first_at, delivered_at)
SELECT new.hash, new.server, %(now)s, %(now)s
FROM unnest(%(hashes)s::bytea[], %(servers)s::bigint[], %(locks)s::int[]) AS new (hash, server, lock)
WHERE pg_try_advisory_xact_lock(%(lock_class)s::int, new.lock)
ON CONFLICT (recipient_hash) DO UPDATE SET
  server_id = EXCLUDED.server_id,
  first_at = CASE WHEN link.server_id = EXCLUDED.server_id THEN link.first_at ELSE EXCLUDED.first_at END,
  delivered_at = EXCLUDED.delivered_at
WHERE link.delivered_at <= EXCLUDED.delivered_at
"""  # noqa: S608 - the table's own name

_LINK_LOCKS = 0x6C696E6B  # "link": the class of these advisory locks, apart from everybody else's


def _remember(deliveries: Sequence[Delivery], now: datetime) -> None:
    known = [(d.recipient_hash, d.server_id) for d in deliveries if d.recipient_hash is not None]
    last = dict(known)
    # One statement changes a link once. Of several servers the last one stays, and the one before tells that it is new.
    _write_links({recipient: server_id for recipient, server_id in known if server_id != last[recipient]}, now)
    _write_links(last, now)


def _write_links(server_of: Mapping[bytes, int], now: datetime) -> None:
    if not server_of:
        return
    parameters: dict[str, Any] = {
        "hashes": list(server_of),
        "servers": list(server_of.values()),
        "locks": [int.from_bytes(recipient[:4], "big", signed=True) for recipient in server_of],
        "lock_class": _LINK_LOCKS,
        "now": now,
    }
    with connection.cursor() as cursor:
        cursor.execute(_REMEMBER, parameters)


def reset_deliverability_counters(server_id: int, *, now: datetime, cause: ResetCause = ResetCause.ADMIN) -> bool:
    """Set `failed_in_row`, `cooldown_times` and `fail_open_streak` to 0; False when they are already."""
    with transaction.atomic(savepoint=False):
        server = history.locked(server_id)
        if not (server.failed_in_row or server.cooldown_times or server.fail_open_streak):
            return False
        _reset(server, now=now, cause=cause, failed_in_row=0, cooldown_times=0, fail_open_streak=0)
        return True


def _reset(server: Server, *, now: datetime, cause: ResetCause, **counters: int) -> None:
    history.change(server, Event.COUNTERS_RESET, counters, at=now, note=cause.value, data={"cause": cause.value})


def _figures(server: Server, now: datetime) -> tuple[Group | None, rules.Policy]:
    group = server.get_group_for_current_time(now)
    return group, rules.policy_in_force(default_policy(), group)


def _deliveries(server: Server, policy: rules.Policy, now: datetime) -> rules.Deliveries:
    """As many deliveries as a reset needs: more would not be read, and none when there is nothing to reset."""
    needed = policy.deliveries_to_reset(preheating=server.preheating) if server.cooldown_times else 0
    times = evidence.newest_deliveries(server, needed)
    return rules.count_deliveries(times, now=now, window=policy.reset_window, released_at=server.released_at)
