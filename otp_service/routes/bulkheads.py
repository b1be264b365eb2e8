"""How much more each route may be given by this process: its in-flight caps, rates, and a pool's free servers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from otp_service.core.caps import InFlightCap
from otp_service.messages.rules import Lane
from otp_service.routes.route_rules import RouteKind, RouteSpec, kept_for_otp

#: Share of a pool's servers, resting or free, that a lane leaves free for those before it. A backlog takes each server
#: as soon as it has rested: a share of those that are free at the moment would leave none.
LEAVES = {Lane.TRANSACTIONAL: 0.1, Lane.PROMO: 0.3}
#: Servers that are left free at most, however large the pool: they are counted at every claim.
LEFT_AT_MOST = 1_000
#: Share of the slots that one of several routes for otp may hold: one that hangs does not take them all. What carries
#: no otp is kept in bounds by the slots' reserve.
OF_THE_SLOTS = 0.85

Rooms = Mapping[Lane, int]


def ceiling(spec: RouteSpec, *, dispatchers: int, slots: int) -> int:
    """The most calls that one process may have in flight on a route, however well it answers.

    The route's own cap is shared by the live dispatchers.
    """
    return slots if spec.in_flight_cap is None else min(slots, math.ceil(spec.in_flight_cap / dispatchers))


def expected_in_flight(spec: RouteSpec, *, dispatchers: int, slots: int) -> int:
    """The most calls of other lanes than otp: twice what Little's law gives for the route's rate, shared alike.

    otp is held to the rate itself: when a route slows down, as many codes a second need more calls at once.
    """
    if spec.tps is None:
        return slots
    return max(1, math.ceil(2 * spec.tps * spec.expected.total_seconds() / dispatchers))


@dataclass(frozen=True, slots=True)
class Pools:
    """Servers by pool: those that are free now, and those that may send at all, free or resting.

    The free ones need to be counted up to what is asked for and `LEFT_AT_MOST`.
    """

    free: Mapping[str, int] = field(default_factory=dict)
    size: Mapping[str, int] = field(default_factory=dict)


def _left_free(size: int, lane: Lane) -> int:
    return min(int(size * LEAVES.get(lane, 0)), LEFT_AT_MOST)


class Bulkheads:
    """The in-flight caps of one process, by route. Times are monotonic seconds.

    `adaptive=False`: only a route's own cap and the slots bound it.
    """

    def __init__(self, *, slots: int, adaptive: bool = True) -> None:
        self._slots = slots
        self._adaptive = adaptive
        self._caps: dict[str, InFlightCap] = {}
        self._cap_of: dict[Hashable, InFlightCap] = {}
        self._held: Counter[str] = Counter()
        self._dispatchers = 1

    def set_up(self, specs: Mapping[str, RouteSpec], *, dispatchers: int) -> None:
        """Follow the routes as they are configured now; what was learnt of them stays."""
        self._dispatchers = dispatchers
        for_otp = {name for name, spec in specs.items() if spec.carries(Lane.OTP)}
        bounded = for_otp if self._adaptive and len(for_otp) > 1 else set()
        for name, spec in specs.items():
            slots = max(1, int(self._slots * OF_THE_SLOTS)) if name in bounded else self._slots
            most = ceiling(spec, dispatchers=dispatchers, slots=slots)
            if name in self._caps:
                self._caps[name].change(expected=spec.expected, ceiling=most)
            else:
                self._caps[name] = InFlightCap(expected=spec.expected, ceiling=most)

    def ceiling(self, route: str) -> int:
        """The most calls that this process may have in flight on a route."""
        return self._caps[route].ceiling

    @contextmanager
    def held(self, by_route: Mapping[str, int]) -> Iterator[None]:
        """Count what is about to be claimed, so that two claims at once never give a route more than it stands."""
        self._held.update(by_route)
        try:
            yield
        finally:
            self._held.subtract(by_route)

    def started(self, key: Hashable, route: str, at: float) -> None:
        """A call on the route begins to count."""
        cap = self._cap_of[key] = self._caps[route]
        cap.started(key, at)

    def ended(self, key: Hashable, at: float, *, ok: bool) -> None:
        """It ended; `ok` where the route answered."""
        self._cap_of.pop(key).ended(key, at, ok=ok)

    def look(self, at: float) -> None:
        """See which routes are slow now, though nothing starts and nothing ends on them."""
        for cap in self._caps.values():
            cap.look(at)

    def rooms(self, spec: RouteSpec, *, at: float, granted: int | None, pools: Pools) -> Rooms:
        """By lane, how many more attempts may start. `granted`: what its rates allow.

        otp is bounded by the ceiling alone: to slow a slow route down would make the codes wait that have to go
        out over it.
        """
        cap, held = self._caps[spec.name], self._held[spec.name]
        otp = cap.hard_room() - held
        expected = expected_in_flight(spec, dispatchers=self._dispatchers, slots=self._slots)
        others = min(otp - kept_for_otp(spec, cap.ceiling), expected - cap.in_flight - held)
        if self._adaptive:
            others = min(others, cap.room(at) - held)
        room = {Lane.OTP: otp, Lane.TRANSACTIONAL: others, Lane.PROMO: others}
        if granted is not None:
            room = {lane: min(most, granted) for lane, most in room.items()}
        if spec.kind is RouteKind.IMESSAGE_POOL:
            free, size = pools.free.get(spec.pool, 0) - held, pools.size.get(spec.pool, 0)
            room = {lane: min(most, free - _left_free(size, lane)) for lane, most in room.items()}
        return {lane: max(0, most) for lane, most in room.items()}

    def figures(self) -> dict[str, dict[str, int]]:
        """Calls in flight and the adaptive limit, by route."""
        return {name: {"in_flight": cap.in_flight, "limit": cap.limit} for name, cap in self._caps.items()}
