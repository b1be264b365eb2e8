"""Buckets become figures: what is added up, and what a lost bucket does to it."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.routes import breaker_rules as rules
from otp_service.routes.breaker_rules import Calls, Receipts

SECOND = dt.timedelta(seconds=1)


def ratio(times: float) -> str:
    return rules.ratio_key(times * SECOND, SECOND)


@pytest.mark.parametrize(
    ("times", "rounded"),
    [(0, 0.1), (0.1, 0.1), (0.101, 0.2), (1, 1.0), (1.000001, 1.1), (2, 2.0), (9.9, 10.0), (10, 10.0), (999, 10.0)],
)
def test_times_are_rounded_up_to_a_ratio(times: float, rounded: float) -> None:
    assert rules.calls_of([{ratio(times): 1}]).p95 == rounded


def test_calls_are_added_up_over_buckets() -> None:
    buckets = [{"good": 3, "fault": 1, ratio(0.5): 3}, {}, {"good": 1, "refused": 2, "slow": 4, ratio(3): 1}]
    calls = rules.calls_of(buckets)
    assert calls == Calls(good=4, faults=1, refused=2, slow=4, p95=3.0)
    assert (calls.volume, calls.bad) == (11, 7)


@pytest.mark.parametrize(
    ("quick", "slow", "p95"), [(0, 0, 0.0), (95, 5, 0.5), (94, 6, 2.0), (19, 1, 0.5), (18, 1, 2.0), (0, 1, 2.0)]
)
def test_p95_is_what_95_of_100_do_not_exceed(quick: int, slow: int, p95: float) -> None:
    assert rules.calls_of([{ratio(0.5): quick}, {ratio(2): slow}]).p95 == p95


def test_receipts_are_added_up_over_buckets() -> None:
    buckets = [
        {"accepted": 10, ratio(0.5): 5, ratio(1): 1, ratio(1.1): 1, "failed": 2},
        {"accepted": 5, "excused": 2, ratio(0.5): 3},
    ]
    receipts = rules.receipts_of(buckets)
    assert receipts == Receipts(volume=13, in_time=9, delivered=10, failed=2, p95=1.1)
    assert (receipts.bad, receipts.silent) == (4, 1)


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param({ratio(0.5): 9}, id="deliveries of attempts that were flushed"),
        pytest.param({"failed": 9}, id="failures of attempts that were flushed"),
        pytest.param({"excused": 9}, id="more excused than attempts"),
    ],
)
def test_endings_of_attempts_that_were_lost_hide_nothing(lost: dict[str, int]) -> None:
    receipts = rules.receipts_of([lost, {"accepted": 20}])
    assert (receipts.volume, receipts.bad) == (20, 20)


keys = st.sampled_from(["accepted", "excused", "failed", ratio(0.5), ratio(1), ratio(2)])


@given(st.lists(st.dictionaries(keys, st.integers(0, 9))))
def test_figures_make_sense_whatever_was_lost(buckets: list[dict[str, int]]) -> None:
    receipts = rules.receipts_of(buckets)
    assert 0 <= receipts.in_time <= receipts.delivered <= receipts.delivered + receipts.failed <= receipts.volume
    assert receipts.bad >= 0
    assert receipts.silent >= 0
