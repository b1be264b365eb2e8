"""In what we and a provider differ, by table."""

from __future__ import annotations

import uuid
from decimal import Decimal

import pytest

from otp_service.core.outcomes import ReportedState
from otp_service.messages.rules import AttemptState
from otp_service.routes.reconcile_rules import EXAMPLES, Difference, Kind, Ours, Tally, Theirs, compare

ID = uuid.UUID(int=1)
A, R = AttemptState, ReportedState


def kinds(ours: Ours, theirs: Theirs) -> list[Kind]:
    return [difference.kind for difference in compare(ours, theirs)]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (A.ACCEPTED, R.QUEUED),
        (A.SENT, R.SENT),
        (A.DELIVERED, R.DELIVERED),
        (A.FAILED, R.FAILED),
        (A.NOT_SUBMITTED, R.FAILED),
        (A.FAILED, R.NEVER),
        (A.NOT_SUBMITTED, R.NOT_FOUND),
        (A.SENT, R.UNKNOWN),
        (A.SENT, None),
    ],
)
def test_states_that_agree(ours: AttemptState, theirs: ReportedState | None) -> None:
    assert kinds(Ours(ID, ours), Theirs(theirs)) == []


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (A.UNKNOWN, R.QUEUED),
        (A.ACCEPTED, R.SENT),
        (A.SENT, R.QUEUED),
        (A.SENT, R.DELIVERED),
        (A.DELIVERED, R.FAILED),
        (A.FAILED, R.DELIVERED),
        (A.ACCEPTED, R.NEVER),
    ],
)
def test_states_that_differ(ours: AttemptState, theirs: ReportedState) -> None:
    assert compare(Ours(ID, ours), Theirs(theirs)) == [Difference(Kind.STATE, str(ID), ours.value, theirs.value)]


def test_an_attempt_that_we_handed_over_and_they_never_heard_of_is_not_theirs() -> None:
    assert kinds(Ours(ID, A.ACCEPTED), Theirs(R.NOT_FOUND)) == [Kind.NOT_THEIRS]


@pytest.mark.parametrize(("parts", "differs"), [(2, False), (3, True), (None, False)])
def test_parts(parts: int | None, *, differs: bool) -> None:
    assert (kinds(Ours(ID, A.SENT, parts=2), Theirs(parts=parts)) == [Kind.PARTS]) is differs


@pytest.mark.parametrize(
    ("cost", "currency", "differs"),
    [
        ("0.05", "EUR", False),
        ("0.0500009", "EUR", False),
        ("0.050001", "EUR", True),
        ("0.049999", "EUR", True),
        ("0.05", "USD", True),
    ],
)
def test_cost(cost: str, currency: str, *, differs: bool) -> None:
    ours = Ours(ID, A.SENT, cost=Decimal("0.05"), currency="EUR")
    assert (kinds(ours, Theirs(cost=Decimal(cost), currency=currency)) == [Kind.COST]) is differs


def test_a_cost_that_one_side_does_not_know_is_no_difference() -> None:
    assert kinds(Ours(ID, A.SENT), Theirs(cost=Decimal(1), currency="EUR")) == []
    assert kinds(Ours(ID, A.SENT, cost=Decimal(1), currency="EUR"), Theirs()) == []


def test_a_tally_sums_by_currency_and_keeps_the_first_examples() -> None:
    tally = Tally("sms:one")
    for number in range(EXAMPLES + 5):
        ours = Ours(uuid.UUID(int=number), A.SENT, 1, Decimal("0.10"), "EUR")
        tally.add(ours, Theirs(R.FAILED, 1, Decimal("0.10"), "USD" if number else "EUR"))

    assert (tally.compared, tally.agreed) == (25, 0)
    assert tally.differences == {Kind.STATE: 25, Kind.COST: 24}
    assert [each.about for each in tally.examples[Kind.STATE]] == [str(uuid.UUID(int=n)) for n in range(EXAMPLES)]
    assert tally.our_cost == {"EUR": Decimal("2.50")}
    assert tally.their_cost == {"EUR": Decimal("0.10"), "USD": Decimal("2.40")}
