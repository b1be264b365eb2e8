"""The adaptive in-flight cap of one route in one process: a route that hangs may not hold every slot. Pure.

It works as TCP does: slow start, additive increase, multiplicative decrease. A call counts as slow while it
is still in flight, so that a hang is seen after the expected latency and not after the time-out.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from datetime import timedelta

#: Calls. The cap never falls below: two probes tell a route that works again from one lucky answer.
FLOOR = 2
#: Calls. Where a cap begins: what any route stands, and six round trips of slow start from a thousand.
START = 16
#: A call is normal up to this many times the expected latency: latencies have a tail of two or three times.
NORMAL_TIMES = 3
#: At least so much over the expected latency is normal: below it one pause of our own process looks like a hang.
NORMAL_MARGIN = timedelta(milliseconds=50)
#: Share of slow calls, of those that ended in a period or are overdue, that halves the cap. The tail of a healthy
#: route is a few per cent; of one that loses a tenth of its calls, overdue ones soon hold this share of the slots.
SLOW_SHARE = 0.25
#: Calls. So many must be slow: one slow call alone says nothing about its route.
FEWEST_SLOW = 2
#: The cap binds when this share of it was in flight: a cap that nobody needs proves nothing by growing. Half,
#: as slow start doubles it in one round trip, and calls that were claimed together end together.
BINDING_SHARE = 0.5


class InFlightCap:
    """How many calls one route may have in flight. Times are monotonic seconds; `expected` is a call's latency.

    Not safe to use from several threads at once.
    """

    def __init__(self, *, expected: timedelta, ceiling: int) -> None:
        self._fresh: OrderedDict[Hashable, float] = OrderedDict()  # call → start, in order of start
        self._overdue: dict[Hashable, float] = {}  # those in flight for longer than is normal
        self._limit = float(START)
        self._quick_below = math.inf  # slow start up to here, additive increase from here
        self._grown = True  # since the last decrease
        self._good = self._bad = self._peak = 0  # since the last judgement: ended well, ended badly, most in flight
        self._next_look = self._judged_at = -math.inf
        self.change(expected=expected, ceiling=ceiling)

    def change(self, *, expected: timedelta, ceiling: int) -> None:
        """Take new settings; what is in flight and what was learnt stays."""
        if expected <= timedelta() or ceiling < 0:
            raise ValueError(f"A cap needs expected > 0 and ceiling >= 0, not {expected} and {ceiling}.")
        self._period = expected.total_seconds()
        self._normal = max(NORMAL_TIMES * expected, expected + NORMAL_MARGIN).total_seconds()
        self._ceiling = ceiling
        self._floor = min(FLOOR, ceiling)
        self._limit = max(float(self._floor), min(self._limit, float(ceiling)))

    @property
    def in_flight(self) -> int:
        """Calls that started and have not ended."""
        return len(self._fresh) + len(self._overdue)

    @property
    def ceiling(self) -> int:
        """The most calls that may be in flight, however well the route answers."""
        return self._ceiling

    @property
    def limit(self) -> int:
        """The adaptive cap, between the floor and the ceiling."""
        return int(self._limit)

    def room(self, at: float) -> int:
        """How many more calls may start within the adaptive cap: for every lane but otp."""
        self.look(at)
        return max(0, self.limit - self.in_flight)

    def hard_room(self) -> int:
        """How many more calls may start within the ceiling: for otp."""
        return max(0, self._ceiling - self.in_flight)

    def slow(self, at: float) -> int:
        """Calls in flight for longer than is normal. Each call is set apart once: no count from the beginning."""
        while self._fresh:
            key, started = next(iter(self._fresh.items()))
            if at - started <= self._normal:
                break
            self._overdue[key] = self._fresh.pop(key)
        return len(self._overdue)

    def started(self, key: Hashable, at: float) -> None:
        """Count a call; one that is in flight already stays as it is."""
        if key not in self._fresh and key not in self._overdue:
            self._fresh[key] = at
            self._peak = max(self._peak, self.in_flight)

    def ended(self, key: Hashable, at: float, *, ok: bool) -> None:
        """Let a call go. `ok`: the route did its work, whatever it said of this message."""
        self.look(at)
        started = self._fresh.pop(key, None)
        if started is None:
            started = self._overdue.pop(key, None)
        if started is None:
            return
        if ok and at - started <= self._normal:
            self._good += 1
            self._grow()
        elif self._judged_at - started <= self._normal:  # otherwise it was counted then, as overdue
            self._bad += 1

    def _grow(self) -> None:
        if self._peak < self._limit * BINDING_SHARE:
            return
        step = 1.0 if self._limit < self._quick_below else 1 / max(self._limit, 1.0)
        self._limit = min(self._limit + step, float(self._ceiling))
        self._grown = True

    def look(self, at: float) -> None:
        """Judge the calls since the last judgement, at most once per expected latency; too few of them are kept."""
        if at < self._next_look:
            return
        self._next_look = at + self._period
        slow = self._bad + self.slow(at)
        judged = self._good + slow
        if judged < FEWEST_SLOW:
            return
        if slow >= FEWEST_SLOW and slow >= judged * SLOW_SHARE:
            self._decrease()
        self._good = self._bad = 0
        self._peak = self.in_flight
        self._judged_at = at

    def _decrease(self) -> None:
        """Halve the cap. After a fall of several halvings, slow start leads back to half of where it began."""
        if self._grown:
            self._quick_below = self._limit / 2
            self._grown = False
        self._limit = max(float(self._floor), self._limit / 2)
