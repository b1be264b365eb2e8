"""Relay hosts that answer as a test says, without a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from otp_service.core.outcomes import (
    ErrorClass,
    ReportedState,
    StatusReport,
    Submission,
    SubmitResult,
    Submittable,
)
from servers.relay.base import HostAddress, HostHealth, Known

ACCEPTED = SubmitResult(Submission.ACCEPTED)
UNKNOWN = SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT)
NOT_CONNECTED = SubmitResult(Submission.NOT_CONNECTED, error_class=ErrorClass.CONNECTION_REFUSED)
SIGNED_OUT = SubmitResult(Submission.REFUSED, error_class=ErrorClass.SENDER_FAULT, error_code=130)
THROTTLED = SubmitResult(Submission.REFUSED, error_class=ErrorClass.THROTTLED, error_code=140)
BAD_NUMBER = SubmitResult(Submission.REFUSED, error_class=ErrorClass.RECIPIENT_INVALID)

NOT_FOUND = StatusReport(ReportedState.NOT_FOUND)
NEVER = StatusReport(ReportedState.NEVER)


class ScriptedRelay:
    """Answers every submission with `result` (or raises it), every question with `report`; keeps what was asked."""

    def __init__(
        self,
        result: SubmitResult | Exception = ACCEPTED,
        *,
        report: StatusReport = NOT_FOUND,
        tombstone: StatusReport = NEVER,
        while_calling: Callable[[], object] = lambda: None,
    ) -> None:
        self.result, self.report, self.promise = result, report, tombstone
        self.sends: list[tuple[int, Submittable]] = []  # host number, what it was given
        self.asked: list[UUID] = []
        self.withdrawn: list[UUID] = []
        self._while_calling = while_calling

    async def submit(self, _session: Any, host: HostAddress, send: Submittable) -> SubmitResult:
        self.sends.append((host.number, send))
        self._while_calling()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    async def query(
        self, session: Any, host: HostAddress, attempt_uuid: UUID, known: Known | None = None
    ) -> StatusReport:
        self.asked.append(attempt_uuid)
        return self.report

    async def tombstone(self, _session: Any, _host: HostAddress, attempt_uuid: UUID) -> StatusReport:
        self.withdrawn.append(attempt_uuid)
        return self.promise

    async def check(self, _session: Any, _host: HostAddress) -> HostHealth | None:
        return None
