"""Choosing a server for each message, and reserving it: no two messages ever hold one server's slot."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Case, CharField, Count, Q, QuerySet, Value, When

from servers.assignment import assign
from servers.deliverability_limits import clock_hour
from servers.groups import policies_of
from servers.hosts import online_hosts
from servers.models import RecipientLink, Server
from servers.rules import Status, WhyNot, draw_send_interval

#: So many servers more than messages are locked in a pool: some will not fit the message that is left.
SPARE = 8
#: Free servers of a pool are counted up to here; a planner that could use more does not exist.
FREE_CAP = 1_000


@dataclass(frozen=True, slots=True, repr=False)
class SendRequest:
    """A message that needs a server: `pools` in order of preference, what it has tried as exclusions.

    Servers are excluded entirely; hosts are avoided as long as another one is free.
    """

    key: Hashable
    pools: tuple[str, ...]
    recipient_hash: bytes
    recipient: str
    is_otp: bool = False
    excluded_servers: frozenset[int] = frozenset()
    excluded_hosts: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        return f"<SendRequest {self.key}>"


@dataclass(frozen=True, slots=True)
class Reservation:
    """A server that is kept for one message."""

    server_id: int
    unit: int
    host_id: int
    region: str


def reserve(
    requests: Sequence[SendRequest], *, now: datetime, rng: random.Random, most: Mapping[str, int] | None = None
) -> dict[Hashable, Reservation]:
    """Reserve a server for each message, by the message's key; those that nothing is left for are missing.

    `most` bounds what is reserved in a pool, and what is locked for that: others find the rest of its servers free.
    A pool that it does not name is unbounded.

    Runs in the caller's transaction and holds the servers' rows until its end; rolled back, nothing was
    reserved. The number of queries follows the pools asked for, never the number of messages.
    """
    hosts = online_hosts(now) if requests else frozenset()
    if not hosts:
        return {}
    sticky = _sticky_servers(requests, now)
    bounds = most or {}
    held = _lock_known(set(sticky.values()), hosts, now) | _lock_first_choice(requests, hosts, now, bounds)
    for_known_only = {server.id for server in held.values() if not _takes_new_recipients(server, now)}
    given = assign(requests, _by_last_use(held.values()), sticky, for_known_only)
    left = [request for request in requests if request.key not in given and not request.excluded_hosts]
    others = _lock_other_choices(left, given.values(), hosts, now, bounds)
    given |= assign(left, _by_last_use(others.values()), {})
    given = _at_most(given, bounds)
    asked = {request.key: request for request in requests}
    _take([_Taken(server, asked[key], sticky.get(key)) for key, server in given.items()], now, rng)
    return {key: _reservation(server) for key, server in given.items()}


def _at_most(given: Mapping[Hashable, Server], most: Mapping[str, int]) -> dict[Hashable, Server]:
    """What is within the bounds; of a pool that is over its own, those that were given first."""
    taken: Counter[str] = Counter()
    within: dict[Hashable, Server] = {}
    for key, server in given.items():
        if taken[server.region] < most.get(server.region, len(given)):
            taken[server.region] += 1
            within[key] = server
    return within


# --- finding and locking -------------------------------------------------------------------------------


def _sticky_servers(requests: Iterable[SendRequest], now: datetime) -> dict[Hashable, int]:
    """By message: the server that delivered to its recipient lately."""
    hashes = {request.recipient_hash for request in requests}
    links = RecipientLink.objects.filter(recipient_hash__in=hashes, delivered_at__gte=now - settings.STICKY_FOR)
    server_of = {bytes(key): server_id for key, server_id in links.values_list("recipient_hash", "server_id")}
    return {r.key: server_of[r.recipient_hash] for r in requests if r.recipient_hash in server_of}


def free_servers(hosts: Collection[int], now: datetime) -> QuerySet[Server]:
    """Servers that may send now, given the hosts that are online. Its conditions are those of `server_reserve`."""
    return otherwise_eligible(hosts).filter(next_send_date__lte=now)


def otherwise_eligible(hosts: Collection[int]) -> QuerySet[Server]:
    """Servers that may send as soon as they have rested."""
    return Server.objects.filter(status=Status.ACTIVE, cooldown=False, signed_in=True, host_id__in=hosts)


def _used_up_messages(now: datetime) -> list[Q]:
    """Of servers that are given nothing more today; no test at all without a budget, as in the next one."""
    limit = settings.BUDGET_MESSAGES_PER_DAY
    return [Q(sends_day=_day(now), sends_today__gte=limit)] if limit else []


def _used_up_new_recipients(now: datetime) -> list[Q]:
    """Of servers that write to nobody new today: only to those that they delivered to before."""
    limit = settings.BUDGET_NEW_RECIPIENTS_PER_DAY
    return [Q(sends_day=_day(now), new_recipients_today__gte=limit)] if limit else []


def _without(servers: QuerySet[Server], tests: Iterable[Q]) -> QuerySet[Server]:
    for test in tests:
        servers = servers.exclude(test)
    return servers


def _within_budgets(servers: QuerySet[Server], now: datetime) -> QuerySet[Server]:
    """Those that may be given any message today."""
    return _without(servers, _used_up_messages(now) + _used_up_new_recipients(now))


def _takes_new_recipients(server: Server, now: datetime) -> bool:
    limit = settings.BUDGET_NEW_RECIPIENTS_PER_DAY
    return not limit or server.sends_day != _day(now) or server.new_recipients_today < limit


def _day(now: datetime) -> date:
    return now.astimezone(UTC).date()


def _locked(servers: QuerySet[Server]) -> QuerySet[Server]:
    # Rows that somebody holds are passed over: nobody waits for a server while another one is free.
    budget = ("sends_day", "new_recipients_today") if settings.BUDGET_NEW_RECIPIENTS_PER_DAY else ()
    columns = ("id", "region", "unit", "host_id", "handle", "next_send_date", "tie", "preheating", *budget)
    return servers.only(*columns).select_for_update(skip_locked=True, no_key=True)


def _lock_known(ids: Collection[int], hosts: Collection[int], now: datetime) -> dict[int, Server]:
    known = _without(free_servers(hosts, now), _used_up_messages(now))
    return {server.id: server for server in _locked(known.filter(id__in=ids))}


def lock_candidates(
    region: str, hosts: Collection[int], now: datetime, *, most: int, without: Collection[int] = ()
) -> QuerySet[Server]:
    """Lock the least recently used free servers of one pool: the beginning of its part of the index."""
    pool = _within_budgets(free_servers(hosts, now), now).filter(region=region).exclude(id__in=without)
    return _locked(pool.order_by("next_send_date", "tie"))[:most]


def _lock_first_choice(
    requests: Iterable[SendRequest], hosts: frozenset[int], now: datetime, most: Mapping[str, int]
) -> dict[int, Server]:
    """Candidates in the pool that a message prefers; in all its pools, and on other hosts, if it comes again."""
    wanted = Counter(pool for r in requests for pool in (r.pools if r.excluded_hosts else r.pools[:1]))
    held = _lock_pools(wanted, hosts, now, most)
    again = [r for r in requests if r.excluded_hosts]
    tried = {host for r in again for host in r.excluded_hosts}
    pools = {pool for r in again for pool in r.pools}
    # The first in line may all be of the hosts that failed: of each pool, as many of other hosts are held too.
    return held | _lock_pools({pool: wanted[pool] for pool in pools}, hosts - tried, now, most)


def _lock_other_choices(
    left: Iterable[SendRequest],
    taken: Iterable[Server],
    hosts: frozenset[int],
    now: datetime,
    most: Mapping[str, int],
) -> dict[int, Server]:
    """Candidates in the other pools of messages that their first pool had nothing for."""
    wanted = Counter(pool for request in left for pool in request.pools[1:])
    return _lock_pools(wanted, hosts, now, most, without={server.id for server in taken})


def _lock_pools(
    wanted: Mapping[str, int],
    hosts: Collection[int],
    now: datetime,
    most: Mapping[str, int],
    *,
    without: Collection[int] = (),
) -> dict[int, Server]:
    held: dict[int, Server] = {}
    for region in sorted(wanted):
        bound = min(wanted[region] + SPARE, max(0, most.get(region, FREE_CAP)))
        candidates = lock_candidates(region, hosts, now, most=bound, without=without)
        held |= {server.id: server for server in candidates}
    return held


def _by_last_use(servers: Iterable[Server]) -> list[Server]:
    return sorted(servers, key=lambda server: (server.next_send_date, server.tie))


# --- taking --------------------------------------------------------------------------------------------

_TAKE = f"""
UPDATE {Server._meta.db_table} AS server SET
  next_send_date = taken.next_send_date,
  tie = taken.tie,
  last_sent_at = %(now)s,
  sends_day = %(day)s,
  sends_today = 1 + CASE WHEN server.sends_day = %(day)s THEN server.sends_today ELSE 0 END,
  new_recipients_today =
    taken.new + CASE WHEN server.sends_day = %(day)s THEN server.new_recipients_today ELSE 0 END,
  otp_hour = %(hour)s,
  otp_in_hour = taken.otp + CASE WHEN server.otp_hour = %(hour)s THEN server.otp_in_hour ELSE 0 END
