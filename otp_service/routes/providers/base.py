"""What every provider can do: one small class per kind of route, all of this shape."""

from __future__ import annotations

from typing import Protocol

import aiohttp

from otp_service.core.outcomes import SubmitResult
from otp_service.routes.claim import Claimed


class Provider(Protocol):
    """Speaks the protocol of one kind of route. It does not raise for what the other side or a network does."""

    async def submit(self, session: aiohttp.ClientSession, claimed: Claimed) -> SubmitResult:
        """Hand one attempt over."""
