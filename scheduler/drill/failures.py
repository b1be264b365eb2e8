"""The failures: what is set up for each, what goes wrong and for how long, and what it is to show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

from otp_service.core import clock
from otp_service.messages.rules import Lane
from otp_service.simulation.twilio_api import Behaviour
from scheduler.drill import verdicts
from scheduler.drill.stage import Stage
from scheduler.drill.verdicts import Check

ONE, OTHER, TWO = "sms:one", "sms:other", "sms:two"
_NAME, _SECOND_NAME = "Acme", "Bravo"
#: No resolver knows it (RFC 6761).
_NO_SUCH_HOST = "http://provider.invalid"
#: Longer than a provider's answer is waited for, and than its receipt.
_SLOW = timedelta(seconds=4)
_IN_FLIGHT_FOR = timedelta(milliseconds=700)
_FLOOD, _FLOOD_TTL_S = 150, 6
_OPENS_WITHIN_S, _CLOSES_WITHIN_S = 25.0, 60.0

#: How long something lasts.
Lasts = Callable[[Stage], Awaitable[None]]
Fault = Callable[[Stage], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """A route of a run; of several the first one is tried first."""

    name: str
    sender_names: tuple[str, ...] = (_NAME,)
    delivery_s: int = 2
    receipt_wait_s: int = 2
    can_query: bool = True
    tps: float | None = None


def seconds(number: float) -> Lasts:
    """As long as that."""

    async def pass_by(_stage: Stage) -> None:
        await asyncio.sleep(number)

    return pass_by


_TWO_ROUTES = (RoutePlan(ONE), RoutePlan(TWO))
_FAULT_LASTS, _CALM_LASTS = seconds(4), seconds(2)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure. `backup` is the route that stands in, "" where none has to."""

    name: str
    words: str
    fault: Fault
    checks: tuple[Check, ...] = ()
    routes: tuple[RoutePlan, ...] = _TWO_ROUTES
    backup: str = TWO
    lasts: Lasts = _FAULT_LASTS
    then: Lasts = _CALM_LASTS
    asks_for: tuple[str, ...] = ()  # sender names that otp ask for in turn
    behind_gate: str = ""  # DATABASE_URL or REDIS_URL
    weight: float = 15  # seconds that it takes, about


# --- what goes wrong -----------------------------------------------------------------------------------


@asynccontextmanager
async def _refuses_connections(stage: Stage) -> AsyncIterator[None]:
    await stage.providers[ONE].hang_up()
    yield
    await stage.providers[ONE].listen()


@asynccontextmanager
async def _is_not_found(stage: Stage) -> AsyncIterator[None]:
    """One route's provider refuses connections, and the name of another's is not known."""
    await stage.point_elsewhere(OTHER, _NO_SUCH_HOST)
    async with _refuses_connections(stage):
        yield
    await stage.point_elsewhere(OTHER, stage.providers[OTHER].base_url)


def _behaves(behaviour: Behaviour) -> Fault:
    @asynccontextmanager
    async def fault(stage: Stage) -> AsyncIterator[None]:
        stage.providers[ONE].behaviour = replace(behaviour)
        yield
        stage.providers[ONE].behaviour = Behaviour()

    return fault


@asynccontextmanager
async def _answers_late(stage: Stage) -> AsyncIterator[None]:
    """It takes messages and says so when nobody listens any more; its receipts come after all was decided."""
    provider = stage.providers[ONE]
    provider.behaviour = Behaviour(answers_after=_SLOW, holds_receipts=True)
    yield
    provider.behaviour.answers_after = timedelta()
    await asyncio.sleep(_SLOW.total_seconds())
    await provider.release_receipts(rng=clock.rng)


@asynccontextmanager
async def _reports_in_disorder(stage: Stage) -> AsyncIterator[None]:
    for provider in stage.providers.values():
        provider.behaviour = Behaviour(holds_receipts=True)
    yield
    for provider in stage.providers.values():
        await provider.release_receipts(copies=2, rng=clock.rng)


