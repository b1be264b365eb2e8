"""Figures of the last minute."""

from __future__ import annotations

import pytest

from otp_service.core.measures import Rate, Waits, percentile


def test_a_percentile_of_nothing_is_0() -> None:
    assert percentile([], 0.99) == 0


def test_waits_are_those_of_the_last_minute() -> None:
    waits = Waits()
    waits.add(9.0, at=0.0)
    waits.add(1.0, at=60.0)
    waits.add(3.0, at=61.0)
    assert waits.summary(at=60.0) == {"count": 3, "p50": 3.0, "p95": 9.0, "p99": 9.0, "max": 9.0}
    assert waits.summary(at=60.5) == {"count": 2, "p50": 1.0, "p95": 3.0, "p99": 3.0, "max": 3.0}
    assert waits.summary(at=200.0) == {"count": 0, "p50": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}


def test_a_rate_is_the_mean_of_the_last_minute() -> None:
    rate = Rate()
    rate.add(60, at=0.5)
    rate.add(30, at=30.2)
    rate.add(30, at=30.9)
    assert rate.per_second(at=30.9) == pytest.approx(2.0)
    assert rate.per_second(at=60.5) == pytest.approx(1.0)
    assert rate.per_second(at=120.0) == 0
