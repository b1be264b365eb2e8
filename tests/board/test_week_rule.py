"""What happened to a server within a week: told by its history, undone from the present."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from otp_service.board import week_rules
from otp_service.board.week_rules import Row, Span, Standing, Week, week_start
from servers.rules import Event

NOON = dt.datetime(2026, 9, 1, 12, 0, 0, tzinfo=dt.UTC)
START = dt.datetime(2026, 8, 25, 13, 0, 0, tzinfo=dt.UTC)
FREE = Standing("active")


def ago(**parts: float) -> dt.datetime:
    return NOON - dt.timedelta(**parts)


def row(event: Event, at: dt.datetime, old: dict[str, Any], new: dict[str, Any], **more: Any) -> Row:
    """As history writes it: dates as text."""
    return Row(at, event, _plain(old), _plain(new), **more)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, dt.datetime) else value for name, value in values.items()}


def started(at: dt.datetime, end: dt.datetime, number: int) -> Row:
    old = {"cooldown": False, "cooldown_times": number - 1, "cooldown_start_date": None, "cooldown_end_date": None}
    new = {"cooldown": True, "cooldown_times": number, "cooldown_start_date": at, "cooldown_end_date": end}
    return row(Event.COOLDOWN_STARTED, at, old, new)


def finished(at: dt.datetime, start: dt.datetime, end: dt.datetime) -> Row:
    old = {"cooldown": True, "cooldown_start_date": start, "cooldown_end_date": end}
    new = {"cooldown": False, "cooldown_start_date": None, "cooldown_end_date": None}
    return row(Event.COOLDOWN_FINISHED, at, old, new)


def cooldowns(present: Standing, *rows: Row) -> list[tuple[str, dt.datetime, dt.datetime | None]]:
    return [(span.name, span.since, span.until) for span in week_rules.cooldowns(Week(NOON, present, rows))]


def test_a_week_is_168_hours_with_the_running_one() -> None:
    assert week_start(NOON) == START
    assert week_start(NOON + dt.timedelta(minutes=59, seconds=59)) == START
    assert week_start(NOON + dt.timedelta(hours=1)) == START + dt.timedelta(hours=1)


def test_nothing_happened_to_a_server_without_rows() -> None:
    week = Week(NOON, FREE)
    assert not [*week_rules.cooldowns(week), *week_rules.statuses(week), *week_rules.preheats(week)]


def test_a_cooldown_within_the_week_lasts_from_its_start_to_its_release() -> None:
    start, end, release = ago(hours=10), ago(hours=9), ago(hours=9) + dt.timedelta(minutes=4)
    after = Standing("active", cooldown_times=2)
    rows = started(start, end, 2), finished(release, start, end)
    assert cooldowns(after, *rows) == [("#2", start, release)]


def test_a_cooldown_that_began_before_the_week_is_known_by_the_row_that_ended_it() -> None:
    start, release = ago(days=8), ago(days=6, hours=20)
    after = Standing("active", cooldown_times=3)
    assert cooldowns(after, finished(release, start, release)) == [("#3", start, release)]


def test_its_number_is_the_one_of_that_time_when_the_ladder_went_back_since() -> None:
    start, release = ago(days=8), ago(days=6, hours=20)
    reset = row(Event.COUNTERS_RESET, ago(days=1), {"cooldown_times": 3}, {"cooldown_times": 0})
    assert cooldowns(FREE, finished(release, start, release), reset) == [("#3", start, release)]


def test_a_running_cooldown_without_a_row_in_the_week_is_known_by_the_present() -> None:
    start, end = ago(days=8), NOON + dt.timedelta(hours=2)
    assert cooldowns(Standing("active", True, 4, start, end)) == [("#4", start, end)]


def test_a_running_cooldown_lasts_until_it_is_to_end_after_its_extensions() -> None:
    start, first, end = ago(hours=3), ago(hours=1), NOON + dt.timedelta(minutes=5)
    longer = row(Event.COOLDOWN_EXTENDED, ago(hours=1), {"cooldown_end_date": first}, {"cooldown_end_date": end})
    present = Standing("active", True, 1, start, end)
    week = Week(NOON, present, (started(start, first, 1), longer))
    assert [(span.name, span.since, span.until) for span in week_rules.cooldowns(week)] == [("#1", start, end)]
    assert list(week_rules.extensions(week)) == [Span("extension", first, end, "", "Extension 1, until 12:05 UTC")]


def test_a_cooldown_that_is_over_lasts_until_its_verdict() -> None:
    assert cooldowns(Standing("active", True, 1, ago(hours=3), ago(hours=1))) == [("#1", ago(hours=3), NOON)]


def test_two_cooldowns_in_a_row_are_two() -> None:
    first, second = ago(hours=5), ago(hours=3)
    rows = (
        started(first, ago(hours=4), 1),
        finished(ago(hours=4), first, ago(hours=4)),
        started(second, ago(hours=2), 2),
        finished(ago(hours=2), second, ago(hours=2)),
    )
    after = Standing("active", cooldown_times=2)
    assert [name for name, _, _ in cooldowns(after, *rows)] == ["#1", "#2"]


@pytest.mark.parametrize(
    ("present", "rows", "expected"),
    [
        pytest.param("lost", (), [("Lost", START, None)], id="for longer than a week"),
        pytest.param(
            "need_check",
            (row(Event.NEED_CHECK, ago(hours=2), {"status": "active"}, {"status": "need_check"}),),
            [("Need Check", ago(hours=2), None)],
            id="since a row",
        ),
        pytest.param(
            "active",
            (row(Event.RECOVERED, ago(hours=2), {"status": "need_check"}, {"status": "active"}),),
            [("Need Check", START, ago(hours=2))],
            id="from before the week until a row",
        ),
        pytest.param(
            "disabled",
            (
                row(Event.NEED_CHECK, ago(hours=3), {"status": "active"}, {"status": "need_check"}),
                row(Event.DISABLED, ago(hours=2), {"status": "need_check"}, {"status": "disabled"}),
            ),
            [("Need Check", ago(hours=3), ago(hours=2)), ("Disabled", ago(hours=2), None)],
            id="one after another",
        ),
        pytest.param("new", (), [], id="new is not out of rotation"),
    ],
)
def test_times_out_of_rotation(
    present: str, rows: tuple[Row, ...], expected: list[tuple[str, dt.datetime, dt.datetime | None]]
) -> None:
    spans = week_rules.statuses(Week(NOON, Standing(present), rows))
    assert [(span.name, span.since, span.until) for span in spans] == expected


def test_a_preheat_is_known_from_its_start_even_before_the_week() -> None:
    start, end = ago(days=9), ago(days=4)
    old = {"preheating": True, "preheat_started_at": start}
    over = row(Event.PREHEAT_FINISHED, end, old, {"preheating": False, "preheat_started_at": None})
    assert [(s.since, s.until) for s in week_rules.preheats(Week(NOON, FREE, (over,)))] == [(start, end)]
    running = Standing("active", preheating=True, preheat_started_at=start)
    assert [(s.since, s.until) for s in week_rules.preheats(Week(NOON, running))] == [(start, None)]


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        pytest.param(Row(NOON, Event.WARMUP_SENT), "sent", id="sent"),
        pytest.param(Row(NOON, Event.WARMUP_SENT, refused=True), "refused", id="refused by the host"),
        pytest.param(Row(NOON, Event.WARMUP_CONFIRMED), "confirmed", id="confirmed"),
    ],
)
def test_warm_ups(told: Row, kind: str) -> None:
    assert [mark.kind for mark in week_rules.warm_ups(Week(NOON, FREE, (told,)))] == [kind]


@pytest.mark.parametrize(
    ("told", "titles"),
    [
        pytest.param(Row(NOON, Event.RECOVERED, by="ann"), ["Recovered 🩹 by ann, 12:00 UTC"], id="a person's"),
        pytest.param(Row(NOON, Event.NEED_CHECK, path="ladder"), [], id="the machine's"),
        pytest.param(Row(NOON, Event.LOST), [], id="the watch's"),
        pytest.param(Row(NOON, Event.COOLDOWN_STARTED, by="ann"), [], id="no verdict"),
    ],
)
def test_verdicts_are_those_of_people(told: Row, titles: list[str]) -> None:
    assert [mark.title for mark in week_rules.verdicts(Week(NOON, FREE, (told,)))] == titles


def test_the_summary_counts_everything_that_is_drawn() -> None:
    start, end = ago(hours=3), NOON + dt.timedelta(hours=1)
    rows = (
        started(start, end, 2),
        Row(ago(hours=2), Event.WARMUP_SENT),
        Row(ago(hours=1), Event.WARMUP_CONFIRMED),
        Row(ago(minutes=30), Event.MARKED_ACTIVE, by="ann"),
    )
    week = Week(NOON, Standing("lost", True, 2, start, end), rows, {ago(hours=4): 7}, {ago(hours=3): 2})
    assert week_rules.summary(week) == (
        "The last 7 days: 7 client messages delivered, 2 failed; 1 cooldowns (#2), 0 extensions; 1 warm-ups sent,"
        " 1 confirmed; out of rotation or in preheat: Lost; 1 verdicts of people."
    )
