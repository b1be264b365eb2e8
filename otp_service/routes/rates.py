"""How fast routes may be used: calls a second through Redis, calls a day in PostgreSQL.

The daily quota is exact. The rate is shared by all dispatchers while Redis answers; while it does not, each takes
its own share of it. Emptying Redis fills every bucket once, and freezes nothing.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import redis
import structlog
from django.db import connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from otp_service.routes.models import RouteDay
from otp_service.routes.route_rules import RouteSpec, kept_for_otp
from otp_service.web.batches import remove_batch

log = structlog.get_logger(__name__)

#: Of connecting, and of each answer: a claim waits for it.
REDIS_TIMEOUT = timedelta(milliseconds=200)
#: After Redis did not answer, one claim asks again: a Redis that hangs holds up one claim in this time.
REDIS_PAUSE = timedelta(seconds=5)
#: How long it is known how much of a quota was used.
DAYS_KEPT = timedelta(days=35)
_PREFIX = "otp:rate:"
_FAULTS = (redis.RedisError, OSError)

# By Redis' own clock: those of the dispatchers differ. A bucket that is not there is full; one that would be full
# again by itself expires. Fewer than none are wanted when tokens are given back. `at` is never later than now for
# long, so that a clock that was set back does not stop the refilling.
_TOKENS = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local granted = {}
for i, key in ipairs(KEYS) do
  local wanted, keep = tonumber(ARGV[4 * i - 3]), tonumber(ARGV[4 * i - 2])
  local rate, burst = tonumber(ARGV[4 * i - 1]), tonumber(ARGV[4 * i])
  local kept = redis.call('HMGET', key, 'tokens', 'at')
  local tokens, at = tonumber(kept[1] or burst), tonumber(kept[2] or now)
  tokens = math.min(burst, tokens + math.max(0, now - at) * rate / 1000000)
  granted[i] = math.min(wanted, math.max(0, math.floor(tokens - keep)))
  redis.call('HSET', key, 'tokens', tokens - granted[i], 'at', now)
  redis.call('PEXPIRE', key, math.ceil(1000 * burst / rate) + 1000)
end
return granted
"""

_DAY_BEGINS = f"""
INSERT INTO {RouteDay._meta.db_table} (route, day, used) VALUES (%(route)s, %(day)s, 0) ON CONFLICT DO NOTHING
"""  # noqa: S608 - the table's own name

# Losing: a row that has reached the quota is not returned. One that is over it (it was lowered) stays as it is.
_TAKE_QUOTA = f"""
WITH held AS (
  SELECT id, used FROM {RouteDay._meta.db_table} WHERE route = %(route)s AND day = %(day)s FOR NO KEY UPDATE
)
UPDATE {RouteDay._meta.db_table} AS taken
SET used = least(held.used + %(wanted)s::bigint, %(quota)s)
FROM held WHERE taken.id = held.id AND held.used < %(quota)s
RETURNING taken.used - held.used
"""  # noqa: S608 - the table's own name

_GIVE_QUOTA_BACK = f"""
UPDATE {RouteDay._meta.db_table} SET used = greatest(0, used - %(unused)s) WHERE route = %(route)s AND day = %(day)s
"""  # noqa: S608 - the table's own name


def burst(rate: float) -> float:
    """The most tokens that a bucket holds: those of one second, but one at least, or none could ever be taken."""
    return max(1.0, rate)


