"""Rules of sender health. Pure: plain values, `now` and a random source in, decisions out; no Django."""

from __future__ import annotations

import datetime as dt
import enum
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar


class Status(enum.StrEnum):
    """Where a server stands. `cooldown`, `preheating` and `signed_in` are flags beside it."""

    NEW = "new"  # made, never sent; a person or preheat makes it active
    ACTIVE = "active"  # in rotation, unless a flag says otherwise
    NEED_CHECK = "need_check"  # out of rotation until a person decides
    LOST = "lost"  # signed out for too long, or given up; a person may bring it back
    DISABLED = "disabled"  # switched off by a person
    DELETED = "deleted"  # gone; its history stays


class Event(enum.IntEnum):
    """Codes of ServerStatusHistory rows. 100, 101, 104, 105 and 106 mean what operators' scripts expect."""

    COOLDOWN_FINISHED = 100
    COOLDOWN_STARTED = 101
    COOLDOWN_EXTENDED = 102
    WARMUP_SENT = 104
    WARMUP_CONFIRMED = 105
    NEED_CHECK = 106
    RECOVERED = 107
    MARKED_ACTIVE = 108
    SEND_FAILED = 109
    PREHEAT_STARTED = 110
    PREHEAT_FINISHED = 111
    CHAT_PREHEAT_STARTED = 112
    COUNTERS_RESET = 113
    GROUPS_CHANGED = 114
    LOST = 115
    DELETED = 116
    DISABLED = 117
    HOST_ONLINE_CHANGED = 118
    STORM_BRAKE = 119
    SIGNED_IN_CHANGED = 120


#: What people read: the label of each code, with its emoji.
EVENT_LABELS: dict[Event, str] = {
    Event.COOLDOWN_FINISHED: "Cooldown finished 💧",
    Event.COOLDOWN_STARTED: "Cooldown started 🧊",
    Event.COOLDOWN_EXTENDED: "Cooldown extended 🧊⏳",
    Event.WARMUP_SENT: "Warm-up sent 🧊📨",
    Event.WARMUP_CONFIRMED: "Warm-up confirmed 🧊✅",
    Event.NEED_CHECK: "Need Check 🚨",
    Event.RECOVERED: "Recovered 🩹",
    Event.MARKED_ACTIVE: "Marked active ✅",
    Event.SEND_FAILED: "Send failed 📉",
    Event.PREHEAT_STARTED: "Preheat started 🔥",
    Event.PREHEAT_FINISHED: "Preheat finished",
    Event.CHAT_PREHEAT_STARTED: "Chat-preheat started 💬",
    Event.COUNTERS_RESET: "Counters reset",
    Event.GROUPS_CHANGED: "Groups changed",
    Event.LOST: "Lost",
    Event.DELETED: "Deleted",
    Event.DISABLED: "Disabled",
    Event.HOST_ONLINE_CHANGED: "Host offline / back",
    Event.STORM_BRAKE: "Storm brake",
    Event.SIGNED_IN_CHANGED: "Signed out / in",
}


class ResetRule(enum.StrEnum):
    """When enough deliveries bring `cooldown_times` back to 0."""

    CALENDAR_WINDOW = "calendar_window"  # deliveries of the last 14 hours, looked at on a failure
    SINCE_RELEASE = "since_release"  # deliveries since the last release, looked at on deliveries too
    EITHER = "either"  # one or the other, looked at on deliveries too


class ResetCause(enum.StrEnum):
    """Why a counter went back to 0 where no other row tells it (`data.cause` of a 113 row)."""

    DELIVERY = "delivery"  # `failed_in_row`: a client's message was delivered
    WINDOW = "window"  # `cooldown_times`: enough deliveries in the last hours
    RELEASE = "release"  # `cooldown_times`: enough deliveries since the last release
    ADMIN = "admin"  # all of them: a person


class NeedCheckPath(enum.StrEnum):
    """The ways into Need Check (`data.path` of a 106 row)."""

    LADDER = "ladder"  # the threshold was reached with the ladder used up
    FAIL_OPEN = "fail_open"  # several exits in a row without proof of life
    ADMIN = "admin"  # a person
    CHAT_PREHEAT = "chat_preheat"  # an internal send fell back to SMS


