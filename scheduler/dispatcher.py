"""The dispatcher: one asyncio process that streams messages out of PostgreSQL to relay hosts.

Any number of them may run, anywhere: claims are coordinated by PostgreSQL alone.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import aiohttp
import psycopg
import structlog
from django.conf import settings
from django.db import connection

from otp_service.core.engine import Engine, Slots
from otp_service.messages.queue import READY_CHANNEL
from otp_service.routes.claim import SHORTEST_LEASE, Claimed
from otp_service.routes.lane import MessageLane, ReadyFlow, is_transient
from otp_service.routes.submissions import Submitted
from scheduler import rules
from scheduler.start import log_rules
from servers.relay.native import NativeRelay

log = structlog.get_logger(__name__)

#: The dispatcher's statements all read by index; a plan made while a table was small must not say otherwise.
_PLANNER_OPTIONS = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"
_LISTEN_RETRY = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class DispatcherOptions:
    """Calls in flight: `floor` for otp only, `shared` for all, of which the last `reserve` are left to otp."""

    floor: int
    shared: int
    reserve: int


def run(options: DispatcherOptions) -> None:
    """Run until SIGTERM or SIGINT; then let calls end, settle, and return."""
    _refuse_a_short_lease()
    log_rules()
    connection.settings_dict["OPTIONS"]["options"] += f" {_PLANNER_OPTIONS}"
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(options))


def _refuse_a_short_lease() -> None:
    if settings.LEASE <= SHORTEST_LEASE:
        raise SystemExit(
            f"LEASE_S is {settings.LEASE.total_seconds():g}: it must be over {SHORTEST_LEASE.total_seconds():g}, the "
            "longest that a call to a host may take and a margin, or attempts would be rescued while they are sent."
        )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - not offered on every platform
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _run(options: DispatcherOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=30)
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:
        lane = MessageLane(session=session, adapter=NativeRelay(), planner=planner)
        try:
            await work(lane, options, stop)
        finally:
            await lane.close()
    log.info("dispatcher_stopped")


async def work(lane: MessageLane, options: DispatcherOptions, stop: asyncio.Event) -> None:
    """Run one lane's engine, its chores and the wake-ups until `stop`."""
    feeds = lane.feeds()
    engine: Engine[Claimed, Submitted] = Engine(
        feeds=feeds,
        call=lane.call,
        settle=lane.settle,
        slots=Slots(options.floor, options.shared, options.reserve),
        is_transient=is_transient,
        grace=settings.SHUTDOWN_GRACE,
    )
    beside = [
        asyncio.create_task(listen(on_otp=feeds[0].wake.set), name="listen"),
        *(asyncio.create_task(_every(name, period, chore), name=name) for name, period, chore in lane.chores()),
    ]
    log.info("dispatcher_started", floor=options.floor, shared=options.shared, reserve=options.reserve)
    try:
        await engine.run(stop)
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


def planner(flows: Sequence[ReadyFlow], room: int, free_by_pool: Mapping[str, int]) -> list[tuple[int, int]]:
    return rules.plan([rules.FlowView(*flow) for flow in flows], room=room, free_by_pool=free_by_pool)


async def _every(name: str, period: timedelta, chore: Callable[[], Awaitable[Any]]) -> None:
    """Repeat a chore. While it finds work it goes on at once; a failure is logged and tried again."""
    while True:
        try:
            found = await chore()
        except Exception as error:  # noqa: BLE001 - the loop must live; the next round finds what this one left
            log.warning("chore_failed", chore=name, error=type(error).__name__)
            found = 0
        await asyncio.sleep(0.01 if found else period.total_seconds())


async def listen(*, on_otp: Callable[[], None]) -> None:
    """Wake the otp feed when a commit says that there is something to claim. The poll finds what gets lost here."""
    while True:
        try:
            parameters = connection.get_connection_params()
            for django_only in ("cursor_factory", "context"):
                parameters.pop(django_only, None)
            async with await psycopg.AsyncConnection.connect(**parameters, autocommit=True) as listener:
                await listener.execute(f"LISTEN {READY_CHANNEL}")
                async for _ in listener.notifies():
                    on_otp()
        except (psycopg.Error, OSError) as error:
            log.warning("listen_failed", error=type(error).__name__)
        await asyncio.sleep(_LISTEN_RETRY.total_seconds())