FROM unnest(%(ids)s::bigint[], %(dates)s::timestamptz[], %(ties)s::float8[], %(news)s::int[], %(otps)s::int[])
  AS taken (id, next_send_date, tie, new, otp)
WHERE server.id = taken.id
"""  # noqa: S608 - the table's own name


@dataclass(frozen=True, slots=True)
class _Taken:
    """A server, the message that it is taken for, and the server that delivered to its recipient lately."""

    server: Server
    request: SendRequest
    sticky: int | None

    @property
    def is_new_recipient(self) -> bool:
        return self.sticky != self.server.id


def _take(taken: Sequence[_Taken], now: datetime, rng: random.Random) -> None:
    """The next message of each server comes after an interval of its own: its group's, or the default."""
    if not taken:
        return
    ids = [one.server.id for one in taken]
    policies = policies_of(ids, now=now)
    pauses = [draw_send_interval(policies[t.server.id], rng, preheating=t.server.preheating) for t in taken]
    parameters: dict[str, Any] = {
        "ids": ids,
        "dates": [now + pause for pause in pauses],
        "ties": [rng.random() for _ in taken],
        "news": [int(one.is_new_recipient) for one in taken],
        "otps": [int(one.request.is_otp) for one in taken],
        "now": now,
        "day": _day(now),
        "hour": clock_hour(now),
    }
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, parameters)


