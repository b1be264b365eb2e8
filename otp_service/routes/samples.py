"""Windows of samples of routes: in Redis, shared by all processes; in this process while Redis is away.

They may vanish at any moment: then a breaker that is closed learns anew what goes wrong, and no other one asks them.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import redis
import structlog
from redis.backoff import NoBackoff
from redis.retry import Retry

from otp_service.routes import breaker_rules as rules
from otp_service.routes.breaker_rules import Bucket, Calls, Ending, Limits, Receipts, Sign, Standing

log = structlog.get_logger(__name__)

#: Of connecting, and of each answer.
REDIS_TIMEOUT = timedelta(milliseconds=200)
#: After Redis did not answer, nobody asks again for so long.
REDIS_PAUSE = timedelta(seconds=5)
#: Buckets in each window.
BUCKETS = 60
_CALLS, _RECEIPTS = "otp:breaker:calls:", "otp:breaker:receipts:"
_FAULTS = (redis.RedisError, OSError)
#: A bucket outlives its window by so much: clocks differ.
_MARGIN = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class CallSample:
    """A call that ended, and the generation of its route's breaker when it began."""

    route: str
    generation: int
    ended_at: datetime
    sign: Sign
    duration: timedelta


@dataclass(frozen=True, slots=True)
class ReceiptSample:
    """Attempts that were accepted (`ending` None), or how they ended, `took` after they were handed over."""

    route: str
    submitted_at: datetime
    ending: Ending | None = None
    took: timedelta = timedelta()
    number: int = 1


@dataclass(frozen=True, slots=True)
class Window:
    """What is known of one route."""

    calls: Calls = field(default_factory=Calls)
    receipts: Receipts = field(default_factory=Receipts)


#: By the name of a bucket: what is added to it, and how many seconds it lives.
_Added = dict[str, tuple[Counter[str], int]]


def receipt_step(target: timedelta) -> int:
    """Seconds of one bucket of the second window, which is at least a minute and twice the target long."""
    return max(1, math.ceil(2 * target.total_seconds() / BUCKETS))


def slot(at: datetime, step: int = 1) -> int:
    """The number of the bucket, of `step` seconds, that a moment falls into."""
    return math.floor(at.timestamp()) // step


def call_slots(now: datetime) -> range:
    """The buckets of the first window, of a second each."""
    newest = slot(now)
    return range(newest - BUCKETS + 1, newest + 1)


def receipt_slots(target: timedelta, now: datetime, since: datetime | None) -> range:
    """Buckets of the second window that may be judged: wholly older than the target, and of this era only."""
    step = receipt_step(target)
    oldest = slot(now, step) - BUCKETS + 1
    if since is not None:
        oldest = max(oldest, math.ceil(since.timestamp() / step))
    return range(oldest, max(oldest, math.floor((now - target).timestamp() / step)))


