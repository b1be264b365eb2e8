"""When a preheat sends, and how it ends."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from servers.preheat_rules import (
    AskPerson,
    Finish,
    Preheating,
    PreheatPlan,
    PreheatStep,
    RepeatDay,
    Rest,
    SendOne,
    Sent,
    preheat_step,
)

NOON = dt.datetime(2026, 9, 1, 12, 0, 0, tzinfo=dt.UTC)
MINUTE, HOUR, DAY = dt.timedelta(minutes=1), dt.timedelta(hours=1), dt.timedelta(days=1)
PLAN = PreheatPlan()
WHOLE_PLAN = 60  # 4 + 8 + 12 + 16 + 20


def sends(*ago: dt.timedelta, confirmed: bool = True) -> list[Sent]:
    return [Sent(NOON - before, confirmed) for before in ago]


def many(number: int, *, confirmed: bool, ago: dt.timedelta = HOUR) -> list[Sent]:
    return [Sent(NOON - ago, confirmed)] * number


def preheat(started_ago: dt.timedelta, sent: list[Sent], *, repeats: int = 0, hour: int = 12) -> Preheating:
    return Preheating(NOON - started_ago, repeats=repeats, asked=False, hour=hour, sends=sent, haste=0.0)


@pytest.mark.parametrize(
    ("started_ago", "sent", "hour", "expected"),
    [
        pytest.param(0 * HOUR, [], 12, SendOne(), id="the first one at once"),
        pytest.param(0 * HOUR, [], 7, Rest(), id="not before eight"),
        pytest.param(0 * HOUR, [], 8, SendOne(), id="at eight"),
        pytest.param(0 * HOUR, [], 21, SendOne(), id="before ten in the evening"),
        pytest.param(0 * HOUR, [], 22, Rest(), id="not from ten on"),
        pytest.param(4 * HOUR, sends(209 * MINUTE), 12, Rest(), id="four in 14 hours: not within 3.5 hours"),
        pytest.param(4 * HOUR, sends(210 * MINUTE), 12, SendOne(), id="after 3.5 hours"),
        pytest.param(23 * HOUR, sends(*[4 * HOUR] * 4), 12, Rest(), id="four on the first day"),
        pytest.param(23 * HOUR, sends(*[4 * HOUR] * 3), 12, SendOne(), id="the fourth of the first day"),
        pytest.param(24 * HOUR, sends(*[4 * HOUR] * 4), 12, SendOne(), id="the second day begins at nothing"),
        pytest.param(26 * HOUR, sends(*[104 * MINUTE] * 5), 12, Rest(), id="eight: 105 minutes apart"),
        pytest.param(26 * HOUR, sends(*[105 * MINUTE] * 5), 12, SendOne(), id="eight on the second day"),
        pytest.param(47 * HOUR, sends(*[3 * HOUR] * 8), 12, Rest(), id="eight are enough"),
    ],
)
def test_a_day_has_its_quota_spread_over_its_waking_hours(
    started_ago: dt.timedelta, sent: list[Sent], hour: int, expected: PreheatStep
) -> None:
    assert preheat_step(preheat(started_ago, sent, hour=hour), PLAN, NOON) == expected


@pytest.mark.parametrize(("minutes", "expected"), [(20, Rest()), (21, SendOne())])
def test_what_did_not_leave_is_made_up_for_after_a_tenth_of_the_pause(minutes: int, expected: PreheatStep) -> None:
    refused = [Sent(NOON - minutes * MINUTE, confirmed=False, left=False)]
    assert preheat_step(preheat(4 * HOUR, refused), PLAN, NOON) == expected


def test_what_did_not_leave_uses_up_nothing_of_the_day() -> None:
    refused = [Sent(NOON - 4 * HOUR, confirmed=False, left=False)] * 4
    assert preheat_step(preheat(5 * HOUR, refused), PLAN, NOON) == SendOne()


@pytest.mark.parametrize(("day", "quota"), [(0, 4), (1, 8), (2, 12), (3, 16), (4, 20), (5, 20), (6, 20)])
def test_the_plan_grows_and_then_repeats_its_last_day(day: int, quota: int) -> None:
    assert PLAN.quota(day) == quota


@pytest.mark.parametrize(("haste", "minutes"), [(0.0, 210), (1.0, 157.5)])
def test_a_pause_is_shortened_by_a_quarter_at_most(haste: float, minutes: float) -> None:
    for early, step in ((MINUTE, Rest()), (0 * MINUTE, SendOne())):
        started = replace(preheat(4 * HOUR, sends(minutes * MINUTE - early)), haste=haste)
        assert preheat_step(started, PLAN, NOON) == step


@pytest.mark.parametrize(
    ("confirmed", "expected"),
    [
        pytest.param(48, Finish(WHOLE_PLAN, 48), id="80 %"),
        pytest.param(47, RepeatDay(WHOLE_PLAN, 47), id="less"),
        pytest.param(0, RepeatDay(WHOLE_PLAN, 0), id="nothing"),
    ],
)
def test_a_plan_is_done_with_eighty_percent_confirmed(confirmed: int, expected: PreheatStep) -> None:
    sent = many(confirmed, confirmed=True, ago=2 * DAY) + many(60 - confirmed, confirmed=False, ago=2 * DAY)
    assert preheat_step(preheat(5 * DAY, sent), PLAN, NOON) == expected


def test_what_was_planned_and_not_sent_counts_as_not_confirmed() -> None:
    assert preheat_step(preheat(5 * DAY, many(40, confirmed=True)), PLAN, NOON) == RepeatDay(WHOLE_PLAN, 40)


def test_a_plan_is_not_judged_before_its_end() -> None:
    almost = preheat(5 * DAY - MINUTE, many(60, confirmed=True))
    assert preheat_step(almost, PLAN, NOON) == Rest()


@pytest.mark.parametrize(
    ("repeats", "confirmed", "expected"),
    [
        pytest.param(1, 16, Finish(20, 16), id="the first repeat succeeds"),
        pytest.param(1, 15, RepeatDay(20, 15), id="the first repeat fails"),
        pytest.param(2, 16, Finish(20, 16), id="the second repeat succeeds"),
        pytest.param(2, 15, AskPerson(20, 15), id="the second repeat fails: a person decides"),
    ],
)
def test_a_repeated_day_is_judged_by_itself(repeats: int, confirmed: int, expected: PreheatStep) -> None:
    earlier = many(60, confirmed=False, ago=2 * DAY)
    sent = earlier + many(confirmed, confirmed=True) + many(20 - confirmed, confirmed=False)
    assert preheat_step(preheat((5 + repeats) * DAY, sent, repeats=repeats), PLAN, NOON) == expected


def test_when_a_person_was_asked_nothing_is_sent_any_more() -> None:
    asked = replace(preheat(9 * DAY, [], repeats=2), asked=True)
    assert preheat_step(asked, PLAN, NOON) == Rest()


def test_a_drill_runs_through_its_days_faster() -> None:
    drill = PreheatPlan(day=24 * MINUTE)
    assert drill.day_number(NOON - 49 * MINUTE, NOON) == 2
    assert drill.pause(0) == 210 * MINUTE / 60