def _reservation(server: Server) -> Reservation:
    return Reservation(server.id, server.unit, server.host_id, server.region)


def rest(server_id: int, *, until: datetime) -> None:
    """No client message before `until`, because the host asked for a pause; a longer rest stays."""
    Server.objects.filter(pk=server_id, next_send_date__lt=until).update(next_send_date=until)


# --- counting ------------------------------------------------------------------------------------------

# The pools are found by jumping along an index, and each is counted no further than the cap. The order is
# that of `server_reserve`: without it the planner hopes to meet enough free servers early in the whole table.
_FREE_BY_POOL = f"""
WITH RECURSIVE pool AS (
  (SELECT region FROM {Server._meta.db_table} ORDER BY region LIMIT 1)
  UNION ALL
  SELECT (SELECT s.region FROM {Server._meta.db_table} s WHERE s.region > pool.region ORDER BY s.region LIMIT 1)
  FROM pool WHERE pool.region IS NOT NULL
)
SELECT pool.region, (
  SELECT count(*) FROM (
    SELECT 1 FROM {Server._meta.db_table} s
    WHERE s.region = pool.region AND s.status = '{Status.ACTIVE.value}' AND NOT s.cooldown AND s.signed_in
      AND s.next_send_date <= %(now)s AND s.host_id = ANY(%(hosts)s::bigint[])
    ORDER BY s.next_send_date, s.tie LIMIT %(cap)s
  ) counted
)
FROM pool WHERE pool.region IS NOT NULL
"""  # noqa: S608 - the table's own name


