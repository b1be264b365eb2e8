"""What the lab's schemes are made of."""

from __future__ import annotations

from itertools import pairwise

import pytest

from otp_service.messages.rules import Lane
from scheduler.lab.cell import Cell
from scheduler.lab.scenarios import FULL, SMALL, Scale, Scenario, Timing
from scheduler.lab.schemes import Scheme, dispatchers
from scheduler.rules import LANE_ORDER, SlotSizes


def sizes(floor: int, shared: int, reserve: int = 0) -> SlotSizes:
    return SlotSizes(floor=floor, shared=shared, reserve=reserve, promo_floor=0)


@pytest.mark.parametrize(
    ("scheme", "scale", "expected"),
    [
        pytest.param(Scheme.FIFO, SMALL, [(sizes(0, 20), LANE_ORDER)], id="FIFO has no slots for one lane"),
        pytest.param(Scheme.A, SMALL, [(sizes(0, 20), LANE_ORDER)], id="A neither"),
        pytest.param(
            Scheme.B,
            SMALL,
            [(sizes(6, 0), (Lane.OTP,)), (sizes(0, 14), (Lane.TRANSACTIONAL, Lane.PROMO))],
            id="B has a wall between two dispatchers",
        ),
        pytest.param(Scheme.C, SMALL, [(sizes(6, 14), LANE_ORDER)], id="C has a floor"),
        pytest.param(Scheme.D, SMALL, [(sizes(6, 14, 4), LANE_ORDER)], id="D leaves otp 30 % of the shared ones"),
        pytest.param(Scheme.D, FULL, [(sizes(60, 1_140, 342), LANE_ORDER)], id="D at full size"),
    ],
)
def test_scheme_is_made_of_dispatchers(
    scheme: Scheme, scale: Scale, expected: list[tuple[SlotSizes, tuple[Lane, ...]]]
) -> None:
    assert [(sizes, lanes) for lanes, sizes in dispatchers(scheme, scale)] == expected


def test_schemes_differ_in_queue_and_caps() -> None:
    assert [scheme for scheme in Scheme if scheme.has_one_queue] == [Scheme.FIFO]
    assert [scheme for scheme in Scheme if scheme.has_caps] == [Scheme.D]


@pytest.mark.parametrize(
    ("scenario", "sms_ms", "push_ms", "hangs"),
    [
        pytest.param(Scenario.HEALTHY, 300, 50, False, id="healthy"),
        pytest.param(Scenario.PUSH_HANGS, 300, 3_000, True, id="push hangs"),
        pytest.param(Scenario.SMS_SLOW, 1_500, 50, False, id="SMS slow"),
        pytest.param(Scenario.PUSH_HANGS_LONG, 300, 30_000, True, id="push time-out raised"),
        pytest.param(Scenario.BOTH, 1_500, 3_000, True, id="both"),
    ],
)
def test_scenario_says_how_long_calls_take(scenario: Scenario, sms_ms: int, push_ms: int, hangs: bool) -> None:
    spans = (scenario.sms, scenario.push)
    assert [span.total_seconds() * 1_000 for span in spans] == [sms_ms, push_ms]
    assert scenario.push_hangs is hangs


def test_otp_come_when_calls_that_hang_have_just_taken_the_slots_anew() -> None:
    assert (Timing().otp_from, Timing().otp_for) == pytest.approx((3.5, 15))
    assert 0 < Timing().otp_from - Scenario.PUSH_HANGS.push.total_seconds() < 1


def test_otp_come_steadily() -> None:
    due = Timing().otp_due(10)
    assert len(due) == 150
    assert due[0] == pytest.approx(3.5)
    assert [b - a for a, b in pairwise(due)] == pytest.approx([0.1] * 149)


def test_a_cell_is_the_same_after_the_way_to_its_process() -> None:
    cell = Cell(Scheme.B, Scenario.BOTH, full=True, seconds=7.5)
    assert Cell.read(cell.written()) == cell
