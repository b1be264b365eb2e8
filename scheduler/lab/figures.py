"""What a cell of the lab came to: how long otp waited for their first attempt, and how much promo went out. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from otp_service.core.measures import percentile


@dataclass(frozen=True, slots=True)
class CellRun:
    """One run of a cell. Times in seconds.

    `waits`: from acceptance to the claim of the first attempt. `unstarted`: how long those that were not claimed
    had waited at the end. `promo`: calls for promo that were started.
    """

    waits: tuple[float, ...]
    unstarted: tuple[float, ...]
    promo: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Seconds; `at_least`: the otp that it is read from was still waiting when the run ended."""

    seconds: float
    at_least: bool

    def __str__(self) -> str:
        return f"{'≥ ' if self.at_least else ''}{_written(self.seconds)}"


@dataclass(frozen=True, slots=True)
class Figures:
    """One cell over all its runs. The waits are over all otp, started or not."""

    started: int
    of: int
    p50: Wait
    p99: Wait
    worst: Wait
    promo_per_s: float


def figures(runs: Sequence[CellRun]) -> Figures:
    """The runs of one cell taken together; each must have accepted an otp."""
    waits = [wait for run in runs for wait in run.waits]
    unstarted = [wait for run in runs for wait in run.unstarted]
    ordered = sorted([*waits, *unstarted])
    sure_below = min(unstarted, default=math.inf)

    def at(share: float) -> Wait:
        seconds = percentile(ordered, share)
        return Wait(seconds, at_least=seconds >= sure_below)

    return Figures(
        started=len(waits),
        of=len(ordered),
        p50=at(0.5),
        p99=at(0.99),
        worst=at(1.0),
        promo_per_s=sum(run.promo for run in runs) / sum(run.seconds for run in runs),
    )


def _written(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if round(seconds, 4) < 0.9995 else f"{seconds:.1f} s"
