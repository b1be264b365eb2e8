"""How many slots given rates need."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.messages.rules import Lane
from scheduler.lab.sizing import needs, sizing_rows, slots_for, verdict
from scheduler.rules import SlotSizes

SIZES = SlotSizes(floor=60, shared=1140, reserve=340, promo_floor=0)


@pytest.mark.parametrize(
    ("rate", "seconds", "slots"),
    [
        pytest.param(200, 2.0, 400, id="otp over an SMS provider that takes two seconds"),
        pytest.param(200, 0.15, 30, id="the same when it is healthy"),
        pytest.param(6_756, 0.15, 1_014, id="the peak of all lanes, rounded up"),
        pytest.param(10, 0.3, 3, id="the small lab, no slot more for a rounding fault"),
        pytest.param(10, 0.31, 4, id="no half slot"),
        pytest.param(0, 3.0, 0, id="nothing to send"),
    ],
)
def test_slots_are_rate_times_latency(rate: float, seconds: float, slots: int) -> None:
    assert slots_for(rate, timedelta(seconds=seconds)) == slots


@given(st.integers(0, 10_000), st.integers(1, 30_000))
def test_so_many_slots_carry_the_rate_and_one_less_does_not(rate: int, milliseconds: int) -> None:
    slots = slots_for(rate, timedelta(milliseconds=milliseconds))
    assert (slots - 1) * 1_000 < rate * milliseconds <= slots * 1_000


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        pytest.param(400, "held, whatever the others do", id="all that are sure"),
        pytest.param(401, "held while others leave it shared slots", id="one borrowed"),
        pytest.param(1_200, "held while others leave it shared slots", id="all that there are"),
        pytest.param(1_201, "not held: 1 too few", id="one more"),
    ],
)
def test_verdict_at_the_edges(slots: int, expected: str) -> None:
    assert verdict(slots, sure=400, most=1_200) == expected


def test_tells_each_lane_over_its_provider_healthy_and_slow() -> None:
    found = needs(otp_rate=200, promo_rate=1_000, sizes=SIZES)
    assert [(need.call.lane, need.call.provider, need.slots) for need in found] == [
        (Lane.OTP, "SMS healthy", 60),
        (Lane.OTP, "SMS slow", 300),
        (Lane.PROMO, "push healthy", 50),
        (Lane.PROMO, "push hangs", 3_000),
    ]


def test_otp_may_be_sure_of_floor_and_reserve_and_promo_of_nothing() -> None:
    otp, _, promo, _ = needs(otp_rate=1, promo_rate=1, sizes=SIZES)
    assert (otp.sure_rate, otp.most_rate) == pytest.approx((400 / 0.3, 1_200 / 0.3))
    assert (promo.sure_rate, promo.most_rate) == pytest.approx((0, 800 / 0.05))


def test_every_row_has_a_cell_for_each_heading() -> None:
    heading, *rows = sizing_rows(needs(otp_rate=200, promo_rate=6_556, sizes=SIZES))
    assert {len(row) for row in rows} == {len(heading)}
    assert rows[1] == ("otp", "SMS slow", "1.5 s", "200", "300", "267", "800", "held, whatever the others do")
