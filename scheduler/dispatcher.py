"""The dispatcher: one asyncio process that streams messages out of PostgreSQL to their routes.

Any number of them may run, anywhere: claims are coordinated by PostgreSQL alone.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import aiohttp
import psycopg
import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from otp_service.core.engine import Engine
from otp_service.messages.queue import READY_CHANNEL
from otp_service.messages.rules import Lane
from otp_service.routes.bulkheads import Bulkheads
from otp_service.routes.claim import SHORTEST_LEASE, Claimed
from otp_service.routes.database_threads import is_transient
from otp_service.routes.lane import SETTLERS, MessageLane, Plan, View
from otp_service.routes.providers.base import Provider
from otp_service.routes.providers.http_json import HttpJson
from otp_service.routes.providers.imessage import IMessagePool
from otp_service.routes.providers.kannel import Kannel
from otp_service.routes.providers.simulated import Simulated
from otp_service.routes.providers.smpp_routes import SmppRoutes
from otp_service.routes.providers.twilio import Twilio
from otp_service.routes.rates import Rates
from otp_service.routes.route_rules import RouteKind
from otp_service.routes.submissions import Submitted
from scheduler import rules
from scheduler.rules import SlotSizes
from scheduler.start import log_rules
from servers.relay.base import RelayAdapter
from servers.relay.registry import Relays

log = structlog.get_logger(__name__)

#: The dispatcher's statements all read by index; a plan made while a table was small must not say otherwise.
_PLANNER_OPTIONS = (
    "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"
)
_DATABASE_RETRY = timedelta(seconds=1)
_HEARTBEAT = timedelta(seconds=2)
_LAG_PROBE = 0.1  # seconds between two looks at the event loop's lag
#: Lanes that are claimed together, each such set by a connection of its own: otp waits for no other claim.
_FEEDS: tuple[tuple[Lane, ...], ...] = ((Lane.OTP,), (Lane.TRANSACTIONAL, Lane.PROMO))


@dataclass(frozen=True, slots=True)
class DispatcherOptions:
    """The slots of one dispatcher, the lanes that it serves, the name that people know it by, and its id."""

    sizes: SlotSizes
    lanes: tuple[Lane, ...] = tuple(Lane)
    name: str = "dispatcher"
    id: uuid.UUID = field(default_factory=uuid.uuid4)


def run(options: DispatcherOptions) -> None:
    """Run until SIGTERM or SIGINT; then let calls end, settle, and return."""
    _refuse_a_short_lease()
    log_rules()
    prepare_connections()
    _collect_rarely()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(options))


def _collect_rarely() -> None:
    """Keep the collector away from what stays for ever: at thousands of messages a second it took a third of the time.

    Messages, calls and results hold no cycles: they are freed without it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def prepare_connections() -> None:
    """Every connection that this process opens from now on plans as a dispatcher's must."""
    connection.settings_dict["OPTIONS"]["options"] += f" {_PLANNER_OPTIONS}"


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
        lane = make_lane(options, session)
        try:
            await work(lane, options, stop)
        finally:
            await lane.close()
    log.info("dispatcher_stopped")


def make_lane(
    options: DispatcherOptions,
    session: aiohttp.ClientSession,
    *,
    adapter: RelayAdapter | None = None,
    providers: Mapping[RouteKind, Provider] | None = None,
    smpp: SmppRoutes | None = None,
    adaptive: bool = True,
) -> MessageLane:
    """Messages on this dispatcher's slots. `adaptive=False`: no route's calls are cut down when it is slow."""
    adapter = adapter or Relays()
    smpp = smpp or SmppRoutes(options.id, options.lanes)
    spoken: dict[RouteKind, Provider] = {
        RouteKind.IMESSAGE_POOL: IMessagePool(adapter),
        RouteKind.TWILIO: Twilio(),
        RouteKind.KANNEL: Kannel(),
        RouteKind.SMPP: smpp.provider,
        RouteKind.HTTP_JSON: HttpJson(),
        RouteKind.SIMULATED: Simulated(),
    }
    feeds = [tuple(lane for lane in lanes if lane in options.lanes) for lanes in _FEEDS]
    return MessageLane(
        session=session,
        adapter=adapter,
        providers={**spoken, **(providers or {})},
        planners={lanes: _Planner(options.sizes) for lanes in feeds if lanes},
        bulkheads=Bulkheads(slots=options.sizes.floor + options.sizes.shared, adaptive=adaptive),
        rates=Rates(settings.REDIS_URL),
        smpp=smpp,
    )


