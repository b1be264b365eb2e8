"""A provider that has more unclear attempts than it is asked about at once: each is asked about before it is raced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar, cast
from uuid import UUID

import aiohttp
import pytest
import pytest_asyncio

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import ErrorClass, ReportedState, StatusReport, SubmitResult
from otp_service.messages.models import Attempt, Message, Ready
from otp_service.routes import resolve, table
from otp_service.routes.claim import Claimed
from otp_service.routes.database_threads import DatabaseThreads
from otp_service.routes.providers.base import Provider, Question
from otp_service.routes.questions import Questions
from otp_service.routes.route_rules import RouteKind
from servers.relay.base import RelayAdapter
from tests.factories import AttemptFactory, FlowFactory, MessageFactory
from tests.routes.cascade import two_sms_routes

pytestmark = pytest.mark.django_db(transaction=True)
COUNT = 60
WINDOW = timedelta(seconds=10)
PATIENCE_S = 60
T = TypeVar("T")


@pytest.fixture(autouse=True)
def _simulated(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SIMULATED_ROUTES = True
    # A machine that is slow itself is no provider that hangs.
    monkeypatch.setattr(resolve, "TURN", timedelta(hours=1))
    monkeypatch.setattr(resolve, "_ANSWERED_WITHIN_S", PATIENCE_S)


@pytest_asyncio.fixture
async def run() -> AsyncIterator[Callable[..., Any]]:
    threads = DatabaseThreads("questions")
    yield threads.run
    threads.close()


@dataclass
class Slow:
    """Has delivered whatever it is asked about, and says so when it is let."""

    asked: list[UUID] = field(default_factory=list)
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    async def submit(self, session: aiohttp.ClientSession, claimed: Claimed) -> SubmitResult:
        raise AssertionError("who only asks must never send")

    async def query(self, session: aiohttp.ClientSession, question: Question) -> StatusReport | None:
        self.asked.append(question.attempt_uuid)
        await self.answers.wait()
        return StatusReport(ReportedState.DELIVERED)


def unclear_attempts() -> set[UUID]:
    """Their window is over, and their first question is due now."""
    two_sms_routes(can_query=True, delivery_s=WINDOW.total_seconds())
    flow, now = FlowFactory.create(channels=["sms"]), utc_now()
    messages = MessageFactory.create_batch(
        COUNT,
        flow=flow,
        status="submitted",
        attempts_made=1,
        attempts_charged=1,
        on_unknown="race",
        copies_left=1,
        expires_at=now + timedelta(hours=1),
    )
    attempts = [
        AttemptFactory.create(
            message=message,
            server=None,
            route="sms:one",
            state="unknown",
            error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT.value,
            claimed_at=now - WINDOW,
            check_at=now,
        )
        for message in messages
    ]
    return {attempt.uuid for attempt in attempts}


async def test_every_one_is_asked_about_before_it_is_raced(run: Callable[..., Any]) -> None:
    uuids, provider = await run(unclear_attempts), Slow()
    routes = await run(table.load_with_terms)
    session, adapter = cast("aiohttp.ClientSession", None), cast("RelayAdapter", None)
    questions = Questions(session, adapter, {RouteKind.SIMULATED: cast("Provider", provider)}, run)
    async with asyncio.timeout(PATIENCE_S):
        while await questions.ask(routes):  # noqa: ASYNC110 - it asks; the others get a turn
            await asyncio.sleep(0)
        # It has as many questions as it may: the others wait for their turn.
        assert len(provider.asked) < COUNT
        assert not await run(Ready.objects.exists)
        provider.answers.set()
        while await run(Attempt.objects.exclude(state="delivered").exists):
            await questions.ask(routes)
            await asyncio.sleep(0)  # who waits for the thread gets it
    await questions.close()

    assert (len(provider.asked), set(provider.asked)) == (COUNT, uuids)
    assert not await run(Ready.objects.exists)
    assert await run(Message.objects.filter(status="delivered", copies_left=1).count) == COUNT
