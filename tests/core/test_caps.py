"""The adaptive in-flight cap: tables at the edges, and what holds whatever comes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.core.caps import FLOOR, START, InFlightCap

#: Seconds; exact in binary, so that edges are edges. Normal is up to three times as long.
EXPECTED = 0.125
NORMAL = 0.375
JUST = 2**-20


def cap_of(ceiling: int = 1000, expected: float = EXPECTED) -> InFlightCap:
    return InFlightCap(expected=timedelta(seconds=expected), ceiling=ceiling)


def start(cap: InFlightCap, count: int, at: float, name: str = "call") -> list[str]:
    keys = [f"{name} {number} at {at}" for number in range(count)]
    for key in keys:
        cap.started(key, at)
    return keys


def end(cap: InFlightCap, keys: list[str], at: float, *, ok: bool = True) -> None:
    for key in keys:
        cap.ended(key, at, ok=ok)


def round_trips(cap: InFlightCap, count: int, at: float) -> float:
    """Fill the cap and let all calls end well, `count` times; returns when the last ended."""
    for _ in range(count):
        keys = start(cap, cap.room(at), at)
        at += EXPECTED
        end(cap, keys, at)
    return at


@pytest.mark.parametrize(
    ("ceiling", "limit"),
    [
        pytest.param(0, 0, id="a closed route"),
        pytest.param(1, 1, id="a ceiling below the floor"),
        pytest.param(START - 1, START - 1, id="a ceiling below the start"),
        pytest.param(START, START, id="a ceiling at the start"),
        pytest.param(1000, START, id="a high ceiling"),
    ],
)
def test_begins_modestly(ceiling: int, limit: int) -> None:
    cap = cap_of(ceiling)
    assert (cap.limit, cap.room(0), cap.hard_room()) == (limit, limit, ceiling)


@pytest.mark.parametrize(("expected", "ceiling"), [(0, 10), (-1, 10), (1, -1)])
def test_refuses_settings_that_mean_nothing(expected: float, ceiling: int) -> None:
    with pytest.raises(ValueError, match="expected > 0 and ceiling >= 0"):
        cap_of(ceiling, expected)


@pytest.mark.parametrize(
    ("expected", "normal"),
    [
        pytest.param(0.125, 0.375, id="three times the expected latency"),
        pytest.param(0.025, 0.075, id="where both bounds meet"),
        pytest.param(0.0, 0.05, id="a pause of our own is no hang"),
    ],
)
def test_a_call_is_slow_while_in_flight_longer_than_normal(expected: float, normal: float) -> None:
    cap = cap_of(expected=expected or 1e-6)
    start(cap, 3, 0.0)
    assert (cap.slow(normal - 1e-5), cap.slow(normal + 1e-5)) == (0, 3)


def test_a_call_of_exactly_the_normal_latency_is_normal() -> None:
    cap = cap_of()
    keys = start(cap, START, 0.0)
    assert cap.slow(NORMAL) == 0
    end(cap, keys, NORMAL)
    assert cap.limit == 2 * START


@pytest.mark.parametrize(
    ("in_flight", "latency", "ok", "limit"),
    [
        pytest.param(START, EXPECTED, True, 2 * START, id="a full cap doubles"),
        pytest.param(START // 2, EXPECTED, True, START + 1, id="a half full one grows a little"),
        pytest.param(START // 2 - 1, EXPECTED, True, START, id="one that nobody needs stays"),
        pytest.param(START, NORMAL + JUST, True, START // 2, id="slow calls are no success"),
        pytest.param(START, EXPECTED, False, START, id="failures are judged by the next look"),
    ],
)
def test_slow_start(in_flight: int, latency: float, *, ok: bool, limit: int) -> None:
    cap = cap_of()
    end(cap, start(cap, in_flight, 0.0), latency, ok=ok)
    assert cap.limit == limit


def test_a_cap_that_was_needed_once_does_not_grow_back_by_itself() -> None:
    cap = cap_of(64)
    at = round_trips(cap, 2, 0.0)
    hung = start(cap, 64, at)
    at += NORMAL + JUST
    end(cap, hung, at)
    assert cap.limit == 32
    for _ in range(40):
        at += EXPECTED
        end(cap, start(cap, 2, at), at)
    assert cap.limit == 32


def test_otp_is_bounded_by_the_ceiling_alone() -> None:
    cap = cap_of(100)
    start(cap, 40, 0.0)
    assert (cap.room(0.0), cap.hard_room()) == (0, 60)
    start(cap, 70, 0.0, "more")
    assert (cap.room(0.0), cap.hard_room(), cap.in_flight) == (0, 0, 110)


@pytest.mark.parametrize(
    ("good", "failed", "hung", "halved"),
    [
        pytest.param(15, 1, 0, False, id="one failure alone"),
        pytest.param(0, 1, 0, False, id="one failure and nothing else"),
        pytest.param(0, 0, 1, False, id="one overdue call and nothing else"),
        pytest.param(1, 1, 0, False, id="one failure of two calls"),
        pytest.param(0, 2, 0, True, id="all of few failed"),
        pytest.param(0, 0, 2, True, id="all of few hang"),
        pytest.param(6, 1, 1, True, id="a quarter, failed or overdue"),
        pytest.param(7, 1, 1, False, id="less than a quarter"),
        pytest.param(12, 0, 4, True, id="a quarter is overdue"),
        pytest.param(13, 0, 4, False, id="fewer than a quarter are overdue"),
    ],
)
def test_a_large_share_of_slow_calls_halves_the_cap(good: int, failed: int, hung: int, *, halved: bool) -> None:
    cap = cap_of(64)
    at = round_trips(cap, 3, 0.0)
    before = cap.limit
    assert cap.room(at + EXPECTED) == before  # the period of the good calls is over
    at += EXPECTED
    start(cap, hung, at, "hung")
    later = at + NORMAL
    end(cap, start(cap, good, later, "good"), later)
    end(cap, start(cap, failed, later, "failed"), later, ok=False)
    cap.room(later + EXPECTED)
    assert cap.limit == (before // 2 if halved else before)


def test_halves_at_most_once_in_an_expected_latency() -> None:
    cap = cap_of(64)
    at = round_trips(cap, 3, 0.0)
    assert cap.limit == 64
    start(cap, 64, at)
    seen = at + NORMAL + JUST
    limits = {moment: cap.room(seen + moment) or cap.limit for moment in (0, EXPECTED - JUST, EXPECTED, 2 * EXPECTED)}
    assert limits == {0: 32, EXPECTED - JUST: 32, EXPECTED: 16, 2 * EXPECTED: 8}


def test_grows_by_one_a_round_trip_after_it_was_halved_once() -> None:
    cap = cap_of(64)
    at = round_trips(cap, 3, 0.0)
    hung = start(cap, 64, at)
    at += NORMAL + JUST
    end(cap, hung, at)
    assert cap.limit == 32
    at = round_trips(cap, 1, at + EXPECTED)
    assert cap.limit == 32  # one 32nd for each of 32 calls, and less while the cap grows
    round_trips(cap, 4, at)
    assert cap.limit == 36


def test_a_slow_call_is_judged_once_when_it_was_overdue_before_it_ended() -> None:
    cap = cap_of(64)
    at = round_trips(cap, 3, 0.0)
    hung = start(cap, 64, at)
    at += NORMAL + JUST
    cap.room(at)
    end(cap, hung, at, ok=False)
    assert cap.limit == 32
    cap.room(at + EXPECTED)
    assert cap.limit == 32


def test_a_slow_route_is_judged_whether_anybody_asked_for_slow_calls_or_not() -> None:
    asked, not_asked = cap_of(), cap_of()
    for cap in (asked, not_asked):
        end(cap, start(cap, 2, 0.0, "first"), 0.0)
        keys = start(cap, START, 0.0)
        cap.room(NORMAL)
        if cap is asked:
            assert cap.slow(NORMAL + JUST) == START
        end(cap, keys, NORMAL + JUST)
        cap.room(NORMAL + EXPECTED)
    assert asked.limit == not_asked.limit < START


def test_failures_that_come_one_at_a_time_add_up() -> None:
    cap = cap_of()
    for at in (0.0, 60.0, 120.0):
        end(cap, start(cap, 1, at), at, ok=False)
    assert cap.limit == START // 2


def test_never_falls_below_its_floor() -> None:
    cap = cap_of()
    start(cap, START, 0.0)
    for moment in range(100):
        cap.room(moment)
    assert (cap.limit, cap.room(100)) == (FLOOR, 0)


def test_a_closed_route_stays_closed_however_its_calls_end() -> None:
    cap = cap_of(0)
    end(cap, start(cap, 2, 0.0), NORMAL + JUST)
    end(cap, start(cap, 2, 1.0), 1.0 + EXPECTED)
    assert (cap.limit, cap.in_flight) == (0, 0)


def test_new_settings_keep_what_is_in_flight() -> None:
    cap = cap_of(64)
    at = round_trips(cap, 2, 0.0)
    start(cap, 40, at)
    cap.change(expected=timedelta(seconds=2 * EXPECTED), ceiling=30)
    assert (cap.limit, cap.in_flight, cap.room(at), cap.hard_room()) == (30, 40, 0, 0)
    assert (cap.slow(at + 2 * NORMAL), cap.slow(at + 2 * NORMAL + JUST)) == (0, 40)
    cap.change(expected=timedelta(seconds=EXPECTED), ceiling=0)
    assert cap.limit == 0
    cap.change(expected=timedelta(seconds=EXPECTED), ceiling=64)
    assert cap.limit == FLOOR


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["start", "end well", "end badly", "look"]),
        st.integers(0, 12),
        st.sampled_from([0.0, 0.01, EXPECTED, NORMAL, 5.0]),
    ),
    max_size=60,
)


@given(steps=_STEPS, ceiling=st.integers(0, 40))
def test_counts_and_bounds_hold_whatever_the_order(steps: list[tuple[str, int, float]], ceiling: int) -> None:
    cap, at, open_calls = cap_of(ceiling), 0.0, set[int]()
    for step, key, passes in steps:
        at += passes
        match step:
            case "start":
                cap.started(key, at)
                open_calls.add(key)
            case "look":
                assert cap.room(at) == max(0, cap.limit - len(open_calls))
            case _:
                cap.ended(key, at, ok=step == "end well")
                open_calls.discard(key)
        assert cap.in_flight == len(open_calls)
        assert min(FLOOR, ceiling) <= cap.limit <= ceiling
        assert cap.room(at) >= 0
        assert cap.hard_room() == max(0, ceiling - len(open_calls))
        assert cap.slow(at) <= cap.in_flight


@given(moments=st.lists(st.floats(0, 5), min_size=1, max_size=30), look=st.floats(5, 9))
def test_slow_calls_are_those_that_started_too_long_ago(moments: list[float], look: float) -> None:
    cap = cap_of()
    for number, moment in enumerate(sorted(moments)):
        cap.started(number, moment)
    assert cap.slow(look) == sum(look - moment > NORMAL for moment in moments)


@given(at=st.floats(0, 100), ok=st.booleans())
def test_the_end_of_a_call_that_is_not_in_flight_changes_nothing(at: float, *, ok: bool) -> None:
    cap = cap_of()
    start(cap, START, 0.0)
    for _ in range(5):
        cap.ended("a stranger", at, ok=ok)
    twin = cap_of()
    start(twin, START, 0.0)
    assert (cap.in_flight, cap.room(at), cap.limit) == (START, twin.room(at), twin.limit)
    assert cap.slow(at) == twin.slow(at)
