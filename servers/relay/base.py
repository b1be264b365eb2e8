"""What every relay protocol can do: one small class per protocol, all of this shape."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import aiohttp

from otp_service.core.outcomes import StatusReport, SubmitResult, Submittable
from servers.rules import RelayProtocol


@dataclass(frozen=True, slots=True, repr=False)
class HostAddress:
    """Where a relay host listens, what it speaks, and the secrets between us: it may know the old one or the new."""

    host_id: int
    number: int
    base_url: str
    secrets: tuple[str, ...]
    protocol: RelayProtocol = RelayProtocol.NATIVE

    def __repr__(self) -> str:
        return f"<HostAddress {self.number}>"


@dataclass(frozen=True, slots=True)
class HostHealth:
    """A host's answer about itself: `units` maps each unit to whether it is signed in."""

    units: Mapping[int, bool]
    queue: int


@dataclass(frozen=True, slots=True)
class Known:
    """What we know of an attempt, by which a host that does not keep our ids finds its message.

    `texts`: it has one of them. `guid` is "" until the host has told it; `others` are the guids that other attempts
    have.
    """

    to: str = field(repr=False)
    texts: tuple[str, ...] = field(repr=False)
    submitted_at: datetime
    guid: str = ""
    others: frozenset[str] = frozenset()


class RelayAdapter(Protocol):
    """The calls that we make to a host. None of them raises for what a host or a network does."""

    async def submit(self, session: aiohttp.ClientSession, host: HostAddress, send: Submittable) -> SubmitResult:
        """Hand one attempt over. Idempotent by `attempt_uuid` on the host's side."""

    async def query(
        self, session: aiohttp.ClientSession, host: HostAddress, attempt_uuid: uuid.UUID, known: Known | None = None
    ) -> StatusReport:
        """Ask where an attempt stands. Hosts that keep our ids need nothing to be `known` of it."""

    async def tombstone(
        self, session: aiohttp.ClientSession, host: HostAddress, attempt_uuid: uuid.UUID
    ) -> StatusReport:
        """Make sure that an attempt is never sent: NEVER, or the state in which it was too late."""

    async def check(self, session: aiohttp.ClientSession, host: HostAddress) -> HostHealth | None:
        """The host's health, None when it does not answer."""