class Verdict(enum.StrEnum):
    """How a cooldown ended (`data.verdict` of a 100 row)."""

    VERIFIED = "verified"  # the warm-up was confirmed
    NEUTRAL = "neutral"  # there was none, through no fault of the server
    FAIL_OPEN = "fail_open"  # let out without proof, its extensions used up


class WarmUp(enum.Enum):
    """Where the warm-up of a round stands when the cooldown is due to end."""

    NO_SLOT = enum.auto()  # the cooldown is too short for one
    NOT_SENT = enum.auto()  # nobody to write to, host away, our scheduler was down
    UNCONFIRMED = enum.auto()  # sent, or refused by the host for the server's sake; no proof came
    CONFIRMED = enum.auto()


class WhyNot(enum.StrEnum):
    """Why a server may not send now; the first that applies, in this order."""

    DELETED = "deleted"
    DISABLED = "disabled"
    LOST = "lost"
    NEW = "new"
    NEED_CHECK = "need_check"
    COOLDOWN = "cooldown"
    SIGNED_OUT = "signed_out"
    HOST_DISABLED = "host_disabled"
    HOST_OFFLINE = "host_offline"
    RESTING = "resting"  # between two messages: `next_send_date` is still to come


class InternalKind(enum.StrEnum):
    """Why one of our servers writes to another."""

    WARM_UP = "warm_up"
    PREHEAT = "preheat"
    CHAT_PREHEAT = "chat_preheat"


class Windowed(Protocol):
    """What a group is to the rule that picks the one in force."""

    @property
    def priority(self) -> int: ...
    @property
    def from_time(self) -> dt.time: ...
    @property
    def to_time(self) -> dt.time: ...


W = TypeVar("W", bound=Windowed)


def window_covers(from_time: dt.time, to_time: dt.time, now: dt.datetime) -> bool:
    """Whether a daily window (UTC, both ends included to the second) covers `now`; it may cross midnight."""
    at = now.astimezone(dt.UTC).time().replace(microsecond=0)
    if from_time <= to_time:
        return from_time <= at <= to_time
    return at >= from_time or at <= to_time


def group_in_force(groups: Iterable[W], now: dt.datetime) -> W | None:
    """The group whose window covers `now`; of several, the one of highest priority."""
    covering = (group for group in groups if window_covers(group.from_time, group.to_time, now))
    return max(covering, key=lambda group: group.priority, default=None)


# --- the figures in force ------------------------------------------------------------------------------

Minutes = tuple[int, int]  # whole minutes to draw from, both ends included
Ladder = tuple[Minutes, ...]  # the length of each cooldown in a row; after the last comes Need Check

#: What is on record of the production fleet disagrees on the third step, and it cannot be settled: both are here.
LADDERS: dict[str, Ladder] = {
    "standard": ((60, 120), (60, 120), (720, 840), (720, 840)),
    "five_step": ((60, 120), (60, 120), (60, 120), (720, 840), (720, 840)),
}
#: What a cooldown that follows failures in a row gives as its reason.
FAILED_IN_ROW_REASON = "failed in row"

LONG_COOLDOWN = dt.timedelta(minutes=60)  # from this length on the warm-up waits longer
WARMUP_AFTER_LONG: Minutes = (20, 30)  # minutes into a long cooldown before its warm-up
WARMUP_AFTER_SHORT: Minutes = (5, 10)  # minutes into a shorter one, or into an extension
EXTENSION: Minutes = (55, 70)  # minutes that an unproven server stays in longer
MAX_EXTENSIONS = 2
FAIL_OPEN_LIMIT = 3  # exits in a row without proof; the one that reaches it is Need Check instead


@dataclass(frozen=True, slots=True)
class Policy:
    """The figures that a server is judged by. As they stand here: what the settings give by default."""

    threshold: int = 2  # failures in a row
    ladder: Ladder = LADDERS["standard"]
    cooldown_range: Minutes | None = None  # a group's: every cooldown is drawn from it instead
    send_interval: tuple[float, float] = (8.0, 12.0)  # minutes between two client messages
    reset_rule: ResetRule = ResetRule.CALENDAR_WINDOW
    reset_deliveries: int = 11
    reset_deliveries_preheating: int = 2
    reset_window: dt.timedelta = dt.timedelta(hours=14)
    warmup_min_margin: dt.timedelta = dt.timedelta(minutes=5)  # from the slot to the end of the cooldown

    def deliveries_to_reset(self, *, preheating: bool) -> int:
        """How many deliveries bring `cooldown_times` back to 0."""
        return self.reset_deliveries_preheating if preheating else self.reset_deliveries


