"""Speaks to a simulator as our own processes do."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from dataclasses import dataclass
from typing import Any

import aiohttp

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import ReportedState, StatusReport, SubmitResult, Submittable
from otp_service.simulation.ledger import LedgerEntry
from otp_service.simulation.relay import RelaySimulator
from servers.relay.base import HostAddress
from servers.relay.native import NativeRelay
from tests.simulation.sink import PATIENCE

HOST = 7
UNIT, OTHER_UNIT = 228, 229
NUMBER = "+34600000017"
TEXT = "Your code is 483920"


def a_send(unit: int = UNIT, *, to: str = NUMBER, ttl: dt.timedelta = dt.timedelta(minutes=5)) -> Submittable:
    now = utc_now()
    return Submittable(uuid.uuid4(), to, TEXT, expires_at=now + ttl, submit_by=now + dt.timedelta(minutes=1), unit=unit)


@dataclass(slots=True)
class Play:
    """A running simulator and the means to speak to it."""

    simulator: RelaySimulator
    session: aiohttp.ClientSession
    secret: str

    @property
    def address(self) -> HostAddress:
        return HostAddress(host_id=1, number=HOST, base_url=self.simulator.base_url(HOST), secrets=(self.secret,))

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.simulator.port}"

    async def behave(self, behaviour: str, unit: int = UNIT, **parameters: object) -> None:
        """Change a unit's behaviour through the control API."""
        url = f"{self.root}/control/units/{HOST}/{unit}"
        async with self.session.put(url, json={"behaviour": behaviour, **parameters}) as response:
            assert response.status == 200, await response.text()

    async def submit(self, send: Submittable | None = None) -> tuple[Submittable, SubmitResult]:
        send = send or a_send()
        return send, await NativeRelay().submit(self.session, self.address, send)

    async def query(self, send: Submittable) -> StatusReport:
        return await NativeRelay().query(self.session, self.address, send.attempt_uuid)

    async def tombstone(self, send: Submittable) -> StatusReport:
        return await NativeRelay().tombstone(self.session, self.address, send.attempt_uuid)

    def left(self, send: Submittable) -> list[LedgerEntry]:
        """What the ledger has about an attempt."""
        return self.simulator.ledger.find(attempt_id=send.attempt_uuid)

    async def until_left(self, send: Submittable) -> LedgerEntry:
        async with asyncio.timeout(PATIENCE):
            while True:
                if entries := self.left(send):
                    return entries[0]
                await asyncio.sleep(0.005)

    async def until_state(self, send: Submittable, state: ReportedState) -> StatusReport:
        async with asyncio.timeout(PATIENCE):
            while True:
                report = await self.query(send)
                if report.state is state:
                    return report
                await asyncio.sleep(0.005)

    async def request(self, method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
        """A call to the control API."""
        async with self.session.request(method, self.root + path, **options) as response:
            return response.status, await response.json()
