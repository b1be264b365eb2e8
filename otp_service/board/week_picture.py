"""The picture of a server's week: where each bar and mark stands. Pure; a template draws it as SVG.

Horizontal figures are per cent of the width, so that the text keeps its size on a phone; vertical ones are pixels.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from otp_service.board import week_rules
from otp_service.board.week_rules import Mark, Span, Week

_HOUR, _DAY = dt.timedelta(hours=1), dt.timedelta(days=1)

#: What stands within so many per cent is drawn as one: some pixels.
GRAIN = 0.5
#: From this width on a bar has room for its name on a phone: for each character.
_PER_CHARACTER = 2.4
_LONGEST_FUTURE = _DAY  # a cooldown that ends later is drawn until there

# Of messages: above and below the line.
_UP, _DOWN, _LEAST = 44, 22, 2
_BASELINE = 64
_BAR, _STEP = 16, 36


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle; `label` is written into it, or beside it where it is too narrow and nothing follows soon."""

    x: float
    width: float
    y: float
    height: float
    kind: str
    title: str
    label: str = ""
    is_beside: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """A mark at a moment."""

    x: float
    y: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the picture; its name stands above it."""

    name: str
    y: int


@dataclass(frozen=True, slots=True)
class Tick:
    """The beginning of a day."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that is drawn, and the same in words."""

    height: int
    lanes: tuple[Lane, ...]
    bars: tuple[Bar, ...]
    dots: tuple[Dot, ...]
    ticks: tuple[Tick, ...]
    now_x: float
    baseline: int
    summary: str


@dataclass(frozen=True, slots=True)
class Axis:
    """From moments to per cent."""

    start: dt.datetime
    end: dt.datetime

    def x(self, at: dt.datetime) -> float:
        share = (min(max(at, self.start), self.end) - self.start) / (self.end - self.start)
        return round(share * 100, 2)


LANES = ("Client messages, per hour", "Cooldowns", "Warm-ups", "Out of rotation", "Preheat", "Verdicts of people")


def picture(week: Week) -> Picture:
    """The picture of the week."""
    axis = Axis(week.start, _end(week))
    lanes = (Lane(LANES[0], 12), *(Lane(name, 104 + _STEP * number) for number, name in enumerate(LANES[1:])))
    _, cooldowns, warm_ups, out, preheat, verdicts = (lane.y + 6 for lane in lanes)
    bars = (
        *_messages(week, axis),
        *_bars(week_rules.cooldowns(week), axis, week.now, cooldowns),
        *_bars(week_rules.extensions(week), axis, week.now, cooldowns),
        *_bars(week_rules.statuses(week), axis, week.now, out),
        *_bars(week_rules.preheats(week), axis, week.now, preheat),
    )
    dots = (
        *_dots(week_rules.warm_ups(week), axis, warm_ups),
        *_dots(week_rules.verdicts(week), axis, verdicts),
    )
    return Picture(
        height=lanes[-1].y + 48,
        lanes=lanes,
        bars=bars,
        dots=dots,
        ticks=tuple(_ticks(axis)),
        now_x=axis.x(week.now),
        baseline=_BASELINE,
        summary=week_rules.summary(week),
    )


def _end(week: Week) -> dt.datetime:
    """Of the axis: after the running hour, or when the running cooldown is to end."""
    hour = week.start + week_rules.HOURS * _HOUR
    planned = week.present.cooldown_end_date
    return max(hour, min(planned, week.now + _LONGEST_FUTURE)) if planned else hour


def _ticks(axis: Axis) -> Iterator[Tick]:
    day = axis.start.replace(hour=0)
    while day < axis.end:
        if day >= axis.start:
            yield Tick(axis.x(day), f"{day:%a} {day.day}")
        day += _DAY


# --- messages ------------------------------------------------------------------------------------------


def _messages(week: Week, axis: Axis) -> Iterator[Bar]:
    unit = min(_UP / max((1, *week.delivered.values())), _DOWN / max((1, *week.failed.values())))
    for hour in sorted(week.delivered.keys() | week.failed.keys()):
        delivered, failed = week.delivered.get(hour, 0), week.failed.get(hour, 0)
        title = f"{hour:%a %Y-%m-%d %H:00} UTC: {delivered} delivered, {failed} failed"
        x = axis.x(hour)
        width = round(axis.x(hour + _HOUR) - x, 2)
        if delivered:
            height = round(max(_LEAST, delivered * unit), 1)
            yield Bar(x, width, _BASELINE - height, height, "delivered", title)
        if failed:
            yield Bar(x, width, _BASELINE, round(max(_LEAST, failed * unit), 1), "failed", title)


# --- spans and marks -----------------------------------------------------------------------------------


def _bars(spans: Iterable[Span], axis: Axis, now: dt.datetime, y: float) -> list[Bar]:
    """A bar for each span that can be seen; what is still to come of it is a bar of its own."""
    bars: list[Bar] = []
    for span in spans:
        until = span.until or now
        if until <= axis.start or span.since >= axis.end:
            continue
        if span.since < now:
            _add(bars, _bar(span, axis, span.since, min(until, now), y))
        if until > now:
            bars.append(replace(_bar(span, axis, max(span.since, now), until, y), kind=f"{span.kind} planned"))
    return _labelled(bars)


def _bar(span: Span, axis: Axis, since: dt.datetime, until: dt.datetime, y: float) -> Bar:
    x = axis.x(since)
    width = round(max(axis.x(until) - x, GRAIN), 2)
    return Bar(x, width, y, _BAR, span.kind, span.title, span.name)


def _add(bars: list[Bar], bar: Bar) -> None:
    """Several narrow ones that would stand in each other's place are one."""
    before = bars[-1] if bars else None
    if before is None or bar.width > GRAIN or before.kind != bar.kind or bar.x >= before.x + before.width:
        bars.append(bar)
        return
    bars[-1] = replace(before, title=_together(before.title), label="")


def _labelled(bars: list[Bar]) -> list[Bar]:
    """Each with its name where there is room for it, once for what is past and what is to come of one span."""
    told: list[Bar] = []
    for number, bar in enumerate(bars, start=1):
        follows = bars[number].x if number < len(bars) else 100.0
        room, end = _PER_CHARACTER * len(bar.label), bar.x + bar.width
        is_told = bool(told) and told[-1].title == bar.title and bool(told[-1].label)
        if is_told or max(bar.width, follows - end) < room:
            told.append(replace(bar, label=""))
        else:
            told.append(replace(bar, is_beside=bar.width < room))
    return told


def _dots(marks: Iterable[Mark], axis: Axis, y: float) -> list[Dot]:
    dots: dict[tuple[str, float], Dot] = {}
    for mark in marks:
        if mark.at < axis.start:
            continue
        x = axis.x(mark.at)
        place = (mark.kind, x // GRAIN)
        before = dots.get(place)
        title = _together(before.title) if before else mark.title
        dots[place] = Dot(before.x if before else x, y + _BAR / 2, mark.kind, title)
    return list(dots.values())


_MORE = " more here; the first: "


def _together(first: str) -> str:
    """The title of several that are drawn as one: the first one's, and how many more there are."""
    number, more, title = first.partition(_MORE)
    return f"{int(number) + 1}{_MORE}{title}" if more and number.isdigit() else f"1{_MORE}{first}"
