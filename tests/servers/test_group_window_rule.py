"""Which group is in force at a moment."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pytest

from servers.group_rules import group_in_force

DAY = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Window:
    """A group, as the rule sees it: always in force, unless a test says otherwise."""

    priority: int = 1
    from_time: dt.time = dt.time(0, 0, 0)
    to_time: dt.time = dt.time(23, 59, 59)


NIGHT = Window(from_time=dt.time(22), to_time=dt.time(8))
MORNING = Window(from_time=dt.time(8), to_time=dt.time(9))


@pytest.mark.parametrize(
    ("group", "clock", "in_force"),
    [
        pytest.param(NIGHT, "21:59:59", False, id="night, a second early"),
        pytest.param(NIGHT, "22:00:00", True, id="night, its first second"),
        pytest.param(NIGHT, "23:00:00", True, id="night, before midnight"),
        pytest.param(NIGHT, "00:00:00", True, id="night, midnight"),
        pytest.param(NIGHT, "07:59:59", True, id="night, before its end"),
        pytest.param(NIGHT, "08:00:00", True, id="night, its last second"),
        pytest.param(NIGHT, "08:00:00.999999", True, id="night, within its last second"),
        pytest.param(NIGHT, "08:00:01", False, id="night, a second late"),
        pytest.param(NIGHT, "12:00:00", False, id="night, at noon"),
        pytest.param(MORNING, "07:59:59.9", False, id="morning, early"),
        pytest.param(MORNING, "08:00:00", True, id="morning, its first second"),
        pytest.param(MORNING, "09:00:01", False, id="morning, late"),
        pytest.param(Window(), "23:59:59.5", True, id="always, the last half second of the day"),
    ],
)
def test_a_group_is_in_force_during_its_window(group: Window, clock: str, in_force: bool) -> None:
    now = dt.datetime.combine(DAY, dt.time.fromisoformat(clock), tzinfo=dt.UTC)
    assert group_in_force([group], now) == (group if in_force else None)


def test_of_two_windows_that_cover_now_the_higher_priority_counts() -> None:
    low, high = Window(priority=1), Window(priority=2)
    assert group_in_force([high, low], DAY) is high
    assert group_in_force([low, high], DAY) is high


def test_a_higher_priority_outside_its_window_does_not_count() -> None:
    low, night = Window(priority=1), Window(priority=9, from_time=dt.time(22), to_time=dt.time(8))
    assert group_in_force([night, low], DAY + dt.timedelta(hours=12)) is low


def test_the_window_is_read_in_utc_whatever_zone_the_moment_comes_in() -> None:
    tokyo = dt.timezone(dt.timedelta(hours=9))
    assert group_in_force([NIGHT], dt.datetime(2026, 9, 1, 12, 0, tzinfo=tokyo)) is NIGHT


def test_no_groups_no_group_in_force() -> None:
    assert group_in_force([], DAY) is None
