"""A provider that is not there: answers by itself, as its route's settings say, and delivers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp

from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult
from otp_service.routes.claim import Claimed
from otp_service.routes.route_rules import RouteSpec, SimulatedAnswer, SimulatedOutcome, simulated_answer


class Simulated:
    """Takes its time, and accepts everything or leaves everything open."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Mapping[str, Any], SimulatedAnswer]] = {}  # by route: its settings, as read

    async def submit(self, session: aiohttp.ClientSession, claimed: Claimed) -> SubmitResult:
        """Hand one attempt to nobody."""
        answer = self._answer(claimed.spec)
        await asyncio.sleep(min(answer.latency, answer.timeout).total_seconds())
        if answer.latency > answer.timeout:
            return _NO_CLEAR_ANSWER
        match answer.outcome:
            case SimulatedOutcome.ACCEPTED:
                return SubmitResult(Submission.ACCEPTED, provider_message_id=f"simulated-{claimed.send.attempt_uuid}")
            case SimulatedOutcome.UNKNOWN:
                return _NO_CLEAR_ANSWER

    def _answer(self, spec: RouteSpec) -> SimulatedAnswer:
        settings, answer = self._known.get(spec.name, (None, None))
        if answer is None or settings is not spec.settings:
            answer = simulated_answer(spec.settings)
            self._known[spec.name] = (spec.settings, answer)
        return answer


_NO_CLEAR_ANSWER = SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT)
