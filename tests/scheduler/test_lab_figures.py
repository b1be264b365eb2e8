"""What the lab makes of its runs: percentiles over all otp, those that never started included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.core.measures import percentile
from scheduler.lab.figures import CellRun, Wait, figures


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        pytest.param([7.0], 0.5, 7.0, id="one value is every percentile"),
        pytest.param([1.0, 2.0], 0.5, 1.0, id="half of two is the first"),
        pytest.param([1.0, 2.0, 3.0], 0.5, 2.0, id="the middle of three"),
        pytest.param([float(n) for n in range(1, 101)], 0.99, 99.0, id="99 of 100"),
        pytest.param([float(n) for n in range(1, 102)], 0.99, 100.0, id="99 of 101 is rounded up"),
        pytest.param([float(n) for n in range(1, 51)], 0.99, 50.0, id="99 of 50 is the last"),
        pytest.param([1.0, 2.0, 3.0], 1.0, 3.0, id="all: the largest"),
        pytest.param([1.0, 2.0, 3.0], 0.0, 1.0, id="none: the smallest"),
    ],
)
def test_percentile(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


@given(st.lists(st.floats(0, 1_000), min_size=1), st.floats(0, 1))
def test_percentile_is_a_value_that_so_many_do_not_exceed(values: list[float], share: float) -> None:
    found = percentile(sorted(values), share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6


def test_counts_the_unstarted_as_still_waiting() -> None:
    found = figures([CellRun(waits=(0.1, 0.2, 0.3), unstarted=(9.0,), promo=50, seconds=25.0)])
    assert (found.started, found.of) == (3, 4)
    assert found.p50 == Wait(0.2, at_least=False)
    assert found.p99 == found.worst == Wait(9.0, at_least=True)


def test_a_wait_above_that_of_one_unstarted_is_a_lower_bound_too() -> None:
    found = figures([CellRun(waits=(5.0,), unstarted=(1.0,), promo=0, seconds=25.0)])
    assert found.p50 == Wait(1.0, at_least=True)
    assert found.worst == Wait(5.0, at_least=True)


def test_takes_the_runs_of_a_cell_together() -> None:
    runs = [CellRun((0.1,), (), promo=10, seconds=5.0), CellRun((0.3,), (), promo=30, seconds=5.0)]
    found = figures(runs)
    assert (found.started, found.of, found.worst.seconds, found.promo_per_s) == (2, 2, 0.3, 4.0)


@pytest.mark.parametrize(
    ("wait", "written"),
    [
        pytest.param(Wait(0.0, at_least=False), "0 ms", id="nothing"),
        pytest.param(Wait(0.0124, at_least=False), "12 ms", id="milliseconds"),
        pytest.param(Wait(0.9994, at_least=False), "999 ms", id="just under a second"),
        pytest.param(Wait(0.9995, at_least=False), "1.0 s", id="rounds to a second"),
        pytest.param(Wait(21.96, at_least=True), "≥ 22.0 s", id="still waiting"),
    ],
)
def test_a_wait_is_written_for_people(wait: Wait, written: str) -> None:
    assert str(wait) == written
