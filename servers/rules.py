"""Rules of sender health. Pure: plain values, `now` and a random source in, decisions out; no Django."""

from __future__ import annotations

import datetime as dt
import enum
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol


class Status(enum.StrEnum):
    """Where a server stands. `cooldown`, `preheating` and `signed_in` are flags beside it."""

    NEW = "new"  # made, never sent; a person or preheat makes it active
    ACTIVE = "active"  # in rotation, unless a flag says otherwise
    NEED_CHECK = "need_check"  # out of rotation until a person decides
    LOST = "lost"  # signed out for too long, or given up; a person may bring it back
    DISABLED = "disabled"  # switched off by a person
    DELETED = "deleted"  # gone; its history stays


class RelayProtocol(enum.StrEnum):
    """What a relay host speaks."""

    NATIVE = "native"  # ours
    BLUEBUBBLES = "bluebubbles"  # one account, whose unit has the host's number; tells of nothing that can be believed


class Event(enum.IntEnum):
    """Codes of ServerStatusHistory rows. 100, 104, 105 and 109 are those that operators' scripts know."""

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
    PREHEAT_UNPROVEN = 121


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
    Event.PREHEAT_UNPROVEN: "Preheat unproven",
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
    BUDGET = "budget"  # today's messages are used up, or its new recipients: then only known ones are written to
    RESTING = "resting"  # between two messages: `next_send_date` is still to come


class InternalKind(enum.StrEnum):
    """Why one of our servers writes to another."""

    WARM_UP = "warm_up"
    PREHEAT = "preheat"
    CHAT_PREHEAT = "chat_preheat"


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

#: What a cooldown that follows too many failures within a day gives as its reason.
FAILURE_RATE_REASON = "failure rate in 24 hours"
#: What a cooldown that follows too many messages gives as its reason.
DAY_LIMIT_REASON, OTP_HOUR_LIMIT_REASON = "messages in 24 hours", "otp messages in an hour"


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
    long_cooldown: int = 60  # minutes; from this length on the warm-up waits longer
    warmup_after_long: Minutes = (20, 30)  # minutes into a long cooldown before its warm-up
    warmup_after_short: Minutes = (5, 10)  # minutes into a shorter one, or into an extension
    warmup_lead: dt.timedelta = dt.timedelta(minutes=75)  # a warm-up is sent no earlier before the end
    proof_window: dt.timedelta = dt.timedelta(hours=3)  # a confirmation counts for so long after the sending
    verdict_delay: dt.timedelta = dt.timedelta(minutes=3)  # what was just sent is given so long to be confirmed
    extension: Minutes = (55, 70)  # minutes that an unproven server stays in longer
    max_extensions: int = 2
    fail_open_limit: int = 3  # exits in a row without proof; the one that reaches it is Need Check instead
    preheat_pace: float = 0.25  # of the normal pace of client messages, while preheating
    minute: dt.timedelta = dt.timedelta(minutes=1)  # what a minute lasts: less in a drill

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


def ladder_of(text: str) -> Ladder:
    """The ladder that a name stands for, or that is written out in minutes, as in `60-120, 720-840`.

    Raises ValueError, with a sentence, for anything else; whether it can be climbed is `ladder_faults`' to say.
    """
    if text in LADDERS:
        return LADDERS[text]
    try:
        steps = [tuple(int(end) for end in step.split("-")) for step in text.split(",")]
        return tuple((low, high) for low, high in steps)
    except ValueError:
        raise ValueError(f"one of {', '.join(LADDERS)}, or steps in whole minutes, as in 60-120, 720-840") from None


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
    end = now + minutes * policy.minute
    warmup_at = warmup_slot(now, end, policy, rng=rng)
    return StartCooldown(cooldown_times + 1, minutes, drawn_from, end, warmup_at)


def warmup_slot(start: dt.datetime, end: dt.datetime, policy: Policy, *, rng: random.Random) -> dt.datetime | None:
    """The earliest time of a cooldown's warm-up; None when what is drawn leaves too little to the end."""
    is_long = end - start >= policy.long_cooldown * policy.minute
    slot = start + rng.randint(*(policy.warmup_after_long if is_long else policy.warmup_after_short)) * policy.minute
    return slot if slot <= end - policy.warmup_min_margin else None


def draw_send_interval(policy: Policy, rng: random.Random, *, preheating: bool = False) -> dt.timedelta:
    """The pause after a client message; a server in preheat gets fewer of them."""
    pause = rng.uniform(*policy.send_interval) * policy.minute
    return pause / policy.preheat_pace if preheating else pause
