"""When a storm is on: pure rules of shares and times. A scope is a host or a region.

Two shares that are equal on paper are equal here too: a division rounds correctly, as reading 0.3 does.
"""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass, replace
from typing import Protocol

from servers.rules import Minutes, Policy, StartCooldown, next_cooldown


@dataclass(frozen=True, slots=True)
class Figures:
    """Of the servers of a scope that sent within the window: how many, and how many reached their threshold."""

    sent: int = 0
    reached: int = 0

    @property
    def share(self) -> float:
        """0.0 where nobody sent."""
        return self.reached / self.sent if self.sent else 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """From which share of how many servers on a scope is in a storm."""

    minimum: int
    on_share: float


def in_storm(figures: Figures, limits: Limits) -> bool:
    """Whether the brake goes on: enough servers sent, and a large part of them reached their threshold."""
    return figures.sent >= limits.minimum and figures.share >= limits.on_share


def may_be_in_storm(reached: int, limits: Limits) -> bool:
    """Whether so many could be a large part at all: False needs no count of those that sent."""
    return reached / limits.minimum >= limits.on_share


def senders_to_count(reached: int, limits: Limits) -> int:
    """Where so many sent, those that reached their threshold are no large part: more need not be counted."""
    return int(reached / limits.on_share) + 2  # one more, and one for the rounding


class Running(Protocol):
    """What the rules look at of a brake that is on."""

    @property
    def share(self) -> float: ...
    @property
    def calm_since(self) -> dt.datetime | None: ...


@dataclass(frozen=True, slots=True)
class StaysOn:
    """The brake stays on. `share` is the largest so far, `calm_since` None while it storms."""

    share: float
    calm_since: dt.datetime | None


@dataclass(frozen=True, slots=True)
class LetsGo:
    """The brake goes off."""


def next_state(
    brake: Running, share: float, *, off_share: float, window: dt.timedelta, now: dt.datetime
) -> StaysOn | LetsGo:
    """What becomes of a brake that is on: off when the share has been small for a whole window.

    No failure at all is calm, whatever `off_share` says: with 0 the brake would never let go.
    """
    if share >= off_share and share > 0:
        return StaysOn(max(brake.share, share), None)
    calm_since = brake.calm_since or now
    return LetsGo() if now - calm_since >= window else StaysOn(brake.share, calm_since)


def braked_range(policy: Policy) -> Minutes:
    """What the length of a cooldown is drawn from in a storm: that of a first one."""
    return policy.cooldown_range or policy.ladder[0]


def braked(cooldown_times: int, policy: Policy, *, now: dt.datetime, rng: random.Random) -> StartCooldown:
    """The cooldown that a server gets in a storm: as long as a first one, and not counted.

    Its number is that of the cooldowns counted so far: 0 for a server that had none.
    """
    first = next_cooldown(0, policy, now=now, rng=rng)
    assert isinstance(first, StartCooldown)  # a ladder has a step: the settings see to it
    return replace(first, number=cooldown_times)
