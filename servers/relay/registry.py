"""One adapter for all hosts: each is spoken to in its own protocol."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp

from otp_service.core.outcomes import StatusReport, SubmitResult, Submittable
from servers.relay.base import HostAddress, HostHealth, Known, RelayAdapter
from servers.relay.bluebubbles import BlueBubbles
from servers.relay.native import NativeRelay
from servers.rules import RelayProtocol


def _adapters() -> Mapping[RelayProtocol, RelayAdapter]:
    return {RelayProtocol.NATIVE: NativeRelay(), RelayProtocol.BLUEBUBBLES: BlueBubbles()}


@dataclass(frozen=True, slots=True)
class Relays:
    """Chooses by what the host speaks; the calls are those of `RelayAdapter`."""

    adapters: Mapping[RelayProtocol, RelayAdapter] = field(default_factory=_adapters)

    async def submit(self, session: aiohttp.ClientSession, host: HostAddress, send: Submittable) -> SubmitResult:
        """Hand one attempt over."""
        return await self.adapters[host.protocol].submit(session, host, send)

    async def query(
        self, session: aiohttp.ClientSession, host: HostAddress, attempt_uuid: uuid.UUID, known: Known | None = None
    ) -> StatusReport:
        """Ask where an attempt stands."""
        return await self.adapters[host.protocol].query(session, host, attempt_uuid, known)

    async def tombstone(
        self, session: aiohttp.ClientSession, host: HostAddress, attempt_uuid: uuid.UUID
    ) -> StatusReport:
        """Make sure that an attempt is never sent, where the host can promise that."""
        return await self.adapters[host.protocol].tombstone(session, host, attempt_uuid)

    async def check(self, session: aiohttp.ClientSession, host: HostAddress) -> HostHealth | None:
        """The host's health, None when it does not answer."""
        return await self.adapters[host.protocol].check(session, host)