# A budget of 0 is no limit, and asks nothing of the rows.
_FREE_WITHIN_BUDGETS = _FREE_BY_POOL.replace(
    "ORDER BY s.next_send_date",
    """AND (s.sends_day IS DISTINCT FROM %(day)s::date
        OR (s.sends_today < coalesce(nullif(%(messages)s, 0), s.sends_today + 1)
          AND s.new_recipients_today < coalesce(nullif(%(new)s, 0), s.new_recipients_today + 1)))
    ORDER BY s.next_send_date""",
)


def free_by_pool(*, now: datetime, cap: int = FREE_CAP) -> dict[str, int]:
    """How many servers of each pool may send to anybody now, counted up to `cap`."""
    parameters: dict[str, Any] = {"now": now, "hosts": list(online_hosts(now)), "cap": cap}
    messages, new = settings.BUDGET_MESSAGES_PER_DAY, settings.BUDGET_NEW_RECIPIENTS_PER_DAY
    budgets = {"day": _day(now), "messages": messages, "new": new}
    with connection.cursor() as cursor:
        if messages or new:
            cursor.execute(_FREE_WITHIN_BUDGETS, parameters | budgets)
        else:
            cursor.execute(_FREE_BY_POOL, parameters)
        return dict(cursor.fetchall())


def size_by_pool(*, now: datetime) -> dict[str, int]:
    """How many servers of each pool may send to anybody, free or resting."""
    eligible = _within_budgets(otherwise_eligible(online_hosts(now)), now).values_list("region")
    return dict(eligible.annotate(count=Count("id")).order_by())


def next_free_at(pools: Iterable[str], *, now: datetime) -> datetime | None:
    """When the first server of these pools is free: not after `now` if one is, None if none can be waited for.

    One that used up a budget is not waited for: it is free tomorrow.
    """
    waiting = _within_budgets(otherwise_eligible(online_hosts(now)), now).order_by("next_send_date", "tie")
    first = (waiting.filter(region=pool).values_list("next_send_date", flat=True).first() for pool in pools)
    return min((at for at in first if at is not None), default=None)


def may_send(*, now: datetime) -> int:
    """How many servers may send to anybody now."""
    return _within_budgets(free_servers(online_hosts(now), now), now).count()


def why_not(*, now: datetime) -> dict[WhyNot, int]:
    """How many servers may not send now, by reason; each is counted once, under the first that applies."""
    rows = Server.objects.annotate(reason=_reason(now)).exclude(reason="").values_list("reason")
    return {WhyNot(reason): count for reason, count in rows.annotate(count=Count("id")).order_by()}


def why_not_of(server: Server, *, now: datetime) -> WhyNot | None:
    """Why one server may not send at `now`; None if it may."""
    reason = Server.objects.filter(pk=server.pk).values_list(_reason(now), flat=True).get()
    return WhyNot(reason) if reason else None


_REASON_OF_STATUS = {
    Status.DELETED: WhyNot.DELETED,
    Status.DISABLED: WhyNot.DISABLED,
    Status.LOST: WhyNot.LOST,
    Status.NEW: WhyNot.NEW,
    Status.NEED_CHECK: WhyNot.NEED_CHECK,
}


def _reason(now: datetime) -> Case:
    """Why a server may not send at `now`, as an expression; "" if it may."""
    seen_since = now - settings.HOST_OFFLINE_AFTER
    tests = [
        *((Q(status=status), reason) for status, reason in _REASON_OF_STATUS.items()),
        (Q(cooldown=True), WhyNot.COOLDOWN),
        (Q(signed_in=False), WhyNot.SIGNED_OUT),
        (Q(host__enabled=False), WhyNot.HOST_DISABLED),
        (Q(host__last_seen_at__isnull=True) | Q(host__last_seen_at__lt=seen_since), WhyNot.HOST_OFFLINE),
        *((test, WhyNot.BUDGET) for test in _used_up_messages(now) + _used_up_new_recipients(now)),
        (Q(next_send_date__gt=now), WhyNot.RESTING),
    ]
    whens = [When(test, then=Value(reason.value)) for test, reason in tests]
    return Case(*whens, default=Value(""), output_field=CharField())
