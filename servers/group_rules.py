"""Rules of groups: which one is in force, what its figures may be, what they lead to. Pure, as `rules`."""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from servers.rules import Parameters, Policy, ResetRule, policy_in_force

#: The longest cooldown or pause that a group may ask for, in minutes: a week.
LONGEST_MINUTES = 7 * 1_440
#: The highest threshold: a server that fails so often in a row is dead.
MOST_FAILED_IN_ROW = 100
LONGEST_NAME = 100  # characters
#: What PostgreSQL's integer holds.
LOWEST_PRIORITY, HIGHEST_PRIORITY = -(2**31), 2**31 - 1
#: From so many minutes on a cooldown always has room for its warm-up.
SHORTEST_PROVED = 15

DELAY = ("cooldown_delay_from", "cooldown_delay_to")
INTERVAL = ("send_from_message_interval", "send_to_message_interval")
WINDOW = ("from_time", "to_time")
#: Everything that people say about a group.
PARAMETERS = ("name", "priority", "failed_in_row", *DELAY, *INTERVAL, *WINDOW, "reset_rule")

#: What each number may be: from, to, and how a sentence goes on.
_NUMBERS = {
    "priority": (LOWEST_PRIORITY, HIGHEST_PRIORITY, ""),
    "failed_in_row": (0, MOST_FAILED_IN_ROW, "; 0: not set"),
    **dict.fromkeys((*DELAY, *INTERVAL), (0, LONGEST_MINUTES, " (minutes; a week at most); 0: not set")),
}
#: Control characters, halves of characters, ends of lines and paragraphs.
_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


class Windowed(Protocol):
    """What a group is to the rule that picks the one in force."""

    @property
    def priority(self) -> int: ...
    @property
    def from_time(self) -> dt.time: ...
    @property
    def to_time(self) -> dt.time: ...


class Described(Windowed, Parameters, Protocol):
    """A group with all its parameters."""

    @property
    def name(self) -> str: ...


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


def group_warnings(group: Parameters, default: Policy) -> list[str]:
    """What a group's parameters lead to that its owner may not expect, in sentences."""
    policy = policy_in_force(default, group)
    warnings = []
    if policy.threshold == 1 and policy.reset_rule is ResetRule.CALENDAR_WINDOW:
        warnings.append(
            "Each failure starts a cooldown, so nothing ever brings the count of cooldowns back to 0: with the rule"
            " calendar_window that is looked at on failures that start none. Choose since_release or either."
        )
    if policy.cooldown_range and policy.cooldown_range[0] < SHORTEST_PROVED:
        warnings.append(
            f"A cooldown of less than {SHORTEST_PROVED} minutes may have no room for a warm-up: the server comes back"
            " without any proof that it delivers."
        )
    return warnings


# --- what is refused -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldFault:
    """Why one field's value is refused. `code` is stable, for programs; `detail` says what to write instead."""

    field: str
    code: str
    detail: str


def group_faults(group: Described) -> list[FieldFault]:
    """Every reason why a group's values, taken together, are refused; empty when there is none.

    Values of any type are taken: what is not a number, a time or a text is a fault too. Times are whole seconds
    without a zone (they are UTC); a fraction is refused, not cut off, so that what was said is what is kept.
    """
    return [
        *_name_faults(group),
        *(fault for field in _NUMBERS for fault in _number_faults(field, getattr(group, field))),
        *_order_faults(group, *DELAY),
        *_order_faults(group, *INTERVAL),
        *_window_faults(group),
        *_reset_rule_faults(group),
    ]


def _name_faults(group: Described) -> Iterator[FieldFault]:
    name: Any = group.name
    if not isinstance(name, str):
        yield FieldFault("name", "invalid", "Give a text.")
    elif any(unicodedata.category(letter) in _UNPRINTABLE for letter in name):
        yield FieldFault("name", "control_characters", "Write it on one line, without control characters.")
    elif not name.strip():
        yield FieldFault("name", "blank", "Give the group a name.")
    elif len(name) > LONGEST_NAME:
        yield FieldFault("name", "max_length", f"Use at most {LONGEST_NAME} characters.")


def _number_faults(field: str, value: Any) -> Iterator[FieldFault]:
    low, high, rest = _NUMBERS[field]
    if type(value) is not int:  # true is not 1
        yield FieldFault(field, "invalid", f"Give a whole number from {low} to {high}{rest}.")
    elif value < low:
        yield FieldFault(field, "min_value", f"Give a number from {low} to {high}{rest}.")
    elif value > high:
        yield FieldFault(field, "max_value", f"Give a number from {low} to {high}{rest}.")


def _order_faults(group: Described, start: str, end: str) -> Iterator[FieldFault]:
    low, high = getattr(group, start), getattr(group, end)
    if type(low) is type(high) is int and low > high > 0:
        detail = f"{start} is {low}, over {end}, which is {high}: exchange them, or set one to 0 to leave both unset."
        yield FieldFault(end, "inverted", detail)


def _window_faults(group: Described) -> Iterator[FieldFault]:
    faults = [fault for field in WINDOW for fault in _time_faults(field, getattr(group, field))]
    yield from faults
    if not faults and group.from_time == group.to_time:
        yield FieldFault(
            "to_time", "empty_window", "from_time and to_time are the same: the window would be empty. Change one."
        )


def _time_faults(field: str, value: Any) -> Iterator[FieldFault]:
    if not isinstance(value, dt.time):
        yield FieldFault(field, "invalid", "Give a time of day (UTC), as in 08:00:00.")
    elif value.tzinfo is not None:
        yield FieldFault(field, "time_zone", "Give the time in UTC, without a zone.")
    elif value.microsecond:
        yield FieldFault(field, "fraction", "Give a time to the second, without a fraction.")


def _reset_rule_faults(group: Described) -> Iterator[FieldFault]:
    names = [rule.value for rule in ResetRule]
    if group.reset_rule not in ("", *names):
        yield FieldFault("reset_rule", "invalid_choice", f"One of {', '.join(names)}, or nothing: the default.")
