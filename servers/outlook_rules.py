"""What people are told about a server: how it is, and which group is in force and why. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from servers import gate_rules
from servers.gate_rules import Gated, WarmUp
from servers.group_rules import Windowed, group_in_force
from servers.outlook_words import clock, count, length
from servers.preheat_rules import Preheating, PreheatPlan
from servers.rules import Counted, Deliveries, Policy, WhyNot

_SECOND, _DAY = dt.timedelta(seconds=1), dt.timedelta(days=1)


class Shown(Counted, Gated, Protocol):
    """What is told of a server."""

    @property
    def cooldown_reason(self) -> str: ...
    @property
    def signed_out_at(self) -> dt.datetime | None: ...
    @property
    def next_send_date(self) -> dt.datetime: ...
    @property
    def sends_day(self) -> dt.date | None: ...
    @property
    def sends_today(self) -> int: ...
    @property
    def new_recipients_today(self) -> int: ...


class Named(Windowed, Protocol):
    """A group with its name."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Taken:
    """How a server left the rotation: when, by whom or by which path, and why."""

    at: dt.datetime
    path: str = ""  # of Need Check
    by: str = ""
    reason: str = ""
    recovered_at: dt.datetime | None = None  # Need Check: it had been brought back a short time before


@dataclass(frozen=True, slots=True)
class HostSeen:
    """A server's host, and when it was last heard of."""

    number: int
    last_seen_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the settings. Budgets of 0 are no limit."""

    messages_per_day: int
    new_recipients_per_day: int
    release_pause: dt.timedelta
    sweep: dt.timedelta  # a cooldown that is over is found within so long


@dataclass(frozen=True, slots=True)
class Preheat:
    """A plan and where it stands."""

    plan: PreheatPlan
    stands: Preheating


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that the sentences are made of."""

    server: Shown
    why_not: WhyNot | None
    policy: Policy  # in force at `now`
    deliveries: Deliveries
    groups: Sequence[Named]
    host: HostSeen
    limits: Limits
    taken: Taken | None = None
    lost_at: dt.datetime | None = None  # of one that is signed out: when it is given up
    preheat: Preheat | None = None
    braked: bool = False  # a storm's brake is on, and enforced


# --- how it is -----------------------------------------------------------------------------------------


def state(figures: Figures, now: dt.datetime) -> str:
    """How a server is at `now`, by the first reason why it may not send."""
    match figures.why_not:
        case WhyNot.DELETED | WhyNot.DISABLED | WhyNot.LOST | WhyNot.NEED_CHECK as reason:
            return _out_of_rotation(reason, figures.taken, now)
        case WhyNot.NEW:
            return "New, not in rotation yet"
        case WhyNot.COOLDOWN:
            return _in_cooldown(figures.server, figures.policy, now)
        case WhyNot.SIGNED_OUT | WhyNot.HOST_DISABLED | WhyNot.HOST_OFFLINE as reason:
            return _unreachable(reason, figures, now)
        case WhyNot.BUDGET | WhyNot.RESTING | None:
            return f"{_rotation(figures, now)}, {_readiness(figures, now)}"


def _unreachable(reason: WhyNot, figures: Figures, now: dt.datetime) -> str:
    host, signed_out_at = figures.host, figures.server.signed_out_at
    if reason is WhyNot.SIGNED_OUT:
        return f"Signed out since {clock(signed_out_at, now)}" if signed_out_at else "Signed out"
    if reason is WhyNot.HOST_DISABLED:
        return f"Host {host.number} is disabled"
    if host.last_seen_at is None:
        return f"Host {host.number} was never heard of"
    return f"Host {host.number} is offline, last heard of at {clock(host.last_seen_at, now)}"


_OUT = {
    WhyNot.DELETED: "Deleted",
    WhyNot.DISABLED: "Disabled",
    WhyNot.LOST: "Lost",
    WhyNot.NEED_CHECK: "In Need Check",
}


def _out_of_rotation(reason: WhyNot, taken: Taken | None, now: dt.datetime) -> str:
    if taken is None:
        return _OUT[reason]
    path = f" by the path {taken.path}" if taken.path else ""
    who = f" by {taken.by}" if taken.by and taken.path in ("", "admin") else ""
    before = f" (boomerang: recovered {length(taken.at - taken.recovered_at)} before)" if taken.recovered_at else ""
    why = f": {taken.reason}" if taken.reason else ""
    return f"{_OUT[reason]} since {clock(taken.at, now)}{path}{who}{before}{why}"


