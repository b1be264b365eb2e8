"""How a server is, and which group is in force and why: in sentences."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers import outlook_rules
from servers.group_rules import group_in_force
from servers.outlook_rules import HostSeen, Limits, Preheat, Taken
from servers.outlook_words import clock, length, minutes
from servers.preheat_rules import Preheating, PreheatPlan
from servers.rules import WhyNot
from tests.servers.outlook_figures import HOUR, MINUTE, NOON, Seen, Window, figures, in_cooldown

LATER = NOON + 125 * MINUTE + dt.timedelta(seconds=10)
BUDGETS = Limits(50, 20, release_pause=10 * MINUTE, sweep=7 * MINUTE)


def preheat(started_at: dt.datetime, *, repeats: int = 0, asked: bool = False) -> Preheat:
    return Preheat(PreheatPlan(), Preheating(started_at, repeats, asked, hour=12, sends=(), haste=0))


@pytest.mark.parametrize(
    ("server", "why_not", "more", "expected"),
    [
        pytest.param(Seen(), None, {}, "Active, free to send", id="free"),
        pytest.param(Seen(next_send_date=LATER), WhyNot.RESTING, {}, "Active, rests until 14:05:10 UTC", id="resting"),
        pytest.param(
            Seen(sends_today=50),
            WhyNot.BUDGET,
            {"limits": BUDGETS},
            "Active, today's messages used up (50 of 50)",
            id="messages of the day used up",
        ),
        pytest.param(
            Seen(sends_today=49, new_recipients_today=20),
            WhyNot.BUDGET,
            {"limits": BUDGETS},
            "Active, sends to known recipients only: today's new ones used up (20 of 20)",
            id="new recipients of the day used up",
        ),
        pytest.param(
            Seen(signed_out_at=NOON - HOUR), WhyNot.SIGNED_OUT, {}, "Signed out since 11:00 UTC", id="signed out"
        ),
        pytest.param(Seen(), WhyNot.SIGNED_OUT, {}, "Signed out", id="signed out, nobody knows since when"),
        pytest.param(Seen(), WhyNot.HOST_DISABLED, {}, "Host 3 is disabled", id="host disabled"),
        pytest.param(
            Seen(),
            WhyNot.HOST_OFFLINE,
            {"host": HostSeen(3, NOON - 2 * MINUTE)},
            "Host 3 is offline, last heard of at 11:58 UTC",
            id="host offline",
        ),
        pytest.param(
            Seen(), WhyNot.HOST_OFFLINE, {"host": HostSeen(3, None)}, "Host 3 was never heard of", id="a new host"
        ),
        pytest.param(Seen(), WhyNot.NEW, {}, "New, not in rotation yet", id="new"),
        pytest.param(
            Seen(), WhyNot.DELETED, {"taken": Taken(NOON, by="ann")}, "Deleted since 12:00 UTC by ann", id="deleted"
        ),
        pytest.param(
            Seen(),
            WhyNot.DISABLED,
            {"taken": Taken(NOON - 24 * HOUR, by="ann", reason="moving")},
            "Disabled since 2026-08-31 12:00 UTC by ann: moving",
            id="disabled, yesterday",
        ),
        pytest.param(Seen(), WhyNot.LOST, {}, "Lost", id="lost, and no row tells since when"),
        pytest.param(
            Seen(),
            WhyNot.NEED_CHECK,
            {"taken": Taken(NOON, path="ladder", reason="failed in row", recovered_at=NOON - 3 * HOUR)},
            "In Need Check since 12:00 UTC by the path ladder (boomerang: recovered 3 h before): failed in row",
            id="need check, a boomerang",
        ),
        pytest.param(
            Seen(),
            WhyNot.NEED_CHECK,
            {"taken": Taken(NOON, path="admin", by="ann")},
            "In Need Check since 12:00 UTC by the path admin by ann",
            id="need check, by a person",
        ),
        pytest.param(
            in_cooldown(cooldown_warmup_sent_date=NOON + 80 * MINUTE),
            WhyNot.COOLDOWN,
            {},
            "Cooldown #2 until 14:05 UTC (failed in row), warm-up sent at 13:20 UTC, not confirmed",
            id="cooldown, warm-up sent",
        ),
        pytest.param(
            in_cooldown(cooldown_warmup_sent_date=NOON + 80 * MINUTE, cooldown_warmup_delivered=True),
            WhyNot.COOLDOWN,
            {},
            "Cooldown #2 until 14:05 UTC (failed in row), warm-up sent at 13:20 UTC, confirmed",
            id="cooldown, warm-up confirmed",
        ),
        pytest.param(
            in_cooldown(cooldown_extensions=1, cooldown_reason=""),
            WhyNot.COOLDOWN,
            {},
            "Cooldown #2 until 14:05 UTC, extended 1 of 2 times, warm-up not sent yet",
            id="cooldown, extended",
        ),
        pytest.param(
            in_cooldown(cooldown_warmup_at=None),
            WhyNot.COOLDOWN,
            {},
            "Cooldown #2 until 14:05 UTC (failed in row), too short for a warm-up",
            id="cooldown, no slot",
        ),
        pytest.param(
            in_cooldown(signed_in=False),
            WhyNot.COOLDOWN,
            {},
            "Cooldown #2 until 14:05 UTC (failed in row), signed out: it cannot send its warm-up",
            id="cooldown, signed out",
        ),
        pytest.param(
            Seen(), None, {"preheat": preheat(NOON - 24 * HOUR)}, "In preheat, day 2 of 5, free to send", id="preheat"
        ),
        pytest.param(
            Seen(),
            None,
            {"preheat": preheat(NOON - 24 * HOUR + dt.timedelta(microseconds=1))},
            "In preheat, day 1 of 5, free to send",
            id="preheat, the last moment of its first day",
        ),
        pytest.param(
            Seen(),
            None,
            {"preheat": preheat(NOON - 120 * HOUR)},
            "In preheat, its last day over, free to send",
            id="preheat, to be judged",
        ),
        pytest.param(
            Seen(),
            None,
            {"preheat": preheat(NOON - 170 * HOUR, repeats=2, asked=True)},
            "In preheat, its plan used up without enough proof, free to send",
            id="preheat, a person was asked",
        ),
    ],
)
def test_how_it_is(server: Seen, why_not: WhyNot | None, more: dict[str, Any], expected: str) -> None:
    assert outlook_rules.state(figures(server, why_not, **more), NOON) == expected


DAY = Window("Day", 5, dt.time(8), dt.time(19, 59, 59))
NIGHT = Window("Night", 10, dt.time(20), dt.time(7, 59, 59))
ALWAYS = Window("Always", 1)
LUNCH = Window("Lunch", 20, dt.time(11, 30), dt.time(12, 29, 59))


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        pytest.param((), "No group in force: the defaults", id="none"),
        pytest.param((ALWAYS,), "Group Always (priority 1): in force at all times; its only group", id="always"),
        pytest.param(
            (DAY,),
            "Group Day (priority 5): in force until 19:59:59 UTC, then the defaults; its only group",
            id="a window that ends",
        ),
        pytest.param(
            (DAY, NIGHT),
            "Group Day (priority 5): in force until 19:59:59 UTC, then group Night;"
            " of its 2 groups the highest priority whose window covers now",
            id="two that take turns",
        ),
        pytest.param(
            (DAY, LUNCH),
            "Group Lunch (priority 20): in force until 12:29:59 UTC, then group Day;"
            " of its 2 groups the highest priority whose window covers now",
            id="a higher one for an hour",
        ),
        pytest.param(
            (NIGHT,),
            "In 1 group, none in force now: the defaults until group Night begins at 20:00:00 UTC",
            id="not yet",
        ),
        pytest.param(
            (Window("Morning", 1, dt.time(8), dt.time(11, 59, 59)),),
            "In 1 group, none in force now: the defaults until group Morning begins at 2026-09-02 08:00:00 UTC",
            id="over for today",
        ),
    ],
)
def test_the_group_in_force_and_why(groups: tuple[Window, ...], expected: str) -> None:
    assert outlook_rules.group(groups, NOON) == expected


def test_a_higher_window_that_begins_later_ends_it_before_its_own_end() -> None:
    told = outlook_rules.group((DAY, LUNCH), NOON - HOUR)
    assert told.startswith("Group Day (priority 5): in force until 11:29:59 UTC, then group Lunch;")


TIMES = st.times().map(lambda time: time.replace(microsecond=0))


@st.composite
def windows(draw: st.DrawFn) -> list[Window]:
    priorities = draw(st.lists(st.integers(0, 9), max_size=4, unique=True))
    spans = [draw(st.tuples(TIMES, TIMES).filter(lambda span: span[0] != span[1])) for _ in priorities]
    return [Window(f"g{priority}", priority, *span) for priority, span in zip(priorities, spans, strict=True)]


@given(windows(), st.datetimes(dt.datetime(2026, 1, 1), dt.datetime(2026, 12, 31)))  # noqa: DTZ001 - made aware below
def test_the_change_is_the_first_second_at_which_the_rule_says_another_group(
    groups: list[Window], naive: dt.datetime
) -> None:
    now = naive.replace(tzinfo=dt.UTC)
    in_force, change = group_in_force(groups, now), outlook_rules.next_change(groups, now)
    until = now + 24 * HOUR if change is None else change[0]
    looks = (now + n * 7 * MINUTE for n in range(24 * 60 // 7))
    assert all(group_in_force(groups, at) is in_force for at in looks if at < until)
    if change is not None:
        at, follows = change
        assert group_in_force(groups, at) is follows is not in_force
        assert group_in_force(groups, at - dt.timedelta(seconds=1)) is in_force


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        pytest.param(60, 120, "60–120 min", id="one end under two hours"),  # noqa: RUF001 - the dash of a range
        pytest.param(120, 240, "2–4 h", id="whole hours"),  # noqa: RUF001 - the dash of a range
        pytest.param(120, 239, "120–239 min", id="not whole"),  # noqa: RUF001 - the dash of a range
        pytest.param(720, 840, "12–14 h", id="the long steps"),  # noqa: RUF001 - the dash of a range
        pytest.param(180, 180, "3 h", id="one length"),
        pytest.param(15, 15, "15 min", id="one short length"),
    ],
)
def test_ranges_are_in_hours_when_both_ends_are(low: int, high: int, text: str) -> None:
    assert minutes(low, high) == text


@pytest.mark.parametrize(
    ("time", "text"),
    [
        pytest.param(119 * MINUTE, "119 min", id="under two hours"),
        pytest.param(120 * MINUTE, "2 h", id="two hours"),
        pytest.param(14 * HOUR, "14 h", id="hours"),
    ],
)
def test_lengths(time: dt.timedelta, text: str) -> None:
    assert length(time) == text
    assert length(time / 60, MINUTE / 60) == text  # in a drill


@pytest.mark.parametrize(
    ("at", "text"),
    [
        pytest.param(NOON.replace(hour=23, minute=59), "23:59 UTC", id="today"),
        pytest.param(NOON + 12 * HOUR, "2026-09-02 00:00 UTC", id="tomorrow"),
        pytest.param(NOON.astimezone(dt.timezone(5 * HOUR)), "12:00 UTC", id="in another zone"),
    ],
)
def test_moments_carry_their_date_when_it_is_not_today(at: dt.datetime, text: str) -> None:
    assert clock(at, NOON) == text
