"""Journals of the drill as aligned text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from otp_service.core.aligned import aligned
from scheduler.drill.journal import PHASES, Journal, Waits
from scheduler.drill.verdicts import Verdict

_HEADING = ("failure", "switch", "unknown", "possible", "confirmed", "delivered", "openings", "otp p50", "p99", "max")
_WORD_COLUMNS = frozenset({0})


@dataclass(frozen=True, slots=True)
class Page:
    """One failure: its name, what it is in words, its figures, and what was judged of them."""

    name: str
    words: str
    journal: Journal
    verdicts: Sequence[Verdict]


def text(pages: Sequence[Page]) -> str:
    """A table of all, and a page for each."""
    table = aligned([_HEADING, *map(_row, pages)], word_columns=_WORD_COLUMNS)
    legend = (
        "switch: seconds until a copy left over the backup. unknown: attempts that ever were. possible, confirmed: "
        "duplicates.\notp: from its acceptance during the fault until a provider had it."
    )
    return "\n\n".join([table, legend, *("\n".join(_page(page)) for page in pages)])


def _row(page: Page) -> tuple[str, ...]:
    found = page.journal
    waits = found.waits["during"]
    return (
        page.name,
        _seconds(found.time_to_switch),
        str(found.unknown_ever),
        str(found.possible_duplicates),
        str(found.confirmed_duplicates),
        f"{found.share_delivered:.1%}",
        str(sum(" opened " in change for change in found.breakers)),
        *map(_seconds, (waits.p50, waits.p99, waits.max)),
    )


def _page(page: Page) -> Iterator[str]:
    found = page.journal
    yield f"{page.name}: {page.words}"
    yield (
        f"  accepted {_counts(found.accepted)}; ended {_counts(found.ends)}; "
        f"posts told to come again {found.turned_away}; receipts lost {found.receipts_lost}"
    )
    yield (
        f"  fault of {found.fault_s:g} s; switched after {_seconds(found.time_to_switch)}; "
        f"unknown now {found.unknown_now}, ever {found.unknown_ever}; held {found.held}"
    )
    yield (
        f"  duplicates: possible {found.possible_duplicates}, confirmed {found.confirmed_duplicates}, "
        f"most copies of one message {found.most_copies}"
    )
    yield f"  breakers: {', '.join(found.breakers) or 'nothing'}"
    for words, waits in (("with a provider", found.waits), ("first attempt", found.first_claims)):
        yield f"  otp, {words} after: {'; '.join(_waits(phase, waits[phase]) for phase in PHASES)}"
    yield f"  slowest otp: {found.slowest or 'none'}"
    yield from (f"  without an end: {words}" for words in found.still_open)
    yield from (f"  {verdict}" for verdict in page.verdicts)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "nothing"


def _waits(phase: str, waits: Waits) -> str:
    return f"{phase} ({waits.count}) p50 {waits.p50:.2f} s, p99 {waits.p99:.2f} s, max {waits.max:.2f} s"


def _seconds(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def as_json(pages: Sequence[Page]) -> dict[str, Any]:
    """Everything that the text shows. Times in seconds."""
    return {
        "failures": [
            {
                "name": page.name,
                "words": page.words,
                **asdict(page.journal),
                "verdicts": [asdict(verdict) for verdict in page.verdicts],
                "holds": all(verdict.holds for verdict in page.verdicts),
            }
            for page in pages
        ]
    }
