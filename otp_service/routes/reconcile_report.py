"""What was found between us and providers, as tables for people and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from decimal import Decimal
from typing import Any

from otp_service.core.aligned import aligned
from otp_service.routes.reconcile_rules import Kind, Tally

#: What a kind of difference is called.
TITLES = {
    Kind.STATE: "another state",
    Kind.PARTS: "other parts",
    Kind.COST: "another cost",
    Kind.NOT_THEIRS: "ours, unknown to them",
    Kind.NOT_OURS: "theirs, unknown to us",
    Kind.TWICE: "named twice",
}


def report(tallies: Sequence[Tally], day: date) -> str:
    """Counts of all routes, sums, and the first differences of each kind."""
    if not tallies:
        return f"{day}: no route with can_query: switch it on in the admin, or give --route and --file"
    blocks = [f"attempts of {day} (UTC)", _counts(tallies), _sums(tallies)]
    return "\n\n".join([*blocks, *(block for tally in tallies if (block := _details(tally)))])


def document(tallies: Sequence[Tally], day: date) -> dict[str, Any]:
    """All of it, for programs."""
    routes = [
        {
            **tally.counts(),
            "bad_lines": tally.bad_lines,
            "examples": [asdict(each) for kind in Kind for each in tally.examples.get(kind, ())],
        }
        for tally in tallies
    ]
    return {"day": day.isoformat(), "routes": routes}


def _counts(tallies: Sequence[Tally]) -> str:
    heading = ("route", "attempts", "compared", "agreed", *TITLES.values(), "unanswered", "bad lines", "learned")
    rows = []
    for tally in tallies:
        differences = [tally.differences[kind] for kind in TITLES]
        counts = [tally.attempts, tally.compared, tally.agreed, *differences]
        rows.append((tally.route, *(f"{n:,}" for n in [*counts, tally.unanswered, tally.bad_lines, tally.learned])))
    return aligned([heading, *rows], word_columns={0})


def _sums(tallies: Sequence[Tally]) -> str:
    rows = [
        (tally.route, currency, *_three(tally.our_cost.get(currency), tally.their_cost.get(currency)))
        for tally in tallies
        for currency in sorted({*tally.our_cost, *tally.their_cost})
    ]
    heading = ("route", "currency", "by our price list", "by theirs", "theirs less ours")
    return aligned([heading, *rows], word_columns={0, 1}) if rows else "cost: none known on either side"


def _three(ours: Decimal | None, theirs: Decimal | None) -> tuple[str, str, str]:
    more = "" if ours is None or theirs is None else _money(theirs - ours)
    return _money(ours), _money(theirs), more


def _money(amount: Decimal | None) -> str:
    return "none" if amount is None else f"{amount:,.6f}"


def _details(tally: Tally) -> str:
    lines = [
        f"{tally.route}: {TITLES[each.kind]}: {each.about}{_sides(each.ours, each.theirs)}"
        for kind in Kind
        for each in tally.examples.get(kind, ())
    ]
    return "\n".join([*lines, *(f"{tally.route}: bad {line}" for line in tally.bad)])


def _sides(ours: str, theirs: str) -> str:
    said = [f"{word} {value}" for word, value in (("ours", ours), ("theirs", theirs)) if value]
    return f" ({', '.join(said)})" if said else ""
