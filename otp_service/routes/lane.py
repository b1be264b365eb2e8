"""Messages on the slot engine: claim, call and settle, each database step in a thread of its own.

One thread is one connection: claiming otp never waits behind a larger claim, and settling behind neither.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import aiohttp
import structlog
from django.conf import settings

from otp_service.core.clock import utc_now
from otp_service.core.engine import Feed
from otp_service.core.measures import Rate, Waits
from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult
from otp_service.messages import campaigns, expiry
from otp_service.messages.rules import Lane
from otp_service.routes import (
    claim,
    dispatchers,
    ended_calls,
    flows,
    receipts,
    route_rules,
    submissions,
    table,
)
from otp_service.routes.bulkheads import LEFT_AT_MOST, Bulkheads, Pools
from otp_service.routes.choose import Ways
from otp_service.routes.claim import Claimed
from otp_service.routes.database_threads import DatabaseThreads
from otp_service.routes.eligibility import Terms
from otp_service.routes.ended_calls import ANSWERED
from otp_service.routes.flows import ReadyFlow
from otp_service.routes.providers.base import Provider
from otp_service.routes.providers.smpp_routes import SmppRoutes
from otp_service.routes.questions import Questions
from otp_service.routes.rates import Rates, burst
from otp_service.routes.route_health import Admitted, RouteHealth
from otp_service.routes.route_rules import RouteKind, RouteSpec
from otp_service.routes.submissions import Submitted
from servers import selection
from servers.relay.base import RelayAdapter

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: A feed knows the flows that it found for so long; a wake-up makes it look at once.
_LOOK_EVERY = 0.1  # seconds
#: A route that asked to be left alone for longer is tried again after this: others may have left it alone, too.
LONGEST_REST = timedelta(seconds=30)
#: Batches that are settled at once: while one waits for its commit, the other is prepared.
SETTLERS = 2


@dataclass(frozen=True, slots=True)
class View:
    """What a plan is made of: flows with their routes, what each route may be given, what is in flight by lane."""

    flows: Sequence[ReadyFlow]
    routes: Mapping[int, Sequence[str]]  # by flow, in order of preference
    room: Mapping[str, Mapping[Lane, int]]  # by route
    in_flight: Mapping[str, int]
    most: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`[(flow id, n)]` to claim, and how many of them each route is to carry."""

    take: Sequence[tuple[int, int]]
    by_route: Mapping[str, int]


#: One for each feed: it may remember whose turn it is.
Planner = Callable[[View], Plan]


@dataclass(slots=True)
class _Source:
    """What one feed knows of its flows."""

    lanes: tuple[Lane, ...]
    threads: DatabaseThreads
    plan: Planner
    flows: dict[int, ReadyFlow] = field(default_factory=dict)
    looked_at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class _Look:
    """What a feed saw before it planned: its flows and their routes, and what pools, rates and breakers allow."""

    flows: Sequence[ReadyFlow]
    routes: Mapping[int, tuple[RouteSpec, ...]]
    specs: Mapping[str, RouteSpec]
    pools: Pools
    granted: Mapping[str, int]
    now: datetime  # when its rates were granted: of that day's quota they are
    admitted: Admitted
    for_otp: bool


