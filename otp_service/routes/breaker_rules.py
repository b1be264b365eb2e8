"""When a route is left alone, tried again and trusted again: the circuit breaker. Pure.

Two windows are judged, each by the share of what went wrong in it, every call counted once. Of calls, by when they
ended: faults, refusals and slow answers. Of what was accepted, by when it was handed over: whatever was not delivered
within the route's target; only what is older than the target is judged, as the rest may still come in time.
"""

from __future__ import annotations

import enum
import math
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate

from otp_service.core.outcomes import ErrorClass

#: Calls or accepted attempts in a window: fewer say nothing, and one time-out least of all.
LEAST_VOLUME = 20
#: Of them, the share gone wrong that opens.
OPEN_SHARE = 0.5
#: Probes of one half-open era that may be out or have ended.
PROBES = 5
#: Probes that must go well to close, of PROBES.
ENOUGH_GOOD = 4
#: Probes that must go wrong to open again: then ENOUGH_GOOD of PROBES is out of reach, and one time-out is not enough.
ENOUGH_BAD = PROBES - ENOUGH_GOOD + 1
#: A probe whose result is not known by then gives its place to another: its process died. Longer than any call.
TICKET_LIFE = timedelta(seconds=60)
#: How long it stays open, by how often it opened in a row; the last one repeats.
PAUSES: tuple[timedelta, ...] = tuple(timedelta(seconds=s) for s in (30, 60, 120, 240, 480, 600))
#: One that opens again this soon after it closed goes on with the next pause: it flaps.
CALM = timedelta(minutes=10)
#: Part of a pause that is added or taken off at random: the probes of many routes are not sent in one second.
JITTER = 0.1
#: The least weight of a route that is not shut off: it must carry something, or nobody learns that it is well again.
LEAST_WEIGHT = 0.1


class BreakerState(enum.StrEnum):
    """What a route may carry."""

    CLOSED = "closed"  # everything; judging its windows opens it
    OPEN = "open"  # nothing, until its pause is over
    HALF_OPEN = "half_open"  # a few probes; their results close it or open it again
    ISOLATED = "isolated"  # nothing, until a person enables it


@dataclass(frozen=True, slots=True)
class Limits:
    """What a route is held to: the longest normal call; the time to delivery, None where it has no receipts."""

    slow_after: timedelta
    target: timedelta | None = None

    def __post_init__(self) -> None:
        if self.slow_after <= timedelta() or (self.target is not None and self.target <= timedelta()):
            raise ValueError(f"Both limits must be longer than nothing: {self.slow_after}, {self.target}.")


# --- what one call and one receipt say -----------------------------------------------------------------


class Sign(enum.StrEnum):
    """What a call that ended says of its route."""

    GOOD = "good"  # it did its work, whatever it said of the message
    FAULT = "fault"  # the network's or the other side's error
    REFUSED = "refused"  # it refuses us
    SLOW = "slow"  # over its limit, or no clear answer in time
    NOTHING = "nothing"  # nobody's fault, or another's than the route's: not counted


def sign(error_class: ErrorClass | None, duration: timedelta, slow_after: timedelta) -> Sign:
    """Whether a call counts against its route. `error_class` None: it was accepted."""
    match error_class:
        case ErrorClass.CONNECTION_REFUSED | ErrorClass.TEMPORARY:
            return Sign.FAULT
        case ErrorClass.ROUTE_REJECTED:
            return Sign.REFUSED
        case ErrorClass.TIMEOUT_AFTER_SUBMIT:
            return Sign.SLOW
        case ErrorClass.THROTTLED | ErrorClass.SENDER_FAULT | ErrorClass.EXPIRED:
            return Sign.NOTHING
        case None | ErrorClass.RECIPIENT_INVALID | ErrorClass.CONTENT_REJECTED | ErrorClass.RECIPIENT_UNREACHABLE:
            return Sign.SLOW if duration > slow_after else Sign.GOOD


class Ending(enum.StrEnum):
    """What became of an accepted attempt, as far as its route is concerned."""

    DELIVERED = "delivered"
    FAILED = "failed"
    EXCUSED = "excused"  # not delivered, and not by the route's fault: it leaves the window


_EXCUSES = frozenset(
    {
        ErrorClass.RECIPIENT_INVALID,
        ErrorClass.CONTENT_REJECTED,
        ErrorClass.SENDER_FAULT,
        ErrorClass.THROTTLED,
        ErrorClass.EXPIRED,
    }
)


def failed_ending(error_class: ErrorClass | None) -> Ending:
    """How a terminal failure counts. One that names no class is the route's.

    So is a phone that was not reached: of one it says nothing, of most of a window that the route reaches nobody.
    """
    return Ending.EXCUSED if error_class in _EXCUSES else Ending.FAILED


