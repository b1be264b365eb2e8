"""What happened to a server within a week, told by its history: spans and marks. Pure.

The rows hold old and new values, so what began before the week is known too: undoing the rows from the present gives
the state at its beginning.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any

from servers.outlook_words import clock
from servers.rules import EVENT_LABELS, Event, Status

_HOUR = dt.timedelta(hours=1)
#: Hours that are shown, the running one among them.
HOURS = 7 * 24


@dataclass(frozen=True, slots=True)
class Row:
    """What is read of a row of history."""

    at: dt.datetime
    event: Event
    old: Mapping[str, Any] = field(default_factory=dict)
    new: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
    by: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """The columns of a server that are drawn."""

    status: str
    cooldown: bool = False
    cooldown_times: int = 0
    cooldown_start_date: dt.datetime | None = None
    cooldown_end_date: dt.datetime | None = None
    preheating: bool = False
    preheat_started_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Week:
    """What the week is told from: the present columns, the rows (the oldest first), messages by the hour."""

    now: dt.datetime
    present: Standing
    rows: Sequence[Row] = ()
    delivered: Mapping[dt.datetime, int] = field(default_factory=dict)
    failed: Mapping[dt.datetime, int] = field(default_factory=dict)

    @property
    def start(self) -> dt.datetime:
        """The beginning of the first hour that is shown."""
        return week_start(self.now)


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasted. `since` may lie before the week, `until` after now; None: not over."""

    kind: str
    since: dt.datetime
    until: dt.datetime | None
    name: str
    title: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a moment."""

    kind: str
    at: dt.datetime
    title: str


def week_start(now: dt.datetime) -> dt.datetime:
    """The beginning (UTC) of the first of the hours that are shown."""
    hour = now.astimezone(dt.UTC).replace(minute=0, second=0, microsecond=0)
    return hour - (HOURS - 1) * _HOUR


# --- how it stood --------------------------------------------------------------------------------------

#: The columns of a server that are drawn.
COLUMNS = frozenset(column.name for column in fields(Standing))


def standings(week: Week) -> list[tuple[dt.datetime, Standing]]:
    """How the server stood, from the week's start on: each time when that changed, and how it stood then."""
    stood = week.present
    for row in reversed(week.rows):
        stood = _with(stood, row.old)
    told = [(week.start, stood)]
    for row in week.rows:
        stood = _with(stood, row.new)
        told.append((row.at, stood))
    return told


def _with(standing: Standing, values: Mapping[str, Any]) -> Standing:
    known = {name: value for name, value in values.items() if name in COLUMNS}
    dates = {
        name: dt.datetime.fromisoformat(value)
        for name, value in known.items()
        if name.endswith(("_date", "_at")) and isinstance(value, str)
    }
    return replace(standing, **(known | dates)) if known else standing


Held = tuple[Standing, Standing, dt.datetime, dt.datetime | None]


def _held(week: Week, key: Callable[[Standing], object]) -> Iterator[Held]:
    """For each time that a key held (None: nothing): how it stood first and last, from when to when (None: still)."""
    runs = [list(run) for _, run in groupby(standings(week), key=lambda told: key(told[1]))]
    ends = [run[0][0] for run in runs[1:]]
    for run, until in zip(runs, [*ends, None], strict=True):
        if key(run[0][1]) is not None:
            yield run[0][1], run[-1][1], run[0][0], until


# --- what lasted ---------------------------------------------------------------------------------------


def cooldowns(week: Week) -> Iterator[Span]:
    """Each cooldown; a running one until it is to end, or until now where it is over and its verdict is to come."""
    for first, last, since, until in _held(week, lambda s: s.cooldown_start_date if s.cooldown else None):
        start, planned = first.cooldown_start_date or since, last.cooldown_end_date or week.now
        name = f"#{first.cooldown_times}"
        title = f"Cooldown {name}, {clock(start, week.now)} – {clock(until or planned, week.now)}"  # noqa: RUF001
        running = "" if until else ", running"
        yield Span("cooldown", start, until or max(planned, week.now), name, f"{title}{running}")


