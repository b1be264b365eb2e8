"""A pool of iMessage servers: each attempt goes to the relay host of the server that was reserved for it."""

from __future__ import annotations

import aiohttp

from otp_service.core.outcomes import SubmitResult
from otp_service.routes.claim import Claimed
from servers.relay.base import RelayAdapter


class IMessagePool:
    """Speaks to relay hosts."""

    def __init__(self, adapter: RelayAdapter) -> None:
        self._adapter = adapter

    async def submit(self, session: aiohttp.ClientSession, claimed: Claimed) -> SubmitResult:
        """Hand one attempt to its server's host."""
        assert claimed.host is not None, "a pool's attempt has a server"
        return await self._adapter.submit(session, claimed.host, claimed.send)
