"""Rules of sender health. Pure: plain values, `now` and a random source in, decisions out; no Django."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterable
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
