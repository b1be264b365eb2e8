"""A provider that fails after it has sent: the copy may be on its way, so that nothing more leaves blindly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import aiohttp
import pytest
from django.db import connection

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import StatusReport, SubmitResult
from otp_service.messages.models import Attempt, Message
from otp_service.routes.claim import Claimed
from otp_service.routes.providers.base import Question
from otp_service.routes.route_rules import RouteKind
from scheduler import dispatcher
from scheduler.rules import SlotSizes
from tests.factories import FlowFactory, QueuedFactory
from tests.routes.cascade import SECOND, Cascade, two_sms_routes
from tests.routes.scripted_host import UNANSWERED

pytestmark = pytest.mark.django_db(transaction=True)
OPTIONS = dispatcher.DispatcherOptions(SlotSizes(floor=2, shared=20, reserve=6, promo_floor=1))
WINDOW = timedelta(seconds=10)
T = TypeVar("T")


@pytest.fixture(autouse=True)
def _simulated(settings: Any) -> None:
    settings.SIMULATED_ROUTES = True


async def in_thread(work: Callable[[], T]) -> T:
    """Database work, in a thread that leaves no connection behind."""

    def closing() -> T:
        try:
            return work()
        finally:
            connection.close()

    return await asyncio.to_thread(closing)


@dataclass
class FailsAfterSending:
    """Sends, and then trips over itself."""

    sent: list[UUID] = field(default_factory=list)

    async def submit(self, session: aiohttp.ClientSession, claimed: Claimed) -> SubmitResult:
        self.sent.append(claimed.send.attempt_uuid)
        raise KeyError("a reply that nobody thought of")

    async def query(self, session: aiohttp.ClientSession, question: Question) -> StatusReport | None:
        return UNANSWERED


def queued() -> Message:
    two_sms_routes(can_query=True, delivery_s=WINDOW.total_seconds())
    flow, now = FlowFactory.create(channels=["sms"]), utc_now()
    message: Message = QueuedFactory.create(
        flow=flow, created_at=now, event_at=now, expires_at=now + timedelta(minutes=5), on_unknown="race"
    )
    return message


async def test_it_leaves_one_unknown_attempt_and_no_second_one_before_query_and_window() -> None:
    message, provider = await in_thread(queued), FailsAfterSending()
    async with aiohttp.ClientSession() as session:
        lane = dispatcher.make_lane(OPTIONS, session, providers={RouteKind.SIMULATED: provider})
        try:
            await lane.open()
            otp = lane.feeds[0]
            (one,) = await otp.claim(10, {})
            await lane.settle([(one, await lane.call(one))])
            lane.wake()
            assert await otp.claim(10, {}) == []
        finally:
            await lane.close()
    attempt = await in_thread(lambda: Attempt.objects.get(message=message))

    assert (attempt.state, attempt.error_class) == ("unknown", "timeout_after_submit")
    assert provider.sent == [attempt.uuid]
    await in_thread(lambda: assert_nothing_leaves_before_its_window(Cascade(message), attempt))


def assert_nothing_leaves_before_its_window(cascade: Cascade, attempt: Attempt) -> None:
    assert attempt.check_at is not None
    for now in (attempt.check_at, attempt.claimed_at + WINDOW - SECOND / 1000):
        cascade.now = now
        cascade.resolves()
        assert cascade.claims() is None
    assert [question.attempt_uuid for question in cascade.provider.asked][:1] == [attempt.uuid]
    cascade.now = attempt.claimed_at + WINDOW
    cascade.resolves()
    second = cascade.claims()
    assert second is not None
    assert second.route == "sms:two"
