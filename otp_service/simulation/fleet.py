"""The simulated hosts and units: how they are described, and what they remember while they play."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from otp_service.core.outcomes import ReportedState
from otp_service.simulation.behaviours import Behaviour, Healthy, SignedOut
from otp_service.simulation.posting import Outbox

#: Attempts that a host remembers; the oldest are forgotten first, long after anybody asks for them.
MEMORY_LIMIT = 20_000

_GUIDS = uuid.UUID("5b1f0c52-6d0e-4f0a-9d0c-6d1f6a1c2e77")  # name space: a guid follows from host and attempt


@dataclass(frozen=True, slots=True, repr=False)
class SimulatedUnit:
    """One account to play; `handle` is the address that it writes from, and is written to."""

    unit: int
    handle: str = ""
    signed_in: bool = True

    def __repr__(self) -> str:
        return f"<SimulatedUnit {self.unit}>"


@dataclass(frozen=True, slots=True, repr=False)
class SimulatedHost:
    """One host to play, and the secret that signs both ways."""

    number: int
    secret: str
    units: tuple[SimulatedUnit, ...]

    def __repr__(self) -> str:
        return f"<SimulatedHost {self.number}>"


@dataclass(slots=True, repr=False)
class Sending:
    """One accepted attempt and where it stands. `moved` is set when it has left or will not."""

    attempt_id: uuid.UUID
    unit: int
    to: str
    text: str
    expires_at: datetime
    guid: str
    can_say: bool = True
    state: ReportedState = ReportedState.QUEUED
    service: str = ""
    error_code: int | None = None
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def give_up(self) -> None:
        """Stop playing it, and let go of a submission that waits for it."""
        if self.task is not None:
            self.task.cancel()
        self.moved.set()  # a task that is cancelled before its first step sets nothing

    def document(self) -> dict[str, object]:
        """What the host says about it when asked."""
        has_left = self.state in {ReportedState.SENT, ReportedState.DELIVERED}
        return {
            "attempt_id": str(self.attempt_id),
            "state": self.state.value if self.can_say else ReportedState.UNKNOWN.value,
            "guid": self.guid if has_left and self.can_say else None,
            "service": self.service or None,
            "error_code": self.error_code,
        }


class PlayedUnit:
    """A unit at play. Its draws depend on nothing but the seed, its place, and its own messages."""

    def __init__(self, value: SimulatedUnit, host: int, seed: int) -> None:
        self.value = value
        self.sent = 0
        self._draws = f"{seed}/{host}/{value.unit}"
        self.behave(Healthy() if value.signed_in else SignedOut())

    def behave(self, behaviour: Behaviour) -> None:
        """Behave so from the next message on."""
        self.behaviour = behaviour
        self.taken = 0
        self.rng = random.Random(self._draws)  # noqa: S311 - repeatable, nothing secret is drawn from it


class PlayedHost:
    """A host at play."""

    def __init__(self, value: SimulatedHost, outbox: Outbox, seed: int) -> None:
        self.number = value.number
        self.outbox = outbox
        self.sendings: dict[uuid.UUID, Sending] = {}
        self.units: dict[int, PlayedUnit] = {}
        self.tasks: tuple[asyncio.Task[None], ...] = ()
        self._seed = seed
        self.update(value)

    def update(self, value: SimulatedHost) -> None:
        """Take over a changed description; units that stay keep their behaviour."""
        self.secret = self.outbox.secret = value.secret
        self.units = {unit.unit: self._unit(unit) for unit in value.units}

    def _unit(self, value: SimulatedUnit) -> PlayedUnit:
        unit = self.units.get(value.unit)
        if unit is None:
            return PlayedUnit(value, self.number, self._seed)
        unit.value = value
        return unit

    def remember(self, sending: Sending) -> None:
        """Keep an accepted attempt."""
        self.sendings[sending.attempt_id] = sending
        oldest = next(iter(self.sendings.values()))
        if len(self.sendings) > MEMORY_LIMIT and oldest.moved.is_set():
            del self.sendings[oldest.attempt_id]

    def guid(self, attempt_id: uuid.UUID) -> str:
        """The id that the messaging service gives to an attempt."""
        return str(uuid.uuid5(_GUIDS, f"{self.number}/{attempt_id}")).upper()

    def queue(self) -> int:
        """How many accepted messages have not been handed on."""
        return sum(sending.state is ReportedState.QUEUED for sending in self.sendings.values())


Handles = Mapping[str, tuple[PlayedHost, PlayedUnit]]
