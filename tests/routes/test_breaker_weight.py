"""A route whose messages arrive later and later carries less and less, long before it is shut off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.routes import breaker_rules as rules
from otp_service.routes.breaker_rules import Calls, Open, Probes, Receipts, Standing
from tests.conftest import NOON

WELL = Receipts(100, in_time=100, delivered=100, p95=0.5)


@pytest.mark.parametrize(
    ("calls", "receipts", "expected"),
    [
        pytest.param(Calls(), Receipts(), 1.0, id="nothing known"),
        pytest.param(Calls(good=100, p95=1.0), WELL, 1.0, id="all well"),
        pytest.param(Calls(slow=19), Receipts(19), 1.0, id="too few to say anything"),
        pytest.param(Calls(good=20, p95=2.0), Receipts(), 0.5, id="answers take twice the limit"),
        pytest.param(Calls(good=75, faults=25), Receipts(), 0.5, id="a quarter of the calls fail"),
        pytest.param(Calls(), Receipts(20, 20, 20, p95=1.25), 0.8, id="receipts a quarter over the target"),
        pytest.param(Calls(), Receipts(100, 75, 75), 0.5, id="a quarter is silent"),
        pytest.param(Calls(good=75, faults=25), Receipts(20, 20, 20, p95=4.0), 0.25, id="the worst one counts"),
        pytest.param(Calls(faults=20), Receipts(), 0.1, id="never nothing"),
        pytest.param(Calls(good=20, p95=10.0), Receipts(20, p95=10.0), 0.1, id="never nothing, by both"),
    ],
)
def test_weight(calls: Calls, receipts: Receipts, expected: float) -> None:
    assert rules.weight(calls, receipts) == pytest.approx(expected)


ratios = st.sampled_from([0.0, *rules.RATIOS])


@given(volume=st.integers(0, 60), p95s=st.tuples(ratios, ratios))
def test_a_longer_time_to_receipt_never_raises_it(volume: int, p95s: tuple[float, float]) -> None:
    quicker, slower = (Receipts(volume, volume, volume, p95=p95) for p95 in sorted(p95s))
    assert rules.weight(Calls(), slower) <= rules.weight(Calls(), quicker)


@given(volume=st.integers(1, 60), shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_more_late_ones_never_raise_it(volume: int, shares: tuple[float, float]) -> None:
    few, many = (Receipts(volume, volume - round(volume * share), volume) for share in sorted(shares))
    assert rules.weight(Calls(), many) <= rules.weight(Calls(), few)


@given(calls=st.builds(Calls, *[st.integers(0, 30)] * 4, ratios), late=st.integers(0, 60), volume=st.integers(0, 60))
def test_what_opens_has_the_least_weight_already(calls: Calls, late: int, volume: int) -> None:
    receipts = Receipts(volume, max(0, volume - late), volume)
    assert rules.LEAST_WEIGHT <= rules.weight(calls, receipts) <= 1
    if isinstance(rules.decide(Standing(), calls, receipts, Probes(), NOON), Open):
        assert rules.weight(calls, receipts) == rules.LEAST_WEIGHT


def test_falls_step_by_step_while_more_and_more_come_late() -> None:
    weights = [rules.weight(Calls(), Receipts(100, 100 - late, 100)) for late in range(0, 46, 5)]
    assert weights == sorted(weights, reverse=True)
    assert len(set(weights)) == len(weights)
