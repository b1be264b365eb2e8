"""Figures of the last minute, kept in a process. Pure: times are monotonic seconds."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

WINDOW = 60.0  # seconds
_MOST = 20_000  # samples that are kept: the figures of a busier minute are those of its newest part


class Waits:
    """How long things waited, over the last minute."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_MOST)

    def add(self, waited: float, *, at: float) -> None:
        """One wait, in seconds."""
        self._samples.append((at, waited))

    def summary(self, *, at: float) -> dict[str, float]:
        """`{count, p50, p95, p99, max}` in seconds; zeros where nothing was seen."""
        while self._samples and self._samples[0][0] < at - WINDOW:
            self._samples.popleft()
        waits = sorted(waited for _, waited in self._samples)
        shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
        return {"count": len(waits), **{name: percentile(waits, share) for name, share in shares.items()}}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of the ordered values do not exceed; 0 for none of them."""
    if not ordered:
        return 0.0
    rank = math.ceil(round(share * len(ordered), 9))  # 0.95 * 100 is a little over 95
    return ordered[max(0, rank - 1)]


class Rate:
    """Events a second, over the last minute."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int]] = deque(maxlen=int(WINDOW))  # (second, events in it)

    def add(self, count: int, *, at: float) -> None:
        """So many events now."""
        second = int(at)
        if self._seconds and self._seconds[-1][0] == second:
            count += self._seconds.pop()[1]
        self._seconds.append((second, count))

    def per_second(self, *, at: float) -> float:
        """The mean over the last minute."""
        return sum(count for second, count in self._seconds if second > at - WINDOW) / WINDOW
