"""The cascade's figures as tables for people. Pure: a share never stands without its counts, nor without any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any

from otp_service.core.aligned import aligned
from otp_service.routes.cascade_figures import Figures, Place

NONE = "none"
_PERCENT_FROM = 20  # of fewer, a percentage says more than is known


def report(figures: Figures) -> str:
    """Every table under its title."""
    attempted = sum(lane.attempted for lane in figures.lanes)
    accepted = sum(lane.messages for lane in figures.lanes)
    heading = (
        f"messages accepted from {figures.since:%Y-%m-%d %H:%M:%S} to {figures.until:%Y-%m-%d %H:%M:%S} UTC: "
        f"{accepted:,}, of which attempted: {attempted:,}"
    )
    tables = [
        ("routes, by their place among the distinct routes of a message", _places(figures.places, attempted)),
        ("delivered in time (within the route's delivery_s of the claim), by place", _in_time(figures.places)),
        ("reasons for going on from a route", _plain(("route", "reason", "switches"), figures.switches)),
        ("passed over when another route was taken", _plain(("route", "reason", "attempts"), figures.passed_over)),
        ("from acceptance to the first successful submission, and late first attempts", _lanes(figures)),
        ("duplicates", _duplicates(figures)),
        ("calls without a clear answer, and what became of them", _unclear(figures)),
        ("accepted, and no receipt after the route's wait", _silent(figures)),
        ("cost by our price list", _spent(figures)),
        ("openings of breakers", _plain(("route", "openings"), figures.openings)),
        (f"waiting at {figures.now:%H:%M:%S} UTC", _queue(figures)),
    ]
    return "\n\n".join([heading, *(f"{title}\n{table}" for title, table in tables)])


def share(count: int, of: int) -> str:
    """The counts, and a percentage where there are enough of them; "none" of nothing."""
    if not of:
        return NONE
    percentage = f" ({100 * count / of:.1f} %)" if of >= _PERCENT_FROM else ""
    return f"{count:,} of {of:,}{percentage}"


def duration(seconds: float | None) -> str:
    """Seconds for people; "none" where there is no such time."""
    if seconds is None:
        return NONE
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """The first so many columns are words; "none" without rows."""
    rows = list(rows)
    return aligned([heading, *rows], word_columns=range(words)) if rows else NONE


def _plain(heading: Sequence[str], rows: Iterable[Any]) -> str:
    """Words and a count, as they are."""
    lines = [[*row[:-1], f"{row[-1]:,}"] for row in map(astuple, rows)]
    return _table(heading, [[cell or "not known any more" for cell in line] for line in lines], len(heading) - 1)


def _places(places: Iterable[Place], attempted: int) -> str:
    heading = ("route", "place", "messages", "attempts", "handed over", "delivered", "in time")
    return _table(
        heading,
        [
            (
                each.route,
                str(each.position),
                share(each.messages, attempted),
                f"{each.attempts:,}",
                f"{each.handed_over:,}",
                share(each.delivered, each.handed_over),
                share(each.in_time, each.handed_over),
            )
            for each in places
        ],
    )


def _in_time(places: Sequence[Place]) -> str:
    rows = []
    for position in sorted({each.position for each in places}):
        of_it = [each for each in places if each.position == position]
        handed_over = sum(each.handed_over for each in of_it)
        rows.append((str(position), share(sum(each.in_time for each in of_it), handed_over)))
    return _table(("place", "in time, of those handed over"), rows)


def _lanes(figures: Figures) -> str:
    heading = ("lane", "messages", "submitted", "p50", "p95", "p99", "late", "not started in time")
    return _table(
        heading,
        [
            (
                lane.lane,
                f"{lane.messages:,}",
                share(lane.submitted, lane.messages),
                *map(duration, (lane.p50_s, lane.p95_s, lane.p99_s)),
                share(lane.late, lane.limited),
                share(lane.unstarted, lane.limited),
            )
            for lane in figures.lanes
        ],
    )


def _duplicates(figures: Figures) -> str:
    heading = ("lane", "possible (attempts)", "confirmed (messages)")
    rows = [(lane.lane, f"{lane.possible:,}", share(lane.confirmed, lane.attempted)) for lane in figures.lanes]
    return _table(heading, rows)


def _unclear(figures: Figures) -> str:
    heading = ("route", "unknown now", "median age", "oldest", "delivered", "failed", "never sent", "still open")
    return _table(
        heading,
        [
            (
                each.route,
                f"{each.now_unknown:,}",
                duration(each.median_age_s),
                duration(each.oldest_s),
                *(f"{count:,}" for count in (each.delivered, each.failed, each.never, each.still_open)),
            )
            for each in figures.unclear
        ],
    )


def _silent(figures: Figures) -> str:
    rows = [
        (each.route, share(each.nothing, each.accepted), share(each.no_end, each.accepted)) for each in figures.silent
    ]
    return _table(("route", "no receipt", "sent, and no more"), rows)


def _spent(figures: Figures) -> str:
    heading = ("route", "currency", "attempts", "cost", "messages delivered", "cost per delivered message")
    return _table(
        heading,
        [
            (
                each.route,
                each.currency,
                f"{each.attempts:,}",
                f"{each.cost:,.4f}",
                f"{each.delivered_messages:,}",
                f"{each.cost / each.delivered_messages:.6f}" if each.delivered_messages else NONE,
            )
            for each in figures.spent
        ],
        words=2,
    )


def _queue(figures: Figures) -> str:
    rows = [(each.lane, f"{each.messages:,}", duration(each.oldest_s)) for each in figures.queue]
    return _table(("lane", "messages", "oldest"), rows)
