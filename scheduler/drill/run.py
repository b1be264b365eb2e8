"""Runs failures of the drill, some side by side, each on a database and with processes of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import signal
import socket
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass

import aiohttp
import psycopg
from django.conf import settings

from otp_service.core.clock import utc_now
from otp_service.messages.rules import ENDED
from otp_service.simulation.twilio_api import TwilioApi
from scheduler.drill import gates, lane
from scheduler.drill.children import PROJECT, Child, DrillError, child
from scheduler.drill.failures import Failure
from scheduler.drill.journal import Fault, Seen, held, journal
from scheduler.drill.load import OTP_LIFE_S, Load
from scheduler.drill.report import Page
from scheduler.drill.stage import Stage
from scheduler.drill.verdicts import verdicts
from scheduler.lab.databases import own_database

_BEFORE_S = 1.5  # of a steady load before the fault
_READY_WITHIN_S = 90.0  # a machine with two busy cores needs some of it
_GRACE_S = 10
_ENDS_WITHIN_S, _HELD_FOR_S = OTP_LIFE_S + _GRACE_S + 30.0, 8.0  # after the last message was posted
_LOOK_EVERY_S = 0.2
_BUDGET = 1  # extra copies
_PREPARE_WITHIN_S = 120.0

#: What every process of a run is told beside its addresses: whatever this installation says, the drill is the same.
_ENVIRONMENT = {
    "DUPLICATE_BUDGET": str(_BUDGET),
    "LANE_DEFAULTS": json.dumps({"promo": {"min_ttl_s": 1}}),
    "POOLS_BY_PREFIX": "",  # nothing: what it is by default
    "RECEIPT_WAIT_S": "",
    "RECEIPT_GRACE_S": str(_GRACE_S),
    "LEASE_S": "20",
    "LOG_LEVEL": "WARNING",
    "SHUTDOWN_GRACE_S": "0.5",
    "ALLOWED_HOSTS": "127.0.0.1",
    "BEHIND_TLS_PROXY": "false",
    "WEB_THREADS": "8",
}


@dataclass(frozen=True, slots=True)
class Bench:
    """Where failures are run, how many at once, and who is told of each that ended."""

    server_url: str
    redis_url: str
    jobs: int
    say: Callable[[str], None]


def run_all(failures: Sequence[Failure], bench: Bench) -> list[Page]:
    """Run them. Raises DrillError, psycopg.Error or OSError, and KeyboardInterrupt on Ctrl-C or SIGTERM.

    However it ends, its processes have ended and its databases are dropped.
    """
    try:
        with _quiet_providers():
            return asyncio.run(_run_all(failures, bench))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@contextmanager
def _quiet_providers() -> Iterator[None]:
    """That receipts get lost is what the drill is about: they are counted, not logged."""
    logger = logging.getLogger(TwilioApi.__module__)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


async def _run_all(failures: Sequence[Failure], bench: Bench) -> list[Page]:
    whole = asyncio.current_task()
    assert whole is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, whole.cancel)
    async with own_database(bench.server_url, prefix=lane.PREFIX) as template_url:
        await _migrate(template_url)
        return await _side_by_side(failures, bench, template_url)


async def _migrate(database_url: str) -> None:
    arguments = ["migrate", "--verbosity", "0", "--skip-checks"]
    async with child("migration", _manage(arguments), _environment(database_url, settings.REDIS_URL)) as migration:
        if await asyncio.wait_for(migration.wait(), _PREPARE_WITHIN_S):
            raise migration.failed("failed")


async def _side_by_side(failures: Sequence[Failure], bench: Bench, template_url: str) -> list[Page]:
    """The longest ones begin first; they are returned in the order given."""
    found: dict[str, Page] = {}
    turns = asyncio.Semaphore(bench.jobs)

    async def one(failure: Failure) -> None:
        async with turns, own_database(bench.server_url, template_url=template_url, prefix=lane.PREFIX) as database_url:
            found[failure.name] = await _named(failure, _run(failure, bench, database_url))
        bench.say(_progress(len(found), len(failures), found[failure.name]))

    await _all_or_none([one(failure) for failure in sorted(failures, key=lambda failure: -failure.weight)])
    return [found[failure.name] for failure in failures]


async def _named(failure: Failure, run: Coroutine[None, None, Page]) -> Page:
    try:
        return await run
    except* DrillError as errors:
        raise DrillError(f"{failure.name}: {_first(errors)}") from None


async def _all_or_none(work: Sequence[Coroutine[None, None, None]]) -> None:
    """Where one fails, the others are ended in their own way; the first failure is raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for one in work:
                tasks.create_task(one)
    except BaseExceptionGroup as failures:
        raise _first(failures) from None


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first failure of a group, and of the groups in it."""
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _progress(done: int, of: int, page: Page) -> str:
    failed = [verdict.condition for verdict in page.verdicts if not verdict.holds]
    return f"{done}/{of}  {page.name}: {'NO: ' + ', '.join(failed) if failed else 'yes'}"


# --- one run -------------------------------------------------------------------------------------------


async def _run(failure: Failure, bench: Bench, database_url: str) -> Page:
    async with _staged(failure, bench, database_url) as (stage, children):
        fault = await _play(failure, stage)
        await _wait_for_ends(stage, children)
        seen = await _seen(stage, fault)
    return Page(failure.name, failure.words, journal(seen), verdicts(seen, failure.checks))


@asynccontextmanager
async def _staged(failure: Failure, bench: Bench, database_url: str) -> AsyncIterator[tuple[Stage, Sequence[Child]]]:
    """Providers, gate, web, dispatcher and client, ready to begin."""
    mark, base = f"-{uuid.uuid4().hex[:8]}", f"http://127.0.0.1:{_free_port()}"
    async with AsyncExitStack() as stack:
        providers = {
            plan.name: await stack.enter_async_context(TwilioApi(f"AC{number}", secrets.token_hex(16)))
            for number, plan in enumerate(failure.routes, 1)
        }
        gate, urls = await _gated(failure, bench, database_url, stack)
        env = {**_environment(**urls), "PUBLIC_URL": base}
        rows = lane.written(_rows(failure, providers, mark))
        web = [sys.executable, "-m", "otp_service.serve", "--listen", base.removeprefix("http://")]
        served = await stack.enter_async_context(child("web process", web, env))
        dispatch = _manage(["drill_routes", "--dispatch", rows])
        dispatching = await stack.enter_async_context(child("dispatcher", dispatch, env))
        key = await dispatching.line(within_s=_READY_WITHIN_S)
        session = await stack.enter_async_context(aiohttp.ClientSession(trust_env=False))
        database = await psycopg.AsyncConnection.connect(database_url, autocommit=True)
        await stack.enter_async_context(database)
        stage = Stage(providers, mark, database, gate, Load(session, base, key, failure.asks_for))
        children = (served, dispatching)
        await _ready(stage, session, base, children)
        yield stage, children


async def _gated(
    failure: Failure, bench: Bench, database_url: str, stack: AsyncExitStack
) -> tuple[gates.Gate | None, Mapping[str, str]]:
    """The addresses that the run's processes are given."""
    urls = {"database_url": database_url, "redis_url": bench.redis_url}
    match failure.behind_gate:
        case "DATABASE_URL":
            gate = await stack.enter_async_context(gates.to_postgres(database_url))
            return gate, urls | {"database_url": gates.postgres_url(database_url, gate)}
        case "REDIS_URL":
            gate = await stack.enter_async_context(gates.to_redis(bench.redis_url))
            return gate, urls | {"redis_url": gates.redis_url(bench.redis_url, gate)}
        case _:
            return None, urls


