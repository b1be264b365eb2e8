"""Where the bars and marks of a server's week stand."""

from __future__ import annotations

import datetime as dt

import pytest

from otp_service.board import week_picture
from otp_service.board.week_picture import GRAIN, Bar, Picture, picture
from otp_service.board.week_rules import Row, Standing, Week
from servers.rules import Event

NOON = dt.datetime(2026, 9, 1, 12, 0, 0, tzinfo=dt.UTC)
START = dt.datetime(2026, 8, 25, 13, 0, 0, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
FREE = Standing("active")


def drawn(kind: str, shown: Picture) -> list[Bar]:
    return [bar for bar in shown.bars if bar.kind == kind]


def cooldown(start: dt.datetime, end: dt.datetime, number: int = 1) -> Standing:
    return Standing("active", True, number, start, end)


@pytest.mark.parametrize(
    ("at", "x"),
    [
        pytest.param(START, 0.0, id="the beginning"),
        pytest.param(START + 84 * HOUR, 50.0, id="the middle"),
        pytest.param(START + 168 * HOUR, 100.0, id="the end"),
        pytest.param(START - HOUR, 0.0, id="before it: cut off"),
        pytest.param(START + 169 * HOUR, 100.0, id="after it: cut off"),
    ],
)
def test_moments_become_per_cent_of_the_width(at: dt.datetime, x: float) -> None:
    assert week_picture.Axis(START, START + 168 * HOUR).x(at) == x


def test_an_empty_week_has_its_axis_and_lanes_and_nothing_in_them() -> None:
    shown = picture(Week(NOON, FREE))
    assert (shown.bars, shown.dots) == ((), ())
    assert [lane.name for lane in shown.lanes] == list(week_picture.LANES)
    assert [tick.label for tick in shown.ticks] == ["Wed 26", "Thu 27", "Fri 28", "Sat 29", "Sun 30", "Mon 31", "Tue 1"]
    assert shown.now_x == 99.4  # 167 of 168 hours


def test_deliveries_stand_on_the_line_and_failures_hang_from_it_in_one_scale() -> None:
    shown = picture(Week(NOON, FREE, delivered={START: 20, START + HOUR: 10}, failed={START: 5}))
    many, few = drawn("delivered", shown)
    failed = drawn("failed", shown)[0]
    assert (many.x, many.width, many.height, many.y) == (0.0, 0.6, 44.0, shown.baseline - 44.0)
    assert (few.x, few.height) == (0.6, 22.0)
    assert (failed.y, failed.height) == (shown.baseline, 11.0)
    assert many.title == failed.title == "Tue 2026-08-25 13:00 UTC: 20 delivered, 5 failed"


def test_a_single_failure_among_thousands_of_deliveries_is_seen() -> None:
    shown = picture(Week(NOON, FREE, delivered={START: 5_000}, failed={START: 1}))
    assert drawn("failed", shown)[0].height == 2


def test_a_running_cooldown_reaches_beyond_now_to_its_end() -> None:
    end = NOON + 11 * HOUR
    shown = picture(Week(NOON, cooldown(NOON - 11 * HOUR, end)))
    past, ahead = drawn("cooldown", shown)[0], drawn("cooldown planned", shown)[0]
    assert past.x + past.width == pytest.approx(shown.now_x, abs=0.02)
    assert ahead.x == shown.now_x
    assert ahead.x + ahead.width == pytest.approx(100, abs=0.02)
    assert (past.label, ahead.label) == ("#1", "")
    assert past.title == "Cooldown #1, 01:00 UTC – 23:00 UTC, running"  # noqa: RUF001 - the dash of a range


def test_a_cooldown_that_ends_in_a_week_does_not_squeeze_the_past() -> None:
    shown = picture(Week(NOON, cooldown(NOON - HOUR, NOON + dt.timedelta(days=7))))
    assert shown.now_x == pytest.approx(167 / 191 * 100, abs=0.01)


def test_what_began_before_the_week_begins_at_its_edge() -> None:
    bar = drawn("cooldown", picture(Week(NOON, cooldown(START - 50 * HOUR, NOON + HOUR))))[0]
    assert bar.x == 0
    assert bar.width == pytest.approx(99.4, abs=0.01)


def test_what_is_too_short_to_be_seen_is_drawn_a_little_wider() -> None:
    bar = drawn("cooldown", picture(Week(NOON, cooldown(NOON - dt.timedelta(minutes=1), NOON))))[0]
    assert (bar.width, bar.label) == (GRAIN, "")  # nor is there room for its name before the edge


def ended(start: dt.datetime, end: dt.datetime, number: int) -> list[Row]:
    """The two rows of a cooldown."""
    none = {"cooldown": False, "cooldown_start_date": None, "cooldown_end_date": None}
    running = {"cooldown": True, "cooldown_start_date": start.isoformat(), "cooldown_end_date": end.isoformat()}
    counted = {"cooldown_times": number - 1}, {"cooldown_times": number}
    begun = Row(start, Event.COOLDOWN_STARTED, none | counted[0], running | counted[1])
    return [begun, Row(end, Event.COOLDOWN_FINISHED, running, none)]


@pytest.mark.parametrize(
    ("hours", "pause", "labels"),
    [
        pytest.param(9, 1, [("#1", False), ("#2", False)], id="within, where there is room"),
        pytest.param(1, 9, [("#1", True), ("#2", True)], id="beside, where nothing follows soon"),
        pytest.param(1, 1, [("", False), ("#2", True)], id="not at all, where the next one follows soon"),
    ],
)
def test_a_cooldown_carries_its_number(hours: int, pause: int, labels: list[tuple[str, bool]]) -> None:
    first, second = START + 24 * HOUR, START + (24 + hours + pause) * HOUR
    rows = ended(first, first + hours * HOUR, 1) + ended(second, second + hours * HOUR, 2)
    shown = picture(Week(NOON, Standing("active", cooldown_times=2), rows))
    assert [(bar.label, bar.is_beside) for bar in drawn("cooldown", shown)] == labels


def test_marks_of_a_kind_within_a_few_pixels_are_one_that_says_how_many() -> None:
    rows = [Row(START + 10 * HOUR + dt.timedelta(minutes=n), Event.WARMUP_SENT) for n in range(3)]
    later = Row(START + 30 * HOUR, Event.WARMUP_SENT)
    confirmed = Row(START + 10 * HOUR, Event.WARMUP_CONFIRMED)
    dots = picture(Week(NOON, FREE, (confirmed, *rows, later))).dots
    assert [(dot.kind, dot.title) for dot in dots] == [
        ("confirmed", "Warm-up confirmed, 2026-08-25 23:00 UTC"),
        ("sent", "2 more here; the first: Warm-up sent, 2026-08-25 23:00 UTC"),
        ("sent", "Warm-up sent, 2026-08-26 19:00 UTC"),
    ]


def test_a_week_of_five_thousand_rows_stays_a_small_picture() -> None:
    rows: list[Row] = []
    start = START
    while len(rows) < 5_000:
        end = start + dt.timedelta(minutes=3)
        values = {"cooldown": True, "cooldown_start_date": start.isoformat(), "cooldown_end_date": end.isoformat()}
        ended = {"cooldown": False, "cooldown_start_date": None, "cooldown_end_date": None}
        rows += [
            Row(start, Event.COOLDOWN_STARTED, ended, values),
            Row(start, Event.WARMUP_SENT),
            Row(start, Event.MARKED_ACTIVE, by="ann"),
            Row(end, Event.COOLDOWN_FINISHED, values, ended),
        ]
        start = end + dt.timedelta(minutes=4)
    hours = {START + n * HOUR: 60 for n in range(168)}
    shown = picture(Week(NOON + 59 * dt.timedelta(minutes=1), FREE, rows, hours, hours))
    assert len(shown.bars) <= 2 * 168 + 100 / GRAIN + 1
    assert len(shown.dots) <= 2 * (100 / GRAIN + 1)
    merged = sum(1 + int(bar.title.partition(" more")[0]) for bar in drawn("cooldown", shown) if " more" in bar.title)
    assert merged > 1_000
