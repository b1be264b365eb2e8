"""What every relay protocol can do: one small class per protocol, all of this shape."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from otp_service.core.outcomes import StatusReport, SubmitResult, Submittable


@dataclass(frozen=True, slots=True, repr=False)
class HostAddress:
    """Where a relay host listens and the secrets that sign what we send there: it may know the old one or the new."""

    host_id: int
    number: int
    base_url: str
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<HostAddress {self.number}>"


@dataclass(frozen=True, slots=True)
class HostHealth:
    """A host's answer about itself: `units` maps each unit to whether it is signed in."""

    units: Mapping[int, bool]
    queue: int


class RelayAdapter(Protocol):
    """The calls that we make to a host. None of them raises for what a host or a network does."""

    async def submit(self, session: aiohttp.ClientSession, host: HostAddress, send: Submittable) -> SubmitResult:
        """Hand one attempt over. Idempotent by `attempt_uuid` on the host's side."""

    async def query(self, session: aiohttp.ClientSession, host: HostAddress, attempt_uuid: uuid.UUID) -> StatusReport:
        """Ask where an attempt stands."""

    async def tombstone(
        self, session: aiohttp.ClientSession, host: HostAddress, attempt_uuid: uuid.UUID
    ) -> StatusReport:
        """Make sure that an attempt is never sent: NEVER, or the state in which it was too late."""

    async def check(self, session: aiohttp.ClientSession, host: HostAddress) -> HostHealth | None:
        """The host's health, None when it does not answer."""