class Parameters(Protocol):
    """What a group may say about the figures; 0 and "" mean "not set"."""

    @property
    def failed_in_row(self) -> int: ...
    @property
    def cooldown_delay_from(self) -> int: ...
    @property
    def cooldown_delay_to(self) -> int: ...
    @property
    def send_from_message_interval(self) -> int: ...
    @property
    def send_to_message_interval(self) -> int: ...
    @property
    def reset_rule(self) -> str: ...


def policy_in_force(default: Policy, group: Parameters | None) -> Policy:
    """The default figures, with what the group in force says otherwise."""
    if group is None:
        return default
    return replace(
        default,
        threshold=group.failed_in_row or default.threshold,
        cooldown_range=_range(group.cooldown_delay_from, group.cooldown_delay_to) or default.cooldown_range,
        send_interval=_range(group.send_from_message_interval, group.send_to_message_interval) or default.send_interval,
        reset_rule=ResetRule(group.reset_rule) if group.reset_rule else default.reset_rule,
    )


def _range(low: int, high: int) -> Minutes | None:
    return (low, high) if low > 0 and high > 0 else None


def ladder_faults(ladder: Ladder) -> list[str]:
    """What makes a ladder unusable, in words; empty when nothing does."""
    if not ladder:
        return ["it has no steps"]
    return [
        f"step {number} is {low}-{high} min: the first number must be over 0 and not over the second"
        for number, (low, high) in enumerate(ladder, start=1)
        if not 0 < low <= high
    ]


# --- after a failure, after a delivery -----------------------------------------------------------------


