"""What a provider says of attempts beside what we know of them: which differ, and in what. Pure."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from uuid import UUID

from otp_service.core.outcomes import ReportedState
from otp_service.messages.rules import AttemptState

#: Differences of each kind that are kept to be shown; all are counted.
EXAMPLES = 20
#: Costs that differ by less are equal: prices are rounded, each in its own way.
SAME_COST = Decimal("0.000001")


class Kind(enum.StrEnum):
    """In what we and a provider differ about an attempt."""

    STATE = "state"
    PARTS = "parts"
    COST = "cost"  # or its currency
    NOT_THEIRS = "not_theirs"  # it has never heard of an attempt that we handed over
    NOT_OURS = "not_ours"  # it names one that is not of this route
    TWICE = "twice"  # it names one again


@dataclass(frozen=True, slots=True)
class Ours:
    """An attempt as we know it. `parts` and `cost` are None where they are not known; the cost is our price list's."""

    uuid: UUID
    state: AttemptState
    parts: int | None = None
    cost: Decimal | None = None
    currency: str = ""


@dataclass(frozen=True, slots=True)
class Theirs:
    """What a provider says of it; None says nothing."""

    state: ReportedState | None = None
    parts: int | None = None
    cost: Decimal | None = None
    currency: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """One of them, in words. `about`: our uuid of the attempt, or where the provider names what is not ours."""

    kind: Kind
    about: str
    ours: str
    theirs: str


#: Where we may stand when they say so. What they cannot say is not compared. Refused at once, and taken and failed,
#: are the same to a provider.
_AGREES: Mapping[ReportedState, frozenset[AttemptState]] = {
    ReportedState.QUEUED: frozenset({AttemptState.ACCEPTED}),
    ReportedState.SENT: frozenset({AttemptState.SENT}),
    ReportedState.DELIVERED: frozenset({AttemptState.DELIVERED}),
    ReportedState.FAILED: frozenset({AttemptState.FAILED, AttemptState.NOT_SUBMITTED}),
    ReportedState.NEVER: frozenset({AttemptState.FAILED, AttemptState.NOT_SUBMITTED}),
    ReportedState.NOT_FOUND: frozenset({AttemptState.NOT_SUBMITTED}),
}


def compare(ours: Ours, theirs: Theirs) -> list[Difference]:
    """In what they differ. What one side does not know is no difference."""
    differences = [_of_state(ours, theirs), _of_parts(ours, theirs), _of_cost(ours, theirs)]
    return [difference for difference in differences if difference is not None]


def _of_state(ours: Ours, theirs: Theirs) -> Difference | None:
    if theirs.state is None or theirs.state is ReportedState.UNKNOWN or ours.state in _AGREES[theirs.state]:
        return None
    kind = Kind.NOT_THEIRS if theirs.state is ReportedState.NOT_FOUND else Kind.STATE
    return Difference(kind, str(ours.uuid), ours.state.value, theirs.state.value)


def _of_parts(ours: Ours, theirs: Theirs) -> Difference | None:
    if None in {ours.parts, theirs.parts} or ours.parts == theirs.parts:
        return None
    return Difference(Kind.PARTS, str(ours.uuid), str(ours.parts), str(theirs.parts))


def _of_cost(ours: Ours, theirs: Theirs) -> Difference | None:
    if ours.cost is None or theirs.cost is None:
        return None
    if ours.currency == theirs.currency and abs(ours.cost - theirs.cost) < SAME_COST:
        return None
    return Difference(Kind.COST, str(ours.uuid), _money(ours), _money(theirs))


def _money(side: Ours | Theirs) -> str:
    return f"{side.cost:f} {side.currency}"


@dataclass(slots=True)
class Tally:
    """What was found for one route so far."""

    route: str
    attempts: int = 0  # of ours on that day
    compared: int = 0  # attempts that the provider said something of
    agreed: int = 0
    unanswered: int = 0  # attempts that were asked about in vain
    learned: int = 0  # attempts that an answer changed
    bad_lines: int = 0
    differences: Counter[Kind] = field(default_factory=Counter)
    examples: dict[Kind, list[Difference]] = field(default_factory=lambda: defaultdict(list))
    bad: list[str] = field(default_factory=list)  # sentences, as many as examples
    our_cost: dict[str, Decimal] = field(default_factory=lambda: defaultdict(Decimal))  # by currency, of all compared
    their_cost: dict[str, Decimal] = field(default_factory=lambda: defaultdict(Decimal))

    def add(self, ours: Ours, theirs: Theirs) -> list[Difference]:
        """Compare, and count; returns the differences."""
        found = compare(ours, theirs)
        self.compared += 1
        self.agreed += not found
        for difference in found:
            self.note(difference)
        if ours.cost is not None:
            self.our_cost[ours.currency] += ours.cost
        self.count_cost(theirs)
        return found

    def count_cost(self, theirs: Theirs) -> None:
        """A cost that the provider names, ours or not: it is on its bill."""
        if theirs.cost is not None:
            self.their_cost[theirs.currency] += theirs.cost

    def note(self, difference: Difference) -> None:
        """Count a difference, and keep the first ones."""
        self.differences[difference.kind] += 1
        if len(self.examples[difference.kind]) < EXAMPLES:
            self.examples[difference.kind].append(difference)

    def note_bad(self, number: int, why: str) -> None:
        """Count a line that cannot be read, and keep the first ones."""
        self.bad_lines += 1
        if len(self.bad) < EXAMPLES:
            self.bad.append(f"line {number}: {why}")

    def counts(self) -> dict[str, object]:
        """Without examples: for the log and the events."""
        return {
            "route": self.route,
            "attempts": self.attempts,
            "compared": self.compared,
            "agreed": self.agreed,
            "unanswered": self.unanswered,
            "learned": self.learned,
            "differences": {kind.value: count for kind, count in sorted(self.differences.items())},
            "our_cost": {currency: str(cost) for currency, cost in sorted(self.our_cost.items())},
            "their_cost": {currency: str(cost) for currency, cost in sorted(self.their_cost.items())},
        }