def _rows(failure: Failure, providers: Mapping[str, TwilioApi], mark: str) -> list[lane.RouteRow]:
    return [
        lane.RouteRow(
            name=plan.name + mark,
            base_url=providers[plan.name].base_url,
            account_sid=providers[plan.name].account_sid,
            auth_token=providers[plan.name].auth_token,
            priority=-place,
            sender_names=plan.sender_names,
            delivery_s=plan.delivery_s,
            receipt_wait_s=plan.receipt_wait_s,
            can_query=plan.can_query,
            tps=plan.tps,
        )
        for place, plan in enumerate(failure.routes)
    ]


async def _ready(stage: Stage, session: aiohttp.ClientSession, base: str, children: Sequence[Child]) -> None:
    """Wait until the web process answers and the dispatcher has written a heartbeat. Raises DrillError."""
    give_up_at = asyncio.get_running_loop().time() + _READY_WITHIN_S
    while not (await _answers(session, base) and await stage.dispatchers()):
        for each in children:
            each.check()
        if asyncio.get_running_loop().time() > give_up_at:
            raise DrillError(f"The drill's processes were not ready within {_READY_WITHIN_S:g} s.")
        await asyncio.sleep(_LOOK_EVERY_S)


async def _answers(session: aiohttp.ClientSession, base: str) -> bool:
    try:
        async with session.get(f"{base}/health/live") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def _play(failure: Failure, stage: Stage) -> Fault:
    """A steady load, and the fault in the middle of it."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(stage.client.steady(stop))
        await asyncio.sleep(_BEFORE_S)
        began_at = utc_now()
        async with failure.fault(stage):
            await failure.lasts(stage)
        ended_at = utc_now()
        await failure.then(stage)
        stop.set()
    return Fault(began_at, ended_at, failure.backup)


async def _wait_for_ends(stage: Stage, children: Sequence[Child]) -> None:
    """Until every accepted message has ended, within bounds: what has not by then is for the journal to say.

    Of those that only wait for news of an unclear copy, no more may come.
    """
    loop = asyncio.get_running_loop()
    give_up_at, hold_until = loop.time() + _ENDS_WITHIN_S, loop.time() + _HELD_FOR_S
    while loop.time() < give_up_at:
        stored = await stage.messages()
        open_still = {message.id for message in stored.values() if message.status not in ENDED}
        if not open_still or (loop.time() > hold_until and open_still <= held(stored, await stage.attempts())):
            return
        for each in children:
            each.check()
        await asyncio.sleep(_LOOK_EVERY_S)


async def _seen(stage: Stage, fault: Fault) -> Seen:
    return Seen(
        accepted=stage.client.accepted,
        stored=await stage.messages(),
        attempts=await stage.attempts(),
        copies=stage.copies(),
        breakers=await stage.breakers(),
        fault=fault,
        read_at=utc_now(),
        budget=_BUDGET,
        turned_away=stage.client.turned_away,
        receipts_lost=sum(provider.receipts_lost for provider in stage.providers.values()),
    )


# --- its processes -------------------------------------------------------------------------------------


def _manage(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, str(PROJECT / "manage.py"), *arguments]


def _environment(database_url: str, redis_url: str) -> dict[str, str]:
    return {
        **_ENVIRONMENT,
        "OTP_EMBEDDED": str(settings.EMBEDDED),
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
    }


def _free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