class Samples:
    """Counts samples and adds up windows. One for all threads of a process; outside a transaction.

    What could not be told to Redis is kept in this process, and never told later: nothing is counted twice.
    """

    def __init__(self, redis_url: str) -> None:
        seconds = REDIS_TIMEOUT.total_seconds()
        self._redis = redis.Redis.from_url(
            redis_url,
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
            retry=Retry(NoBackoff(), 0),
            protocol=2,  # nothing else is asked when a connection is made
        )
        self._lock = threading.Lock()
        self._away_until: datetime | None = None  # None: Redis answers
        self._back_at: datetime | None = None  # since when it answers again
        self._own: dict[str, tuple[Counter[str], datetime]] = {}  # buckets, and when they are dropped

    def add(
        self,
        calls: Iterable[CallSample],
        receipts: Iterable[ReceiptSample],
        limits: Mapping[str, Limits],
        *,
        now: datetime,
    ) -> None:
        """Count samples; those of routes without limits, and receipts older than their window, say nothing."""
        added: _Added = {}
        _count_calls(added, calls, limits)
        for receipt in receipts:
            target = limits[receipt.route].target if receipt.route in limits else None
            if target is not None:
                _count_receipt(added, receipt, target, now)
        if added and not self._told(added, now):
            self._keep(added, now)

    def read(self, asked: Mapping[str, tuple[Standing, Limits]], *, now: datetime) -> dict[str, Window]:
        """The windows of routes, of the present era of their breakers.

        Without Redis only this process's own calls are known, and nothing is said of receipts: others hear them, and
        what they heard meanwhile is never told. So attempts from before Redis came back are not judged either.
        """
        back_at = self._back_at if self._away_until is None else now
        names = {route: _names(route, *one, now=now, back_at=back_at) for route, one in asked.items()}
        wanted = [name for of_route in names.values() for kind in of_route for name in kind]
        found = iter(self._fetched(wanted, now))
        return {
            route: Window(rules.calls_of(_next(found, calls)), rules.receipts_of(_next(found, receipts)))
            for route, (calls, receipts) in names.items()
        }

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def _told(self, added: _Added, now: datetime) -> bool:
        if not self._may_ask(now):
            return False
        try:
            with self._redis.pipeline(transaction=False) as pipeline:
                for name, (counts, life) in added.items():
                    for key, count in counts.items():
                        pipeline.hincrby(name, key, count)
                    pipeline.expire(name, life)
                for window, life in {(_window(name), life) for name, (_, life) in added.items()}:
                    pipeline.set(window, 1, ex=life)
                pipeline.execute()
        except _FAULTS as fault:
            self._went_away(now, fault)
            return False
        self._answered(now)
        return True

    def _keep(self, added: _Added, now: datetime) -> None:
        with self._lock:
            self._own = {name: kept for name, kept in self._own.items() if kept[1] > now}
            for name, (counts, life) in added.items():
                if not name.startswith(_CALLS):
                    continue
                held, until = self._own.get(name, (Counter(), now + timedelta(seconds=life)))
                self._own[name] = (held + counts, until)

    def _fetched(self, names: Sequence[str], now: datetime) -> list[Bucket]:
        if names and self._may_ask(now):
            try:
                answers = self._answers(names)
            except _FAULTS as fault:
                self._went_away(now, fault)
            else:
                self._answered(now)
                return [{key.decode(): int(count) for key, count in each.items()} for each in answers]
        with self._lock:
            return [self._own[name][0] if name in self._own else {} for name in names]

    def _answers(self, names: Sequence[str]) -> Iterable[dict[bytes, bytes]]:
        """By bucket. Of most routes nothing is known, and asking for each of their buckets takes time."""
        windows = list(dict.fromkeys(map(_window, names)))
        known = {window for window, has_any in zip(windows, self._redis.mget(windows), strict=True) if has_any}
        filled = [name for name in names if _window(name) in known]
        with self._redis.pipeline(transaction=False) as pipeline:
            for name in filled:
                pipeline.hgetall(name)
            found = dict(zip(filled, pipeline.execute(), strict=True))
        return (found.get(name, {}) for name in names)

    def _may_ask(self, now: datetime) -> bool:
        """Whether Redis answers, as far as is known. While it does not, one of the threads tries after each pause."""
        with self._lock:
            if self._away_until is None:
                return True
            if now < self._away_until:
                return False
            self._away_until = now + REDIS_PAUSE
            return True

    def _went_away(self, now: datetime, fault: Exception) -> None:
        with self._lock:
            if self._away_until is None:
                log.warning("samples_without_redis", error=type(fault).__name__)
            self._away_until = now + REDIS_PAUSE

    def _answered(self, now: datetime) -> None:
        with self._lock:
            if self._away_until is not None:
                self._away_until, self._back_at = None, now
                self._own.clear()
                log.info("samples_with_redis_again")


def _count_calls(added: _Added, calls: Iterable[CallSample], limits: Mapping[str, Limits]) -> None:
    known: dict[tuple[str, int, datetime], Counter[str]] = {}  # thousands a second end at few moments
    for call in calls:
        if call.route not in limits or call.sign is Sign.NOTHING:
            continue
        key = (call.route, call.generation, call.ended_at)
        counts = known.get(key)
        if counts is None:
            name = _call_bucket(call.route, call.generation, slot(call.ended_at))
            counts, _ = added.setdefault(name, (Counter(), _life(1)))
            known[key] = counts
        counts[call.sign.value] += 1
        if call.sign is not Sign.FAULT:  # an error that comes at once is no quick answer
            counts[rules.ratio_key(call.duration, limits[call.route].slow_after)] += 1


def _count_receipt(added: _Added, receipt: ReceiptSample, target: timedelta, now: datetime) -> None:
    step = receipt_step(target)
    submitted = slot(receipt.submitted_at, step)
    if submitted <= slot(now, step) - BUCKETS:
        return
    counts, _ = added.setdefault(_receipt_bucket(receipt.route, step, submitted), (Counter(), _life(step)))
    match receipt.ending:
        case None:
            counts[rules.ACCEPTED] += receipt.number
        case Ending.DELIVERED:
            counts[rules.ratio_key(receipt.took, target)] += receipt.number
        case Ending.FAILED | Ending.EXCUSED:
            counts[receipt.ending.value] += receipt.number


def _life(step: int) -> int:
    return BUCKETS * step + int(_MARGIN.total_seconds())


def _names(
    route: str, standing: Standing, limits: Limits, *, now: datetime, back_at: datetime | None
) -> tuple[list[str], list[str]]:
    """The buckets of the two windows."""
    calls = [_call_bucket(route, standing.generation, number) for number in call_slots(now)]
    if limits.target is None:
        return calls, []
    since = max((at for at in (standing.since, back_at) if at is not None), default=None)
    step = receipt_step(limits.target)
    slots = receipt_slots(limits.target, now, since)
    return calls, [_receipt_bucket(route, step, number) for number in slots]


def _call_bucket(route: str, generation: int, number: int) -> str:
    return f"{_CALLS}{route}:{generation}:{number}"


def _receipt_bucket(route: str, step: int, number: int) -> str:
    return f"{_RECEIPTS}{route}:{step}:{number}"


def _window(bucket: str) -> str:
    """The key that is there as long as any bucket of this window may be."""
    return bucket.rpartition(":")[0]


def _next(found: Iterator[Bucket], names: Sequence[str]) -> list[Bucket]:
    return [next(found) for _ in names]