def _in_cooldown(server: Shown, policy: Policy, now: dt.datetime) -> str:
    assert server.cooldown_end_date is not None  # in cooldown iff it has dates
    used = server.cooldown_extensions
    extended = f", extended {used} of {count(policy.max_extensions, 'time', 'times')}" if used else ""
    reason = f" ({server.cooldown_reason})" if server.cooldown_reason else ""
    until = clock(server.cooldown_end_date, now)
    return f"Cooldown #{server.cooldown_times} until {until}{reason}{extended}, {_warm_up(server, now)}"


def _warm_up(server: Gated, now: dt.datetime) -> str:
    sent_at = server.cooldown_warmup_sent_date
    sent = f"sent at {clock(sent_at, now)}, " if sent_at else ""
    match gate_rules.warm_up(server):
        case WarmUp.CONFIRMED:
            return f"warm-up {sent}confirmed"
        case WarmUp.UNCONFIRMED:
            return f"warm-up {sent}not confirmed" if sent else "signed out: it cannot send its warm-up"
        case WarmUp.NO_SLOT:
            return "too short for a warm-up"
        case WarmUp.NOT_SENT:
            return "warm-up not sent yet"


def _rotation(figures: Figures, now: dt.datetime) -> str:
    preheat = figures.preheat
    if preheat is None:
        return "Active"
    if preheat.stands.asked:
        return "In preheat, its plan used up without enough proof"
    days = len(preheat.plan.per_day) + preheat.stands.repeats
    day = preheat.plan.day_number(preheat.stands.started_at, now) + 1
    return f"In preheat, day {day} of {days}" if day <= days else "In preheat, its last day over"


def _readiness(figures: Figures, now: dt.datetime) -> str:
    server, limits = figures.server, figures.limits
    if figures.why_not is WhyNot.RESTING:
        return f"rests until {clock(server.next_send_date, now, seconds=True)}"
    if figures.why_not is None:
        return "free to send"
    if limits.messages_per_day and server.sends_today >= limits.messages_per_day:
        return f"today's messages used up ({server.sends_today} of {limits.messages_per_day})"
    used = f"{server.new_recipients_today} of {limits.new_recipients_per_day}"
    return f"sends to known recipients only: today's new ones used up ({used})"


# --- the group in force --------------------------------------------------------------------------------

N = TypeVar("N", bound=Named)


def group(groups: Sequence[Named], now: dt.datetime) -> str:
    """Which of its groups is in force at `now`, until when, and why."""
    if not groups:
        return "No group in force: the defaults"
    in_force, change = group_in_force(groups, now), next_change(groups, now)
    if in_force is None:
        follows = f" until group {change[1].name} begins at {_from(change[0], now)}" if change and change[1] else ""
        return f"In {count(len(groups), 'group', 'groups')}, none in force now: the defaults{follows}"
    span = "at all times" if change is None else _until(*change, now)
    highest = f"of its {len(groups)} groups the highest priority whose window covers now"
    why = "its only group" if len(groups) == 1 else highest
    return f"Group {in_force.name} (priority {in_force.priority}): in force {span}; {why}"


def _until(at: dt.datetime, follows: Named | None, now: dt.datetime) -> str:
    return f"until {_from(at - _SECOND, now)}, then {f'group {follows.name}' if follows else 'the defaults'}"


def _from(at: dt.datetime, now: dt.datetime) -> str:
    return clock(at, now, seconds=True)


def next_change(groups: Sequence[N], now: dt.datetime) -> tuple[dt.datetime, N | None] | None:
    """The first second at which another group is in force, and that group; None when that never comes."""
    in_force = group_in_force(groups, now)
    second = now.astimezone(dt.UTC).replace(microsecond=0)
    begins = {_next(one.from_time, second) for one in groups}
    ends = {_next(one.to_time, second - _SECOND) + _SECOND for one in groups}
    for at in sorted(begins | ends):
        follows = group_in_force(groups, at)
        if follows is not in_force:
            return at, follows
    return None


def _next(time: dt.time, after: dt.datetime) -> dt.datetime:
    at = dt.datetime.combine(after.date(), time.replace(microsecond=0), dt.UTC)
    return at if at > after else at + _DAY