# --- windows -------------------------------------------------------------------------------------------

#: One bucket of a window: counts by what was counted. Buckets of one time are added up key by key.
Bucket = Mapping[str, int]
ACCEPTED = "accepted"

#: Times are counted by their ratio to the route's limit, rounded up to one of these; longer ones in the last.
RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0)
_IN_TIME = RATIOS.index(1.0) + 1


def ratio_key(time: timedelta, limit: timedelta) -> str:
    """The key under which a time is counted in a bucket."""
    return f"ratio{min(bisect_left(RATIOS, time / limit), len(RATIOS) - 1)}"


_RATIO_KEYS = tuple(f"ratio{place}" for place in range(len(RATIOS)))


@dataclass(frozen=True, slots=True)
class Calls:
    """The first window. `p95`: of the time that answers took, as a ratio to the limit."""

    good: int = 0
    faults: int = 0
    refused: int = 0
    slow: int = 0
    p95: float = 0.0

    @property
    def volume(self) -> int:
        """Calls that say anything."""
        return self.good + self.bad

    @property
    def bad(self) -> int:
        """Those that count against the route, each once."""
        return self.faults + self.refused + self.slow


@dataclass(frozen=True, slots=True)
class Receipts:
    """The second window. `p95`: of the time to delivery, of what was delivered, as a ratio to the target."""

    volume: int = 0
    in_time: int = 0
    delivered: int = 0
    failed: int = 0
    p95: float = 0.0

    @property
    def bad(self) -> int:
        """Those not delivered in time: late, failed, or silent."""
        return self.volume - self.in_time

    @property
    def silent(self) -> int:
        """Those without a receipt."""
        return self.volume - self.delivered - self.failed


def share(part: int, whole: int) -> float:
    """0.0 of nothing."""
    return part / whole if whole else 0.0


def calls_of(buckets: Iterable[Bucket]) -> Calls:
    """Add up a window of calls."""
    sums = _sums(buckets)
    return Calls(sums[Sign.GOOD], sums[Sign.FAULT], sums[Sign.REFUSED], sums[Sign.SLOW], _p95(sums))


def receipts_of(buckets: Sequence[Bucket]) -> Receipts:
    """Add up a window of receipts. No bucket counts more endings than it has attempts: those of others were lost."""
    volume = in_time = delivered = failed = 0
    for bucket in buckets:
        attempts = max(0, bucket.get(ACCEPTED, 0) - bucket.get(Ending.EXCUSED, 0))
        arrived = min(attempts, sum(bucket.get(key, 0) for key in _RATIO_KEYS))
        volume += attempts
        delivered += arrived
        in_time += min(arrived, sum(bucket.get(key, 0) for key in _RATIO_KEYS[:_IN_TIME]))
        failed += min(attempts - arrived, bucket.get(Ending.FAILED, 0))
    return Receipts(volume, in_time, delivered, failed, _p95(_sums(buckets)))