@dataclass(slots=True)
class Bucket:
    """Tokens of one process. It begins empty: what Redis granted before may have been used this very second."""

    at: float  # monotonic seconds
    tokens: float = 0.0

    def take(self, wanted: int, rate: float, at: float, *, keep: int = 0) -> int:
        """How many of them are there beyond `keep`, at `rate` a second; they are taken."""
        self.tokens = min(burst(rate), self.tokens + max(0.0, at - self.at) * rate)
        self.at = max(self.at, at)  # threads read the clock before they wait for their turn
        granted = min(wanted, max(0, math.floor(self.tokens - keep)))
        self.tokens -= granted
        return granted

    def give_back(self, unused: int) -> None:
        """They were not used. What is over the brim is lost at the next `take`."""
        self.tokens += unused


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of one bucket: so many tokens, of which so many must stay; fewer than none are given back."""

    wanted: int
    keep: int
    tps: float


class Rates:
    """Grants calls on routes. One for all threads of a process; outside a transaction."""

    def __init__(self, redis_url: str) -> None:
        seconds = REDIS_TIMEOUT.total_seconds()
        self._redis = redis.Redis.from_url(
            redis_url,
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
            retry=Retry(NoBackoff(), 0),
            protocol=2,  # nothing else is asked when a connection is made
        )
        self._script = self._redis.register_script(_TOKENS)
        self._lock = threading.Lock()
        self._ask_again_at: float | None = None  # None: Redis answers
        self._buckets: dict[str, Bucket] = {}

    def take(
        self,
        wanted: Mapping[str, int],
        specs: Mapping[str, RouteSpec],
        *,
        now: datetime,
        at: float,
        dispatchers: int,
        for_otp: bool,
    ) -> dict[str, int]:
        """How many of the wanted calls may be made, by route; they count as made until they are given back.

        Other lanes than otp leave it a part of a second's and of a day's calls, so that a promotion that uses up all
        that a route allows does not make codes wait. `at`: monotonic seconds; `dispatchers`: those that live. Raises
        what the database raises.
        """
        granted = {name: max(0, count) for name, count in wanted.items()}
        tps = {name: specs[name].tps or 0.0 for name, count in granted.items() if count and specs[name].tps is not None}
        keep = {name: 0 if for_otp else kept_for_otp(specs[name], burst(rate)) for name, rate in tps.items()}
        asked = {name: _Asked(granted[name], keep[name], rate) for name, rate in tps.items()}
        granted |= self._take_tokens(asked, at=at, dispatchers=dispatchers)
        for name, count in granted.items():
            quota = specs[name].daily_quota
            if count and quota is not None:
                kept = 0 if for_otp else kept_for_otp(specs[name], quota)
                granted[name] = _take_quota(name, count, quota - kept, _day(now))
        return granted

    def give_back(self, unused: Mapping[str, int], specs: Mapping[str, RouteSpec], *, now: datetime) -> None:
        """Calls that were granted and not made. `now` as it was given to `take`: the day's quota is meant.

        Whoever dies before has used them up: too few calls are made, never too many.
        """
        some = {name: count for name, count in unused.items() if count > 0}
        self._give_tokens_back(some, {name: tps for name in some if (tps := specs[name].tps) is not None})
        for name, count in some.items():
            if specs[name].daily_quota is not None:
                _give_quota_back(name, count, _day(now))

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def _take_tokens(self, asked: Mapping[str, _Asked], *, at: float, dispatchers: int) -> dict[str, int]:
        if not asked:
            return {}
        if self._may_ask(at):
            try:
                granted = self._ask(asked)
            except _FAULTS as fault:
                self._went_away(at, fault)
            else:
                self._answered()
                return granted
        with self._lock:
            return {name: self._take_own_share(name, one, at, max(1, dispatchers)) for name, one in asked.items()}

    def _take_own_share(self, name: str, asked: _Asked, at: float, dispatchers: int) -> int:
        bucket = self._buckets.setdefault(name, Bucket(at))
        return bucket.take(asked.wanted, asked.tps / dispatchers, at, keep=asked.keep // dispatchers)

    def _give_tokens_back(self, unused: Mapping[str, int], tps: Mapping[str, float]) -> None:
        with self._lock:
            if self._ask_again_at is not None:
                for name in tps.keys() & self._buckets.keys():
                    self._buckets[name].give_back(unused[name])
                return
        if tps:
            with contextlib.suppress(*_FAULTS):  # they are lost; the next `take` sees what is the matter
                self._ask({name: _Asked(-unused[name], 0, rate) for name, rate in tps.items()})

    def _ask(self, asked: Mapping[str, _Asked]) -> dict[str, int]:
        arguments = [value for one in asked.values() for value in (one.wanted, one.keep, one.tps, burst(one.tps))]
        granted = self._script(keys=[_PREFIX + name for name in asked], args=arguments)
        return dict(zip(asked, map(int, granted), strict=True))

    def _may_ask(self, at: float) -> bool:
        """Whether Redis answers, as far as is known. While it does not, one of the threads tries after each pause."""
        with self._lock:
            if self._ask_again_at is None:
                return True
            if at < self._ask_again_at:
                return False
            self._ask_again_at = at + REDIS_PAUSE.total_seconds()
            return True

    def _went_away(self, at: float, fault: Exception) -> None:
        with self._lock:
            if self._ask_again_at is None:
                self._buckets.clear()
                log.warning("rates_without_redis", error=type(fault).__name__)
            self._ask_again_at = at + REDIS_PAUSE.total_seconds()

    def _answered(self) -> None:
        with self._lock:
            if self._ask_again_at is not None:
                self._ask_again_at = None
                log.info("rates_with_redis_again")


def _day(now: datetime) -> date:
    return now.astimezone(UTC).date()


def _take_quota(route: str, wanted: int, quota: int, day: date) -> int:
    parameters: dict[str, Any] = {"route": route, "day": day, "wanted": wanted, "quota": quota}
    with connection.cursor() as cursor:
        cursor.execute(_DAY_BEGINS, parameters)
        cursor.execute(_TAKE_QUOTA, parameters)
        row = cursor.fetchone()
    return int(row[0]) if row else 0


def remove_old(now: datetime, batch: int = 1000) -> int:
    """Remove a batch of days that nobody asks about any more; returns how many."""
    return remove_batch(RouteDay.objects.filter(day__lt=_day(now) - DAYS_KEPT).order_by("day"), batch)


def _give_quota_back(route: str, unused: int, day: date) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_GIVE_QUOTA_BACK, {"route": route, "day": day, "unused": unused})