class Counted(Protocol):
    """What the rules look at of a server."""

    @property
    def status(self) -> str: ...
    @property
    def cooldown(self) -> bool: ...
    @property
    def preheating(self) -> bool: ...
    @property
    def failed_in_row(self) -> int: ...
    @property
    def cooldown_times(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Deliveries:
    """How many client messages a server delivered."""

    in_window: int
    since_release: int


@dataclass(frozen=True, slots=True)
class NoChange:
    """Nothing is to be done."""


@dataclass(frozen=True, slots=True)
class ResetTimes:
    """`cooldown_times` goes back to 0."""

    cause: ResetCause


@dataclass(frozen=True, slots=True)
class StartCooldown:
    """A cooldown of so many minutes starts. `warmup_at` is the earliest time of its warm-up, if it has one."""

    number: int
    minutes: int
    drawn_from: Minutes
    end: dt.datetime
    warmup_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class NeedCheck:
    """Out of rotation, for a person. `fail_open_streak` is written with it where this exit counted."""

    path: NeedCheckPath
    fail_open_streak: int | None = None


def rests(server: Counted) -> bool:
    """Whether failures and deliveries move nothing now but their own counter."""
    return server.status != Status.ACTIVE or server.cooldown


def decide_after_failure(
    server: Counted, policy: Policy, deliveries: Deliveries, *, now: dt.datetime, rng: random.Random
) -> NoChange | ResetTimes | StartCooldown | NeedCheck:
    """What follows from `failed_in_row` as it stands. The threshold comes first: reached, nothing is reset."""
    if rests(server):
        return NoChange()
    if server.failed_in_row >= policy.threshold:
        return next_cooldown(server.cooldown_times, policy, now=now, rng=rng)
    return _reset(server, policy, deliveries)


def decide_after_delivery(server: Counted, policy: Policy, deliveries: Deliveries) -> NoChange | ResetTimes:
    """What follows from a delivery that is counted in `deliveries`. A running cooldown keeps its number."""
    if rests(server) or policy.reset_rule is ResetRule.CALENDAR_WINDOW:
        return NoChange()
    return _reset(server, policy, deliveries)


def _reset(server: Counted, policy: Policy, deliveries: Deliveries) -> NoChange | ResetTimes:
    if server.cooldown_times == 0:
        return NoChange()
    enough = policy.deliveries_to_reset(preheating=server.preheating)
    if policy.reset_rule is not ResetRule.SINCE_RELEASE and deliveries.in_window >= enough:
        return ResetTimes(ResetCause.WINDOW)
    if policy.reset_rule is not ResetRule.CALENDAR_WINDOW and deliveries.since_release >= enough:
        return ResetTimes(ResetCause.RELEASE)
    return NoChange()


def count_deliveries(
    times: Iterable[dt.datetime], *, now: dt.datetime, window: dt.timedelta, released_at: dt.datetime | None
) -> Deliveries:
    """Deliveries of the window and since the release, both beginnings included; never released: all of them."""
    times = list(times)
    return Deliveries(
        in_window=sum(at >= now - window for at in times),
        since_release=sum(released_at is None or at >= released_at for at in times),
    )


def next_cooldown(
    cooldown_times: int, policy: Policy, *, now: dt.datetime, rng: random.Random
) -> StartCooldown | NeedCheck:
    """The cooldown after `cooldown_times` others; Need Check when the ladder is used up."""
    if cooldown_times >= len(policy.ladder):
        return NeedCheck(NeedCheckPath.LADDER)
    drawn_from = policy.cooldown_range or policy.ladder[cooldown_times]
    minutes = rng.randint(*drawn_from)
    end = now + dt.timedelta(minutes=minutes)
    warmup_at = warmup_slot(now, end, margin=policy.warmup_min_margin, rng=rng)
    return StartCooldown(cooldown_times + 1, minutes, drawn_from, end, warmup_at)


def warmup_slot(
    start: dt.datetime, end: dt.datetime, *, margin: dt.timedelta, rng: random.Random
) -> dt.datetime | None:
    """The earliest time of a cooldown's warm-up; None when what is drawn leaves less than `margin` to the end."""
    after = WARMUP_AFTER_LONG if end - start >= LONG_COOLDOWN else WARMUP_AFTER_SHORT
    slot = start + dt.timedelta(minutes=rng.randint(*after))
    return slot if slot <= end - margin else None


def draw_send_interval(policy: Policy, rng: random.Random) -> dt.timedelta:
    """The pause after a client message."""
    return dt.timedelta(minutes=rng.uniform(*policy.send_interval))


# --- at the end of a cooldown --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Release:
    """Let the server out; its streak of exits without proof stands at `fail_open_streak` then."""

    verdict: Verdict
    fail_open_streak: int


@dataclass(frozen=True, slots=True)
class Extend:
    """Keep it in until `until`, with a new warm-up not before `warmup_at`."""

    until: dt.datetime
    warmup_at: dt.datetime


def warm_up(*, planned: bool, sent: bool, confirmed: bool) -> WarmUp:
    """Where a warm-up stands. A confirmation counts without a slot too: any internal send is proof."""
    if confirmed:
        return WarmUp.CONFIRMED
    if sent:
        return WarmUp.UNCONFIRMED
    return WarmUp.NOT_SENT if planned else WarmUp.NO_SLOT


def verdict(
    proof: WarmUp, *, extensions: int, fail_open_streak: int, end: dt.datetime, now: dt.datetime, rng: random.Random
) -> Release | Extend | NeedCheck:
    """What becomes of a cooldown that was due at `end`."""
    match proof:
        case WarmUp.CONFIRMED:
            return Release(Verdict.VERIFIED, 0)
        case WarmUp.NO_SLOT | WarmUp.NOT_SENT:
            return Release(Verdict.NEUTRAL, fail_open_streak)
        case WarmUp.UNCONFIRMED if extensions < MAX_EXTENSIONS:
            return _extension(end, now, rng)
        case WarmUp.UNCONFIRMED:
            return _exit_without_proof(fail_open_streak + 1)


def _extension(end: dt.datetime, now: dt.datetime, rng: random.Random) -> Extend:
    longer = dt.timedelta(minutes=rng.randint(*EXTENSION))
    # The new span follows the old one, unless the sweep came so late that nothing of it is left for a warm-up.
    start = end if now < end + longer else now
    return Extend(start + longer, start + dt.timedelta(minutes=rng.randint(*WARMUP_AFTER_SHORT)))


def _exit_without_proof(streak: int) -> Release | NeedCheck:
    if streak >= FAIL_OPEN_LIMIT:
        return NeedCheck(NeedCheckPath.FAIL_OPEN, streak)
    return Release(Verdict.FAIL_OPEN, streak)