def extensions(week: Week) -> Iterator[Span]:
    """What cooldowns were longer by."""
    number = 0
    for row in week.rows:
        if row.event is not Event.COOLDOWN_EXTENDED:
            continue
        before, after = _moment(row.old, "cooldown_end_date"), _moment(row.new, "cooldown_end_date")
        number = row.new.get("cooldown_extensions", number + 1)
        if before is not None and after is not None:
            yield Span("extension", before, after, "", f"Extension {number}, until {clock(after, week.now)}")


def _moment(values: Mapping[str, Any], name: str) -> dt.datetime | None:
    text = values.get(name)
    return dt.datetime.fromisoformat(text) if isinstance(text, str) else None


#: What is drawn of the statuses, and what people call it.
OUT = {
    Status.NEED_CHECK.value: "Need Check",
    Status.LOST.value: "Lost",
    Status.DISABLED.value: "Disabled",
    Status.DELETED.value: "Deleted",
}


def statuses(week: Week) -> Iterator[Span]:
    """The times out of rotation."""
    for first, _, since, until in _held(week, lambda s: s.status if s.status in OUT else None):
        name = OUT[first.status]
        yield Span(first.status, since, until, name, f"{name}, {_span(since, until, week)}")


def preheats(week: Week) -> Iterator[Span]:
    """The times of preheat."""
    for first, _, since, until in _held(week, lambda s: s.preheat_started_at if s.preheating else None):
        start = first.preheat_started_at or since
        yield Span("preheat", start, until, "Preheat", f"Preheat, {_span(start, until, week)}")


def _span(since: dt.datetime, until: dt.datetime | None, week: Week) -> str:
    begin = "from before the week" if since <= week.start else f"from {clock(since, week.now)}"
    return f"{begin} {f'to {clock(until, week.now)}' if until else 'until now'}"


# --- what happened -------------------------------------------------------------------------------------


def warm_ups(week: Week) -> Iterator[Mark]:
    """Warm-ups that were sent, refused, confirmed."""
    for row in week.rows:
        if row.event is Event.WARMUP_CONFIRMED:
            yield Mark("confirmed", row.at, f"Warm-up confirmed, {clock(row.at, week.now)}")
        elif row.event is Event.WARMUP_SENT:
            kind = "refused" if row.refused else "sent"
            yield Mark(kind, row.at, f"Warm-up {kind}, {clock(row.at, week.now)}")


_BY_PEOPLE = frozenset(
    {
        Event.NEED_CHECK,
        Event.RECOVERED,
        Event.MARKED_ACTIVE,
        Event.PREHEAT_STARTED,
        Event.CHAT_PREHEAT_STARTED,
        Event.LOST,
        Event.DELETED,
        Event.DISABLED,
    }
)
#: Events that are drawn; failures are counted by the hour instead.
DRAWN = _BY_PEOPLE | {
    Event.COOLDOWN_STARTED,
    Event.COOLDOWN_EXTENDED,
    Event.COOLDOWN_FINISHED,
    Event.WARMUP_SENT,
    Event.WARMUP_CONFIRMED,
    Event.PREHEAT_FINISHED,
    Event.COUNTERS_RESET,
}


def verdicts(week: Week) -> Iterator[Mark]:
    """What people decided."""
    for row in week.rows:
        if row.event in _BY_PEOPLE and row.by:
            yield Mark("verdict", row.at, f"{EVENT_LABELS[row.event]} by {row.by}, {clock(row.at, week.now)}")


# --- in words ------------------------------------------------------------------------------------------


def summary(week: Week) -> str:
    """The week in one sentence, for those who cannot see the picture."""
    numbers = [span.name for span in cooldowns(week)]
    lasted = [span.name for span in (*statuses(week), *preheats(week))]
    kinds = [mark.kind for mark in warm_ups(week)]
    parts = [
        f"{sum(week.delivered.values())} client messages delivered, {sum(week.failed.values())} failed",
        f"{len(numbers)} cooldowns{_listed(numbers)}, {len(list(extensions(week)))} extensions",
        f"{kinds.count('sent')} warm-ups sent, {kinds.count('confirmed')} confirmed",
        f"out of rotation or in preheat: {_listed(lasted).removeprefix(' (').removesuffix(')') or 'never'}",
        f"{len(list(verdicts(week)))} verdicts of people",
    ]
    return f"The last 7 days: {'; '.join(parts)}."


def _listed(names: Iterable[str], most: int = 8) -> str:
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f" ({', '.join(names[:most])}{more})" if names else ""