@asynccontextmanager
async def _is_away(stage: Stage) -> AsyncIterator[None]:
    """While calls are in flight, whose results are to be written, and receipts are on their way."""
    for provider in stage.providers.values():
        provider.behaviour.answers_after = _IN_FLIGHT_FOR
    await asyncio.sleep(_IN_FLIGHT_FOR.total_seconds())
    stage.door.shut()
    yield
    await stage.door.open()
    for provider in stage.providers.values():
        provider.behaviour.answers_after = timedelta()


@asynccontextmanager
async def _is_flooded(stage: Stage) -> AsyncIterator[None]:
    """More promo than routes can carry within its lifetime."""
    await stage.client.flood(_FLOOD, Lane.PROMO, ttl_s=_FLOOD_TTL_S)
    yield


async def _until_opened(stage: Stage) -> None:
    await stage.has_breaker("breaker_opened", within_s=_OPENS_WITHIN_S)


async def _until_it_carries_again(stage: Stage) -> None:
    await stage.has_breaker("breaker_closed", within_s=_CLOSES_WITHIN_S)
    await asyncio.sleep(2)


# --- the list ------------------------------------------------------------------------------------------

_SLOW_REPORTS = tuple(replace(route, can_query=False) for route in _TWO_ROUTES)

FAILURES: dict[str, Failure] = {
    failure.name: failure
    for failure in (
        Failure(
            "refused",
            "connections refused, and a host name that is not known",
            _is_not_found,
            (verdicts.switched, verdicts.none_was_sent_twice),
            routes=(RoutePlan(ONE), RoutePlan(OTHER), RoutePlan(TWO)),
            weight=45,  # promo may go over two routes, and waits for the breaker of one
        ),
        Failure(
            "slow-answer",
            "the provider takes messages and answers too late",
            _answers_late,
            (verdicts.switched, verdicts.was_unclear),
        ),
        Failure(
            "throttled",
            "429 with Retry-After",
            _behaves(Behaviour(refuse_all=(429, 20429), retry_after_s=1)),
            (verdicts.none_was_sent_twice,),
        ),
        Failure(
            "rejected",
            "the provider refuses the account, again and again",
            _behaves(Behaviour(refuse_all=(401, 20003))),
            (verdicts.switched, verdicts.none_was_sent_twice),
        ),
        Failure(
            "receipts",
            "receipts late, doubled and out of order",
            _reports_in_disorder,
            (verdicts.all_were_delivered, verdicts.none_was_sent_twice),
            routes=_SLOW_REPORTS,
            backup="",
        ),
        Failure("postgres-away", "PostgreSQL away in the middle", _is_away, backup="", behind_gate="DATABASE_URL"),
        Failure(
            "redis-away",
            "Redis away in the middle",
            _is_away,
            (verdicts.none_was_sent_twice,),
            backup="",
            behind_gate="REDIS_URL",
        ),
        Failure(
            "recovery",
            "a route that comes back after its breaker opened",
            _refuses_connections,
            (verdicts.switched, verdicts.carried_again, verdicts.none_was_sent_twice),
            lasts=_until_opened,
            then=_until_it_carries_again,
            weight=60,
        ),
        Failure(
            "ttl",
            "lifetimes that run out in a long queue",
            _is_flooded,
            (verdicts.ran_out, verdicts.none_was_sent_twice),
            routes=(RoutePlan(ONE, tps=8), RoutePlan(TWO, tps=4)),
            backup="",
            lasts=seconds(_FLOOD_TTL_S + 1),
        ),
        Failure(
            "sender-name",
            "a sender name that the backup may not use",
            _refuses_connections,
            (verdicts.switched, verdicts.kept_names, verdicts.none_was_sent_twice),
            routes=(RoutePlan(ONE, sender_names=(_NAME, _SECOND_NAME)), RoutePlan(TWO)),
            asks_for=("", _SECOND_NAME),
        ),
    )
}