class _Planner:
    """The planner of one feed: it keeps whose turn it is."""

    def __init__(self, sizes: SlotSizes) -> None:
        self._sizes = sizes
        self._turns = rules.Turns()

    def __call__(self, view: View) -> Plan:
        planned = rules.plan(
            [
                rules.FlowView(flow.id, flow.lane, flow.client_id, flow.weight, tuple(view.routes[flow.id]))
                for flow in view.flows
            ],
            sizes=self._sizes,
            in_flight=_by_lane(view.in_flight),
            most=view.most,
            routes={name: rules.RouteView(name, room) for name, room in view.room.items()},
            turns=self._turns,
        )
        self._turns = planned.turns
        return Plan(planned.take, planned.by_route)


def _rooms(sizes: SlotSizes, in_flight: Mapping[str, int]) -> dict[str, int]:
    return {lane.value: room for lane, room in rules.rooms(sizes, _by_lane(in_flight)).items()}


def _by_lane(in_flight: Mapping[str, int]) -> dict[Lane, int]:
    return {lane: in_flight.get(lane.value, 0) for lane in Lane}


async def work(lane: MessageLane, options: DispatcherOptions, stop: asyncio.Event) -> None:
    """Run one lane's engine, its chores, the heartbeat and the wake-ups until `stop`."""
    engine: Engine[Claimed, Submitted] = Engine(
        feeds=lane.feeds,
        call=lane.call,
        settle=lane.settle,
        rooms=partial(_rooms, options.sizes),
        is_transient=is_transient,
        settlers=SETTLERS,
        grace=settings.SHUTDOWN_GRACE,
    )
    heart = _Heart(lane, engine, options)
    await _open(lane, heart, stop)
    chores = [*lane.chores(), ("heartbeat", _HEARTBEAT, heart.beat)]
    beside = [
        asyncio.create_task(heart.feel_lag(), name="lag"),
        asyncio.create_task(listen(on_otp=lane.wake), name="listen"),
        *(asyncio.create_task(_every(name, period, chore), name=name) for name, period, chore in chores),
    ]
    log.info("dispatcher_started", name=options.name, **asdict(options.sizes))
    try:
        await engine.run(stop)
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await heart.stop()


async def _open(lane: MessageLane, heart: _Heart, stop: asyncio.Event) -> None:
    """See how many share the routes, and read them; for as long as the database does not answer, again and again."""
    while not stop.is_set():
        try:
            await heart.beat()
            await lane.open()
        except (DatabaseError, InterfaceError) as error:
            log.warning("routes_not_read", error=type(error).__name__)
            await asyncio.sleep(_DATABASE_RETRY.total_seconds())
        else:
            return


class _Heart:
    """Tells the others that this dispatcher lives, and people how it is."""

    def __init__(self, lane: MessageLane, engine: Engine[Claimed, Submitted], options: DispatcherOptions) -> None:
        self._lane = lane
        self._engine = engine
        self._options = options
        self._lag = 0.0  # seconds; the longest since the last beat

    async def beat(self) -> None:
        """One heartbeat."""
        await self._lane.beat(self._options.id, self._options.name, self._stats())
        self._lag = 0.0

    async def feel_lag(self) -> None:
        """How late the event loop wakes us: what every call and claim of this process waits in addition."""
        while True:
            asleep = time.monotonic()
            await asyncio.sleep(_LAG_PROBE)
            self._lag = max(self._lag, time.monotonic() - asleep - _LAG_PROBE)

    async def stop(self) -> None:
        """Leave the share of this one to the others."""
        try:
            await self._lane.leave(self._options.id)
        except (DatabaseError, InterfaceError) as error:
            log.warning("not_deregistered", error=type(error).__name__)  # the others notice by its silence

    def _stats(self) -> dict[str, Any]:
        sizes, in_flight = self._options.sizes, _by_lane(self._engine.in_flight)
        return {
            "slots": asdict(sizes),
            "borrowed": max(0, in_flight[Lane.OTP] - sizes.floor),
            "in_flight": {lane.value: count for lane, count in in_flight.items()},
            "settle_lag_s": round(self._engine.settle_lag, 3),
            "loop_lag_s": round(self._lag, 3),
            **self._lane.stats(),
        }


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
    """Wake the otp feed when a commit says that there is something to claim. The poll finds what gets lost here.

    Also when the database can be listened to again: its feed may be in a long pause after failures.
    """
    while True:
        try:
            parameters = connection.get_connection_params()
            for django_only in ("cursor_factory", "context"):
                parameters.pop(django_only, None)
            async with await psycopg.AsyncConnection.connect(**parameters, autocommit=True) as listener:
                await listener.execute(f"LISTEN {READY_CHANNEL}")
                on_otp()
                async for _ in listener.notifies():
                    on_otp()
        except (psycopg.Error, OSError) as error:
            log.warning("listen_failed", error=type(error).__name__)
        await asyncio.sleep(_DATABASE_RETRY.total_seconds())
