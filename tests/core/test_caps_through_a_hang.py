"""A route that hangs under full load, and comes back: the cap lets go of the slots, and takes them up again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from otp_service.core.caps import FLOOR, InFlightCap

SLOTS = 1140
EXPECTED = 0.15  # seconds
TICK = EXPECTED / 15  # between two looks of the claim loop


class Route:
    """A route that answers after the expected latency, or hangs; it is called as often as its cap allows."""

    def __init__(self) -> None:
        self.cap = InFlightCap(expected=timedelta(seconds=EXPECTED), ceiling=SLOTS)
        self.at = 0.0
        self.calls = 0

    def fill(self) -> list[int]:
        room = self.cap.room(self.at)
        keys = list(range(self.calls, self.calls + room))
        self.calls += room
        for key in keys:
            self.cap.started(key, self.at)
        return keys

    def round_trip(self) -> None:
        keys = self.fill()
        self.at += EXPECTED
        for key in keys:
            self.cap.ended(key, self.at, ok=True)

    def round_trips_to(self, limit: float) -> int:
        """Round trips until the cap is there; far too many end the test."""
        for number in range(2 * SLOTS):
            if self.cap.limit >= limit:
                return number
            self.round_trip()
        pytest.fail(f"The cap stays at {self.cap.limit}.")

    def hang(self, expected_latencies: float) -> list[int]:
        """Nothing ends; what the cap lets start hangs too."""
        until = self.at + expected_latencies * EXPECTED
        keys: list[int] = []
        while self.at < until:
            keys += self.fill()
            self.at += TICK
        return keys


def test_slow_start_reaches_the_ceiling_in_seven_round_trips() -> None:
    assert Route().round_trips_to(SLOTS) == 7  # from 16, doubled each time


def test_a_hang_takes_the_cap_to_its_floor_within_fifteen_expected_latencies() -> None:
    route = Route()
    route.round_trips_to(SLOTS)
    assert len(route.hang(5)) == SLOTS
    assert route.cap.limit <= SLOTS / 2
    route.hang(10)
    assert route.cap.limit == FLOOR


def test_half_of_the_cap_is_back_in_ten_round_trips_after_a_hang_and_most_of_it_in_480() -> None:
    route = Route()
    route.round_trips_to(SLOTS)
    hung = route.hang(60)
    for key in hung:  # their time-out
        route.cap.ended(key, route.at, ok=False)
    assert route.cap.limit == FLOOR
    assert route.round_trips_to(SLOTS / 2) <= 10
    assert route.round_trips_to(0.9 * SLOTS) <= 470


def test_a_route_that_loses_every_tenth_call_does_not_gather_hung_calls() -> None:
    route = Route()
    route.round_trips_to(SLOTS)
    lost = 0
    for _ in range(60):
        keys = route.fill()
        route.at += EXPECTED
        for key in keys:
            if key % 10:
                route.cap.ended(key, route.at, ok=True)
            else:
                lost += 1
    assert route.cap.in_flight == lost < SLOTS / 2