class MessageLane:
    """The engine's adapter for messages."""

    def __init__(
        self,
        *,
        session: aiohttp.ClientSession,
        adapter: RelayAdapter,
        providers: Mapping[RouteKind, Provider],
        planners: Mapping[tuple[Lane, ...], Planner],
        bulkheads: Bulkheads,
        rates: Rates,
        smpp: SmppRoutes,
    ) -> None:
        """`planners` has one for each feed: the lanes that it claims, and the planner."""
        self._session = session
        self._adapter = adapter
        self._providers = providers
        self._bulkheads = bulkheads
        self._rates = rates
        self._health = RouteHealth(settings.REDIS_URL)
        self._smpp = smpp
        self._specs: dict[str, RouteSpec] = {}
        self._terms: dict[str, Terms] = {}
        self._rest_until: dict[str, float] = {}  # by route that asked to be left alone: monotonic seconds
        self._pool_sizes: dict[str, int] = {}
        # What others wait for, apart from what may take long.
        self._heart, self._staging, self._chores, self._breakers, self._asking = map(
            DatabaseThreads, ("heart", "stage", "chores", "breakers", "questions")
        )
        self._settling = DatabaseThreads("settle", SETTLERS)
        self._questions = Questions(session, adapter, providers, self._asking.run)
        self._sources = [_Source(lanes, DatabaseThreads(f"claim-{lanes[0]}"), plan) for lanes, plan in planners.items()]
        #: A claim loop for each set of lanes that there is a planner for.
        self.feeds: list[Feed[Claimed]] = [
            Feed(source.lanes[0].value, tuple(lane.value for lane in source.lanes), partial(self._claim, source))
            for source in self._sources
        ]
        self.dispatchers = 1  # that live, this one included
        self.otp_waits = Waits()
        self.claims = Rate()

    async def open(self) -> None:
        """Read the routes; before the first claim."""
        await self._heart.run(table.ensure_pools)
        await self.measure_pools()
        await self.read_routes()
        await self._look_at_breakers()

    async def beat(self, dispatcher_id: UUID, name: str, stats: Mapping[str, Any]) -> None:
        """Write a heartbeat, and learn how many dispatchers share the routes' limits."""
        self.dispatchers = await self._heart.run(lambda: _beat(dispatcher_id, name, stats))

    async def leave(self, dispatcher_id: UUID) -> None:
        """The last heartbeat."""
        await self._heart.run(lambda: dispatchers.gone(dispatcher_id))

    def stats(self) -> dict[str, Any]:
        """How it goes, for people: JSON."""
        at = time.monotonic()
        waits = {name: round(value, 3) for name, value in self.otp_waits.summary(at=at).items()}
        return {
            "claims_per_s": round(self.claims.per_second(at=at), 1),
            "otp_wait_s": waits,
            "routes": self._bulkheads.figures(),
            "breakers": self._health.states(),
        }

    async def read_routes(self) -> None:
        """Follow the routes as they are configured now."""
        routes = await self._heart.run(table.load_with_terms)
        specs = {name: spec for name, (spec, _) in routes.items()}
        await self._smpp.renew(specs.values(), at=time.monotonic(), dispatchers=self.dispatchers)
        self._bulkheads.set_up(specs, dispatchers=self.dispatchers)
        self._health.follow(routes)
        self._terms = {name: terms for name, (_, terms) in routes.items()}
        self._specs = specs  # last: threads that claim look up the bulkheads of what they find here

    async def hold_binds(self) -> None:
        """Follow the SMPP routes that are this dispatcher's now."""
        await self._smpp.hold(self._specs.values(), at=time.monotonic())

    async def measure_pools(self) -> None:
        """See how large the pools are now."""
        self._pool_sizes = await self._heart.run(lambda: selection.size_by_pool(now=utc_now()))

    def wake(self) -> None:
        """An otp was committed: its feed looks at once."""
        for source, feed in zip(self._sources, self.feeds, strict=True):
            if Lane.OTP in source.lanes:
                source.looked_at = float("-inf")
                feed.wake.set()

    async def _claim(self, source: _Source, most: int, in_flight: Mapping[str, int]) -> Sequence[Claimed]:
        look = await source.threads.run(lambda: self._look(source, most))
        if not look.flows:
            return []
        room = self._room(look)
        names = {flow: [spec.name for spec in specs] for flow, specs in look.routes.items()}
        plan = source.plan(View(look.flows, names, room, in_flight, most))
        with self._bulkheads.held(plan.by_route):
            elsewhere = self._smpp.elsewhere(look.specs.values(), at=time.monotonic())
            admitted = look.admitted
            ways = Ways(look.routes, room, self._terms, admitted.standings, admitted.tickets, elsewhere)
            batch = await source.threads.run(lambda: self._take(plan, ways, look))
            self._count(batch.claimed)
        for flow, asked in plan.take:
            if batch.picked.get(flow, 0) < asked:
                source.flows.pop(flow, None)  # empty, as far as we are concerned, until the next look
        return batch.claimed

    def _look(self, source: _Source, most: int) -> _Look:
        if time.monotonic() - source.looked_at > _LOOK_EVERY:
            source.looked_at = time.monotonic()
            source.flows = {flow.id: flow for flow in flows.present(source.lanes)}
        specs, at = self._specs, time.monotonic()
        found = list(source.flows.values())
        by_kind = {(flow.channels, flow.pools, flow.lane) for flow in found}
        possible = {kind: _possible(specs, *kind) for kind in by_kind}
        possible = {kind: ways for kind, ways in possible.items() if not self._smpp.leaves(ways, at=at)}
        found = [flow for flow in found if (flow.channels, flow.pools, flow.lane) in possible]
        routes = {flow.id: possible[flow.channels, flow.pools, flow.lane] for flow in found}
        used = {spec.name for each in possible.values() for spec in each}
        awaited = self._awaited(source, specs) & used
        awaited |= {name for name in used if not self._smpp.may_carry(specs[name], at=at)}
        awaited |= {name for name in used if at < self._rest_until.get(name, at)}
        now = utc_now()
        awaited |= {name for name in used if self._is_closed(name, now)}
        has_pool = any(specs[name].pool for name in used)
        free = selection.free_by_pool(now=now, cap=most + LEFT_AT_MOST) if has_pool else {}
        for_otp = Lane.OTP in source.lanes
        admitted = self._health.admit(used - awaited, for_otp=for_otp, now=now)
        limited = {
            name: min(most, admitted.most.get(name, most))
            for name in used - awaited
            if specs[name].tps is not None or specs[name].daily_quota is not None
        }
        granted = self._rates.take(limited, specs, now=now, at=at, dispatchers=self.dispatchers, for_otp=for_otp)
        granted = {**admitted.most, **granted, **dict.fromkeys(awaited, 0)}
        return _Look(found, routes, specs, Pools(free, self._pool_sizes), granted, now, admitted, for_otp)

    def _awaited(self, source: _Source, specs: Mapping[str, RouteSpec]) -> set[str]:
        """Routes that let so little through that other lanes stand back while an otp waits for them."""
        if Lane.OTP in source.lanes:
            return set()
        waiting = [flow for other in self._sources if Lane.OTP in other.lanes for flow in list(other.flows.values())]
        names = {spec.name for flow in waiting for spec in _possible(specs, flow.channels, flow.pools, flow.lane)}
        return {name for name in names if self._is_narrow(specs[name])}

    def _is_closed(self, name: str, now: datetime) -> bool:
        terms = self._terms.get(name)
        return terms is not None and terms.hours is not None and not terms.hours.hold(now)

    def _is_narrow(self, spec: RouteSpec) -> bool:
        tps = None if spec.tps is None else burst(spec.tps)
        return route_rules.is_narrow(spec, self._bulkheads.ceiling(spec.name), tps, spec.daily_quota)

    def _room(self, look: _Look) -> dict[str, Mapping[Lane, int]]:
        at = time.monotonic()
        specs = {spec.name: spec for each in look.routes.values() for spec in each}
        return {
            name: self._bulkheads.rooms(spec, at=at, granted=look.granted.get(name), pools=look.pools)
            for name, spec in specs.items()
        }

    def _take(self, plan: Plan, ways: Ways, look: _Look) -> claim.Batch:
        batch = claim.Batch()
        try:
            batch = claim.claim(plan.take, ways, now=utc_now())
        finally:
            used = Counter(claimed.route for claimed in batch.claimed)
            self._give_back({n: count - used[n] for n, count in look.granted.items() if count > used[n]}, look)
            probes = [claimed.ticket for claimed in batch.claimed if claimed.ticket is not None]
            self._health.give_back(look.admitted.tickets, probes, for_otp=look.for_otp, now=look.now)
        return batch

    def _give_back(self, unused: Mapping[str, int], look: _Look) -> None:
        """What was not used is lost at worst: what was claimed is committed, and must reach its routes."""
        try:
            self._rates.give_back(unused, look.specs, now=look.now)
        except Exception as error:  # noqa: BLE001 - whatever fails here, the claim stands
            log.warning("rates_not_given_back", error=type(error).__name__)

    def _count(self, claimed: Sequence[Claimed]) -> None:
        at, now = time.monotonic(), utc_now()
        self.claims.add(len(claimed), at=at)
        for one in claimed:
            self._bulkheads.started(one.attempt_id, one.route, at)
            if one.lane is Lane.OTP and one.accepted_at is not None:
                self.otp_waits.add((now - one.accepted_at).total_seconds(), at=at)

    async def call(self, claimed: Claimed) -> Submitted:
        """Hand one attempt to its route. Whatever goes wrong is an outcome, never an exception."""
        started = time.monotonic()
        answered = False
        try:
            result = await self._submit(claimed, started)
            answered = result.submission in ANSWERED and result.error_class is not ErrorClass.THROTTLED
        finally:
            ended = time.monotonic()
            self._bulkheads.ended(claimed.attempt_id, ended, ok=answered)
        if claimed.host is None and result.retry_after is not None and result.error_class is ErrorClass.THROTTLED:
            self._rest_until[claimed.route] = ended + min(result.retry_after, LONGEST_REST).total_seconds()
        return Submitted(claimed, result, timedelta(seconds=ended - started))

    async def _submit(self, claimed: Claimed, started: float) -> SubmitResult:
        if started > claimed.give_up_at:
            # This process was frozen: its lease is over and the attempt may have been rescued.
            return SubmitResult(Submission.NOT_CONNECTED, error_class=ErrorClass.EXPIRED)
        try:
            return await self._providers[claimed.spec.kind].submit(self._session, claimed)
        except Exception as error:  # noqa: BLE001 - a fault of ours leaves it open whether something was sent
            # No traceback: its frames hold the text.
            log.error("submit_fault", attempt=str(claimed.send.attempt_uuid), error=type(error).__name__)  # noqa: TRY400
            return SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT)

    async def settle(self, batch: Sequence[tuple[Claimed, Submitted]]) -> None:
        """Write what came of a batch of calls, and that their hosts answered. At most SETTLERS run at once."""
        await self._settling.run(
            lambda: ended_calls.settle([submitted for _, submitted in batch], self._health, utc_now())
        )

    def chores(self) -> list[tuple[str, timedelta, Callable[[], Awaitable[Any]]]]:
        """What runs beside the claims: `(name, period, work)`. Each does one batch, and is safe beside itself."""
        return [
            ("bulkheads", timedelta(milliseconds=50), self._look_for_hangs),
            ("routes", timedelta(seconds=2), self.read_routes),
            ("binds", timedelta(milliseconds=500), self.hold_binds),
            ("pools", timedelta(seconds=30), self.measure_pools),
            ("breakers", timedelta(seconds=1), self._look_at_breakers),
            ("stage", timedelta(milliseconds=200), lambda: self._staging.run(lambda: expiry.stage_due(now=utc_now()))),
            ("expire", timedelta(seconds=1), self._expire),
            ("cancel", timedelta(seconds=1), lambda: self._chore(lambda: expiry.cancel_due(now=utc_now()))),
            ("counts", timedelta(seconds=60), lambda: self._chore(campaigns.fold_counts)),
            ("rescue", timedelta(seconds=1), lambda: self._chore(lambda: submissions.rescue(now=utc_now()))),
            ("orphans", timedelta(seconds=5), lambda: self._chore(lambda: receipts.match_all_orphans(now=utc_now()))),
            ("resolve", timedelta(milliseconds=500), self._resolve),
        ]

    async def _look_for_hangs(self) -> None:
        self._bulkheads.look(time.monotonic())

    async def _look_at_breakers(self) -> None:
        await self._breakers.run(lambda: self._health.look(utc_now()))

    async def _chore(self, work: Callable[[], int]) -> int:
        return await self._chores.run(work)

    async def _expire(self) -> int:
        waits = {name: terms.receipt_wait for name, terms in self._terms.items() if terms.receipt_wait is not None}
        return await self._chore(lambda: expiry.expire_due(now=utc_now(), receipt_waits=waits))

    async def _resolve(self) -> int:
        terms = self._terms
        return await self._questions.ask({name: (spec, terms.get(name, Terms())) for name, spec in self._specs.items()})

    async def close(self) -> None:
        """Drop the questions, unbind, and end the threads."""
        await self._questions.close()
        await self._smpp.close()
        of_feeds = [source.threads for source in self._sources]
        for threads in (
            *of_feeds,
            self._settling,
            self._heart,
            self._staging,
            self._chores,
            self._breakers,
            self._asking,
        ):
            threads.close()
        self._rates.close()
        self._health.close()


def _beat(dispatcher_id: UUID, name: str, stats: Mapping[str, Any]) -> int:
    now = utc_now()
    waiting = {
        lane.value: {
            "ready": queue.count,
            "all_counted": queue.count < flows.COUNTED,
            "age_s": round((now - queue.oldest).total_seconds(), 1) if queue.oldest else 0.0,
        }
        for lane, queue in flows.waiting().items()
    }
    return dispatchers.seen(dispatcher_id, name=name, now=now, stats={**stats, "queue": waiting})


def _possible(
    specs: Mapping[str, RouteSpec], channels: Sequence[str], pools: Sequence[str], lane: Lane
) -> tuple[RouteSpec, ...]:
    names = route_rules.possible(specs.values(), channels=channels, pools=pools, lane=lane)
    return tuple(specs[name] for name in names)
