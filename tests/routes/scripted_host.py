"""A relay host that answers questions by a script, and notes what it was asked."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from dataclasses import dataclass, field

import aiohttp

from otp_service.core.outcomes import ReportedState, StatusReport, SubmitResult, Submittable
from otp_service.routes import resolve
from servers.relay.base import HostAddress, HostHealth, Known
from tests.draws import Lowest

UNANSWERED = StatusReport(ReportedState.UNKNOWN, answered=False)


def says(state: ReportedState, *, guid: str = "", code: int | None = None) -> StatusReport:
    return StatusReport(state, provider_message_id=guid, error_code=code)


@dataclass
class ScriptedHost:
    """`status` answers questions, `promise` answers the wish for a tombstone."""

    status: StatusReport
    promise: StatusReport = UNANSWERED
    asked: list[tuple[str, uuid.UUID]] = field(default_factory=list)

    async def submit(self, session: aiohttp.ClientSession, host: HostAddress, send: Submittable) -> SubmitResult:
        raise AssertionError("who only asks must never send")

    async def query(
        self, session: aiohttp.ClientSession, host: HostAddress, attempt_uuid: uuid.UUID, known: Known | None = None
    ) -> StatusReport:
        self.asked.append(("query", attempt_uuid))
        return self.status

    async def tombstone(
        self, session: aiohttp.ClientSession, host: HostAddress, attempt_uuid: uuid.UUID
    ) -> StatusReport:
        self.asked.append(("tombstone", attempt_uuid))
        return self.promise

    async def check(self, session: aiohttp.ClientSession, host: HostAddress) -> HostHealth | None:
        raise AssertionError("nobody asked for its health")

    def resolves(self, now: dt.datetime) -> int:
        """Ask it about what is due, and write its answers; returns how many questions there were."""
        checks = resolve.claim_checks(now=now, routes={})
        reports = asyncio.run(self._answer(checks))
        resolve.apply_answers(list(zip(checks, reports, strict=True)), now=now, rng=Lowest())
        return len(checks)

    async def _answer(self, checks: list[resolve.Check]) -> list[StatusReport]:
        async with aiohttp.ClientSession() as session:
            return [await resolve.ask(check, self, {}, session) for check in checks]