def _sums(buckets: Iterable[Bucket]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for bucket in buckets:
        sums.update(bucket)
    return sums


def _p95(sums: Mapping[str, int]) -> float:
    """The smallest ratio that 95 of 100 times do not exceed; 0.0 of none."""
    counts = list(accumulate(sums.get(key, 0) for key in _RATIO_KEYS))
    rank = math.ceil(95 * counts[-1] / 100)
    return RATIOS[bisect_left(counts, rank)] if rank else 0.0


def weight(calls: Calls, receipts: Receipts) -> float:
    """How much of its usual part a closed route gets, from LEAST_WEIGHT to 1: it falls long before it opens."""
    fit = 1.0
    if calls.volume >= LEAST_VOLUME:
        fit = min(fit, _of_limit(calls.p95), _of_share(calls.bad, calls.volume))
    if receipts.volume >= LEAST_VOLUME:
        fit = min(fit, _of_limit(receipts.p95), _of_share(receipts.bad, receipts.volume))
    return max(LEAST_WEIGHT, fit)


def _of_limit(p95: float) -> float:
    return 1 / max(1.0, p95)


def _of_share(bad: int, volume: int) -> float:
    return 1 - share(bad, volume) / OPEN_SHARE


# --- decisions -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a breaker stands. Every change begins a new generation, and what older ones report is not heard."""

    state: BreakerState = BreakerState.CLOSED
    generation: int = 0
    since: datetime | None = None  # the last change; None: there never was one
    opened_at: datetime | None = None  # when it first opened, of one that is not closed again
    pause: timedelta | None = None  # the last one, without jitter
    until: datetime | None = None  # of an open one: probes from then on
    isolated_by: str = ""
    reason: str = ""  # why it was isolated


class Cause(enum.StrEnum):
    """What opened a breaker."""

    CALLS = "calls"
    RECEIPTS = "receipts"
    PROBES = "probes"


@dataclass(frozen=True, slots=True)
class Probes:
    """Results of the probes of one half-open era."""

    good: int = 0
    bad: int = 0


@dataclass(frozen=True, slots=True)
class Stay:
    """Nothing changes."""


@dataclass(frozen=True, slots=True)
class Open:
    """The route is left alone: `bad` of `volume` went wrong."""

    cause: Cause
    bad: int
    volume: int


@dataclass(frozen=True, slots=True)
class HalfOpen:
    """The pause is over: probes."""


@dataclass(frozen=True, slots=True)
class Close:
    """The route works again, by its probes."""


@dataclass(frozen=True, slots=True)
class Isolate:
    """A person shuts the route off."""

    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Enable:
    """A person lets everything through."""


Step = Open | HalfOpen | Close | Isolate | Enable


def decide(standing: Standing, calls: Calls, receipts: Receipts, probes: Probes, now: datetime) -> Step | Stay:
    """What becomes of a breaker. Nothing but rows decides while it is not closed: windows may be lost."""
    match standing.state:
        case BreakerState.CLOSED:
            return _judge(calls, receipts)
        case BreakerState.OPEN:
            return HalfOpen() if standing.until is None or now >= standing.until else Stay()
        case BreakerState.HALF_OPEN:
            if probes.bad >= ENOUGH_BAD:
                return Open(Cause.PROBES, probes.bad, probes.good + probes.bad)
            return Close() if probes.good >= ENOUGH_GOOD else Stay()
        case BreakerState.ISOLATED:
            return Stay()


def _judge(calls: Calls, receipts: Receipts) -> Open | Stay:
    for cause, window in ((Cause.CALLS, calls), (Cause.RECEIPTS, receipts)):
        if window.volume >= LEAST_VOLUME and share(window.bad, window.volume) >= OPEN_SHARE:
            return Open(cause, window.bad, window.volume)
    return Stay()


def after(standing: Standing, step: Step, now: datetime, rng: random.Random) -> Standing:
    """Where a breaker stands after a step."""
    generation = standing.generation + 1
    match step:
        case Open():
            pause = next_pause(_pause_to_go_on_from(standing, now))
            opened_at = standing.opened_at or now
            until = now + jittered(pause, rng)
            return Standing(BreakerState.OPEN, generation, now, opened_at, pause, until)
        case HalfOpen():
            return Standing(BreakerState.HALF_OPEN, generation, now, standing.opened_at, standing.pause)
        case Close():
            return Standing(BreakerState.CLOSED, generation, now, pause=standing.pause)
        case Isolate(by, reason):
            return Standing(BreakerState.ISOLATED, generation, now, isolated_by=by, reason=reason)
        case Enable():
            return Standing(BreakerState.CLOSED, generation, now)


def _pause_to_go_on_from(standing: Standing, now: datetime) -> timedelta | None:
    calm = standing.state is BreakerState.CLOSED and (standing.since is None or now - standing.since >= CALM)
    return None if calm else standing.pause


def next_pause(pause: timedelta | None) -> timedelta:
    """The pause that follows another; None: the first one."""
    return next((longer for longer in PAUSES if pause is None or longer > pause), PAUSES[-1])


def jittered(pause: timedelta, rng: random.Random) -> timedelta:
    """A pause that is a little shorter or longer."""
    return pause * rng.uniform(1 - JITTER, 1 + JITTER)


# --- what may pass -------------------------------------------------------------------------------------


class Admission(enum.Enum):
    """How much a route may carry."""

    ALL = enum.auto()
    PROBES = enum.auto()  # as many as there are tickets
    NONE = enum.auto()


def admission(state: BreakerState, *, only_way_of_otp: bool = False) -> Admission:
    """What may pass. An otp that has no other way is never shut out by a breaker, only by a person."""
    match state:
        case BreakerState.CLOSED:
            return Admission.ALL
        case BreakerState.HALF_OPEN:
            return Admission.PROBES
        case BreakerState.OPEN:
            return Admission.PROBES if only_way_of_otp else Admission.NONE
        case BreakerState.ISOLATED:
            return Admission.NONE


def tickets_left(state: BreakerState, *, out: int, ended: int) -> int:
    """How many more probes may go. An open route's only bound those that are out: their results decide nothing."""
    counted = out + ended if state is BreakerState.HALF_OPEN else out
    return max(0, PROBES - counted)
