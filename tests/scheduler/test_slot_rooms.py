"""Which lane may take how many slots: floor, borrowing, reserve and promo's floor, at their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.messages.rules import Lane
from scheduler.rules import SlotSizes, rooms

SIZES = SlotSizes(floor=10, shared=100, reserve=30, promo_floor=7)


def busy(otp: int = 0, transactional: int = 0, promo: int = 0) -> dict[Lane, int]:
    return {Lane.OTP: otp, Lane.TRANSACTIONAL: transactional, Lane.PROMO: promo}


@pytest.mark.parametrize(
    ("in_flight", "expected"),
    [
        pytest.param(busy(), busy(110, 63, 70), id="idle"),
        pytest.param({}, busy(110, 63, 70), id="a lane that is not named has nothing in flight"),
        pytest.param(busy(otp=10), busy(100, 63, 70), id="otp fills its floor: nobody else has less"),
        pytest.param(busy(otp=11), busy(99, 63, 70), id="otp borrows of the reserve first"),
        pytest.param(busy(otp=40), busy(70, 63, 70), id="otp has borrowed the whole reserve"),
        pytest.param(busy(otp=41), busy(69, 62, 69), id="otp has borrowed more than the reserve"),
        pytest.param(busy(otp=103), busy(7, 0, 7), id="an otp wave leaves only promo's floor"),
        pytest.param(busy(otp=110), busy(), id="an otp wave takes every slot"),
        pytest.param(busy(promo=6), busy(104, 63, 64), id="promo on its floor is nobody's loss"),
        pytest.param(busy(promo=7), busy(103, 63, 63), id="promo at its floor"),
        pytest.param(busy(promo=8), busy(102, 62, 62), id="promo over its floor"),
        pytest.param(busy(promo=69), busy(41, 1, 1), id="one slot that is not reserved"),
        pytest.param(busy(promo=70), busy(40), id="promo holds all but the reserve"),
        pytest.param(busy(transactional=62), busy(48, 1, 8), id="transactional short of promo's floor"),
        pytest.param(busy(transactional=63), busy(47, 0, 7), id="transactional at promo's floor"),
        pytest.param(busy(transactional=63, promo=7), busy(40), id="only the reserve is free"),
        pytest.param(busy(10, 63, 7), busy(30), id="only the reserve is free, and otp must borrow it"),
        pytest.param(busy(40, 63, 7), busy(), id="everything is in flight"),
        pytest.param(busy(0, 120, 0), busy(10), id="more in flight than there are shared slots"),
    ],
)
def test_rooms(in_flight: dict[Lane, int], expected: dict[Lane, int]) -> None:
    assert rooms(SIZES, in_flight) == expected


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param(SlotSizes(0, 20, 0, 0), busy(20, 20, 20), id="no floor, no reserve"),
        pytest.param(SlotSizes(5, 0, 0, 0), busy(5), id="nothing shared"),
        pytest.param(SlotSizes(0, 20, 20, 0), busy(20), id="all is reserved"),
        pytest.param(SlotSizes(0, 20, 25, 3), busy(20), id="more is reserved than there is"),
        pytest.param(SlotSizes(0, 20, 10, 12), busy(20, 0, 10), id="promo's floor is all that is left"),
    ],
)
def test_rooms_of_odd_sizes(sizes: SlotSizes, expected: dict[Lane, int]) -> None:
    assert rooms(sizes, busy()) == expected


@given(
    sizes=st.builds(SlotSizes, *(st.integers(0, 12),) * 4),
    in_flight=st.fixed_dictionaries(dict.fromkeys(Lane, st.integers(0, 15))),
)
def test_a_lane_has_all_the_room_that_the_rules_leave_it_and_no_more(
    sizes: SlotSizes, in_flight: dict[Lane, int]
) -> None:
    for lane, room in rooms(sizes, in_flight).items():
        assert room >= 0
        assert not room or _allowed(lane, sizes, {**in_flight, lane: in_flight[lane] + room})
        assert not _allowed(lane, sizes, {**in_flight, lane: in_flight[lane] + room + 1})


def _allowed(lane: Lane, sizes: SlotSizes, in_flight: dict[Lane, int]) -> bool:
    """Whether so much may be in flight after calls of this lane started."""
    borrowed = max(0, in_flight[Lane.OTP] - sizes.floor)
    promo = in_flight[Lane.PROMO]
    free = sizes.shared - borrowed - in_flight[Lane.TRANSACTIONAL] - promo
    left_of_reserve = max(0, sizes.reserve - borrowed)
    match lane:
        case Lane.OTP:
            return free >= 0 or not borrowed
        case Lane.TRANSACTIONAL:
            return free >= left_of_reserve + max(0, sizes.promo_floor - promo)
        case Lane.PROMO:
            return free >= left_of_reserve
