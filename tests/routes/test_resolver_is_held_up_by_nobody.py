"""One host that hangs does not keep the others' silent attempts from being asked about."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import TypeVar

import aiohttp
import pytest
from django.db import connection

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import ReportedState, StatusReport
from otp_service.messages.models import Attempt
from scheduler import dispatcher
from scheduler.rules import SlotSizes
from servers.relay.base import HostAddress, Known
from servers.relay.native import NativeRelay
from tests.factories import AttemptFactory, HostFactory, ServerFactory

OPTIONS = dispatcher.DispatcherOptions(SlotSizes(1, 2, 0, 0))
HANGING = 1


class HangingHost(NativeRelay):
    """Host 1 never answers; every other one says at once that it has delivered."""

    async def query(
        self, session: aiohttp.ClientSession, host: HostAddress, attempt_uuid: uuid.UUID, known: Known | None = None
    ) -> StatusReport:
        if host.number == HANGING:
            await asyncio.Event().wait()
        return StatusReport(ReportedState.DELIVERED)


T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Database work, in a thread that leaves no connection behind."""

    def closing() -> T:
        try:
            return work()
        finally:
            connection.close()

    return await asyncio.to_thread(closing)


def silent_attempts() -> None:
    hanging = ServerFactory.create(host=HostFactory.create(number=HANGING))
    other = ServerFactory.create(host=HostFactory.create(number=2))
    long_ago = utc_now().replace(year=2025)
    AttemptFactory.create_batch(45, server=hanging, check_at=long_ago)
    AttemptFactory.create_batch(3, server=other, check_at=utc_now())


@pytest.mark.django_db(transaction=True)
async def test_a_hanging_host_holds_up_no_other() -> None:
    await in_thread(silent_attempts)
    delivered = Attempt.objects.filter(state="delivered")
    async with aiohttp.ClientSession() as session:
        lane = dispatcher.make_lane(OPTIONS, session, adapter=HangingHost())
        resolve = next(work for name, _, work in lane.chores() if name == "resolve")
        try:
            async with asyncio.timeout(20):
                while await in_thread(delivered.count) < 3:
                    await resolve()
                    await asyncio.sleep(0.01)
        finally:
            await lane.close()
    assert await in_thread(Attempt.objects.filter(checks_made__gt=0).count) <= 3 + 8  # few of the hanging one's
