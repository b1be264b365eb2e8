"""A whole dispatcher on a small database: that it listens, plans by index, does its chores, and tells how it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import aiohttp
import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from otp_service.core.clock import utc_now
from otp_service.core.engine import Engine
from otp_service.messages import queue
from otp_service.messages.models import Attempt
from otp_service.routes.database_threads import DatabaseThreads
from otp_service.routes.models import Dispatcher
from scheduler import dispatcher
from scheduler.rules import SlotSizes
from tests import deadline
from tests.factories import FlowFactory, QueuedFactory, RouteFactory

pytestmark = pytest.mark.django_db(transaction=True)

OPTIONS = dispatcher.DispatcherOptions(SlotSizes(floor=2, shared=20, reserve=6, promo_floor=1), name="at work")


@pytest.fixture(autouse=True)
def _simulated(settings: Any) -> None:
    settings.SIMULATED_ROUTES = True


async def in_thread(work: Callable[[], Any]) -> Any:
    def closing() -> Any:
        try:
            return work()
        finally:
            connection.close()

    return await sync_to_async(closing, thread_sensitive=False)()


async def eventually(look: Callable[[], Any]) -> Any:
    return await in_thread(lambda: deadline.eventually(look, within_s=20))


@asynccontextmanager
async def working() -> AsyncIterator[None]:
    async with aiohttp.ClientSession() as session:
        lane = dispatcher.make_lane(OPTIONS, session)
        stop = asyncio.Event()
        running = asyncio.create_task(dispatcher.work(lane, OPTIONS, stop))
        try:
            await eventually(Dispatcher.objects.exists)
            yield
        finally:
            stop.set()
            await running
            await lane.close()


def accept_otp(count: int = 1) -> None:
    now = utc_now()
    flow = FlowFactory.create(channels=["sms"])
    QueuedFactory.create_batch(
        count, flow=flow, created_at=now, event_at=now, expires_at=now + timedelta(minutes=5), first_attempt_by=None
    )
    queue.wake()


async def test_an_otp_is_claimed_when_it_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wake-up it would be found by a look that comes after an hour."""
    monkeypatch.setattr(dispatcher, "Engine", partial(Engine, poll=timedelta(hours=1)))
    await in_thread(lambda: RouteFactory.create(name="sms:one", settings={"latency_ms": 0}))
    async with working():
        for sent in (1, 2, 3):  # the first may be there at the first look
            await in_thread(accept_otp)
            await eventually(lambda: Attempt.objects.filter(settled_at__isnull=False).count() == sent)  # noqa: B023


async def test_it_tells_how_it_is() -> None:
    await in_thread(lambda: RouteFactory.create(name="sms:one", settings={"latency_ms": 0}))
    async with working():
        await in_thread(lambda: accept_otp(12))
        stats = await eventually(_stats_of_twelve)
    assert stats["claims_per_s"] > 0
    assert 0 < stats["otp_wait_s"]["p50"] <= stats["otp_wait_s"]["max"]
    assert stats["settle_lag_s"] > 0
    assert stats["routes"]["sms:one"]["in_flight"] == 0
    assert stats["routes"]["sms:one"]["limit"] >= 16  # where it begins; it may have grown
    assert stats["in_flight"] == {"otp": 0, "transactional": 0, "promo": 0}
    assert stats["queue"]["otp"] == {"ready": 0, "all_counted": True, "age_s": 0.0}


def _stats_of_twelve() -> dict[str, Any] | None:
    """Of a heartbeat after all of them ended; how late the loop was is told by some, as it is rounded."""
    stats = Dispatcher.objects.get().stats
    are_done = stats["otp_wait_s"]["count"] == 12 and not stats["in_flight"]["otp"] and stats["settle_lag_s"]
    return stats if are_done and stats["loop_lag_s"] > 0 else None


async def test_what_waits_has_an_age() -> None:
    now = utc_now()
    await in_thread(
        lambda: QueuedFactory.create(
            flow=FlowFactory.create(lane="promo", channels=["sms"]),
            lane="promo",
            created_at=now - timedelta(hours=1),
            event_at=now - timedelta(hours=1),
            expires_at=now + timedelta(hours=23),
        )
    )
    async with working():
        stats = await eventually(lambda: Dispatcher.objects.get().stats)
    assert stats["queue"]["promo"]["ready"] == 1
    assert 3_600 <= stats["queue"]["promo"]["age_s"] < 3_700


async def test_its_chores_are_done() -> None:
    """What is past its lifetime ends, and what waits long enough is sent, though nobody claims it."""
    now = utc_now()
    flow = await in_thread(lambda: FlowFactory.create(channels=["imessage"]))
    past = await in_thread(
        lambda: QueuedFactory.create(
            flow=flow, event_at=now - timedelta(hours=2), created_at=now - timedelta(hours=2), expires_at=now
        )
    )
    async with working():

        def has_ended() -> bool:
            past.refresh_from_db()
            return bool(past.status == "expired")

        await eventually(has_ended)
    async with aiohttp.ClientSession() as session:
        lane = dispatcher.make_lane(OPTIONS, session)
        names = {name for name, _, _ in lane.chores()}
        await lane.close()
    assert names == {
        "bulkheads", "routes", "binds", "pools", "breakers", "stage", "expire", "cancel", "counts", "rescue", "orphans",
        "resolve",
    }  # fmt: skip


async def test_its_connections_plan_by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    options = connection.settings_dict["OPTIONS"]
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", dict(options))
    seen: list[str] = []

    async def look() -> None:
        threads = DatabaseThreads("look")
        seen.append(await threads.run(_seqscan))
        threads.close()

    def run(_options: dispatcher.DispatcherOptions) -> Coroutine[Any, Any, None]:
        return look()

    monkeypatch.setattr(dispatcher, "_run", run)
    monkeypatch.setattr(dispatcher, "_collect_rarely", lambda: None)
    await in_thread(lambda: dispatcher.run(OPTIONS))
    assert seen == ["off"]


def _seqscan() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW enable_seqscan")
        return str(cursor.fetchone()[0])
