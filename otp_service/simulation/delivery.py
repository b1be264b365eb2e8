"""Carries plans out: facts happen at their time, and the reports about them are posted."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from datetime import datetime

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import ReportedState
from otp_service.simulation.behaviours import Answers, Fact, Plan, Report, Timings
from otp_service.simulation.fleet import Handles, PlayedHost, PlayedUnit, Sending
from otp_service.simulation.ledger import Ledger, LedgerEntry, text_digest
from otp_service.simulation.posting import Posting


def event(kind: str, at: datetime, unit: int | None, data: dict[str, object]) -> dict[str, object]:
    """A webhook event of the native protocol."""
    # The id is random whatever the seed: a second run must not look like repetitions of the first.
    return {"id": str(uuid.uuid4()), "type": kind, "at": at.isoformat(), "unit": unit, "data": data}


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is needed to carry out the plans of one simulator."""

    ledger: Ledger
    timings: Timings
    handles: Handles

    async def carry_out(self, plan: Plan, host: PlayedHost, unit: PlayedUnit, sending: Sending) -> None:
        """Play one message to its end; ends early when it is too late for it."""
        start = asyncio.get_running_loop().time()
        events: list[dict[str, object]] = []
        postings: list[Posting] = []
        try:
            for step in _in_order(plan):
                await _until(start + step.after.total_seconds())
                if isinstance(step, Report):
                    postings.append(host.outbox.put(events[step.fact]))
                    continue
                if not self._happens(step, host, unit, sending):
                    return
                events.append(event(step.event, utc_now(), sending.unit, _event_data(step, sending)))
            if plan.answers is Answers.WHEN_REPORTED:
                await asyncio.gather(*(posting.tried.wait() for posting in postings))
            await self._arrive_at_our_own(plan, host, unit, sending)
        finally:
            sending.moved.set()
            sending.text = ""

    def _happens(self, fact: Fact, host: PlayedHost, unit: PlayedUnit, sending: Sending) -> bool:
        now = utc_now()
        if fact.state is ReportedState.SENT and now >= sending.expires_at:
            sending.state = ReportedState.NEVER
            return False
        sending.state, sending.service, sending.error_code = fact.state, fact.service, fact.error_code
        if fact.state is ReportedState.SENT:
            self._leave(host, unit, sending, now)
        sending.moved.set()
        return True

    def _leave(self, host: PlayedHost, unit: PlayedUnit, sending: Sending, now: datetime) -> None:
        unit.sent += 1
        self.ledger.add(
            LedgerEntry(
                to=sending.to,
                attempt_id=sending.attempt_id,
                unit=sending.unit,
                host=host.number,
                at=now,
                service=sending.service,
                text_sha256=text_digest(sending.text),
            )
        )

    async def _arrive_at_our_own(self, plan: Plan, host: PlayedHost, unit: PlayedUnit, sending: Sending) -> None:
        """A message to another simulated unit comes in there, as on real phones."""
        recipient_host, recipient = self.handles.get(sending.to, (None, None))
        has_left = any(fact.state is ReportedState.SENT for fact in plan.facts)
        if recipient_host is None or recipient is None or not (has_left and unit.value.handle):
            return
        if not recipient.behaviour.receives:
            return
        data: dict[str, object] = {
            "from": unit.value.handle,
            "to": sending.to,
            "text": sending.text,
            "guid": recipient_host.guid(sending.attempt_id),
            "service": sending.service,
        }
        recipient_host.outbox.put(event("inbound", utc_now(), recipient.value.unit, data))


def _in_order(plan: Plan) -> list[Fact | Report]:
    """Facts before the reports about them, where both have the same time."""
    steps: list[Fact | Report] = [*plan.facts, *plan.reports]
    return sorted(steps, key=lambda step: step.after)


async def _until(moment: float) -> None:
    await asyncio.sleep(moment - asyncio.get_running_loop().time())


def _event_data(fact: Fact, sending: Sending) -> dict[str, object]:
    reference: dict[str, object] = {"attempt_id": str(sending.attempt_id)}
    if fact.state is not ReportedState.FAILED:
        reference["guid"] = sending.guid
    if fact.event == "message_sent":
        is_sent = fact.state is ReportedState.SENT
        return {**reference, "success": is_sent, "service": fact.service, "error_code": fact.error_code}
    if fact.event == "message_failed":
        return {**reference, "error_code": fact.error_code, "detail": "Simulated."}
    return {**reference, "service": fact.service}
