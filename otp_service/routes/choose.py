"""Which way each claimed message goes: its route, and the server of a pool."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Protocol

from otp_service.core.outcomes import ErrorClass
from otp_service.messages.models import Attempt
from otp_service.messages.rules import ALIVE, Channel, Lane, RefusalReason
from otp_service.routes.breakers import Tickets
from otp_service.routes.eligibility import Offer, Outlook, Standing, Terms, Verdict, Wanted, judge
from otp_service.routes.parts import Encoding, Measure, measure
from otp_service.routes.route_rules import RouteKind, RouteSpec
from otp_service.routes.tried import NOWHERE, Past, Tried, last_error, tried
from servers import selection
from servers.selection import Reservation

#: Of recipients who refuse nothing.
_NO_WISHES: Mapping[bytes, frozenset[Channel]] = {}


class Traveller(Protocol):
    """What a message tells of itself."""

    @property
    def id(self) -> int: ...
    @property
    def flow_id(self) -> int: ...
    @property
    def to(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def sender_name(self) -> str: ...
    @property
    def expires_at(self) -> datetime: ...
    @property
    def first_attempt_by(self) -> datetime | None: ...
    @property
    def to_hash(self) -> bytes: ...
    @property
    def lane(self) -> Lane: ...
    @property
    def attempts_made(self) -> int: ...
    @property
    def max_routes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Ways:
    """By flow its possible routes, the preferred one first; by route, how many attempts of each lane may start now.

    One attempt of any lane lowers the room of all.
    """

    of_flow: Mapping[int, tuple[RouteSpec, ...]]
    room: Mapping[str, Mapping[Lane, int]]
    terms: Mapping[str, Terms] = field(default_factory=dict)  # by route; those that are not there are free
    standings: Mapping[str, Standing] = field(default_factory=dict)  # by route: isolation, breaker, quality, health
    tickets: Mapping[str, Tickets] = field(default_factory=dict)  # by route whose calls are probes, or have an era
    elsewhere: frozenset[str] = frozenset()  # routes of another dispatcher: it sends what would go there first

    def pools(self, flow_id: int) -> tuple[str, ...]:
        """The pools among a flow's routes."""
        return tuple(spec.pool for spec in self.of_flow[flow_id] if spec.kind is RouteKind.IMESSAGE_POOL)

    def terms_of(self, route: str) -> Terms:
        """What a route may carry."""
        return self.terms.get(route, _FREE)

    def offers(self, flow_id: int) -> tuple[Offer, ...]:
        """A flow's routes as they stand. Their room is looked at later, as messages choose one after another."""
        return tuple(
            Offer(spec, self.terms_of(spec.name), self.standings.get(spec.name, _FINE))
            for spec in self.of_flow[flow_id]
        )


@dataclass(frozen=True, slots=True)
class Way:
    """The route of one attempt; of a pool also the server, which is reserved."""

    route: RouteSpec
    server: Reservation | None = None


#: Reasons by route.
Refusals = Mapping[str, RefusalReason]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was found for each message."""

    ways: Mapping[int, Way]  # by message id
    outlook: Mapping[int, Outlook]  # of each message that got none: whether it may get one later
    refusals: Mapping[int, Refusals]  # of each that some route was passed over for, or that got none
    last_errors: Mapping[int, ErrorClass | None]  # of each that had attempts before: what came of the newest


def choose(
    messages: Sequence[Traveller],
    ways: Ways,
    *,
    now: datetime,
    rng: random.Random,
    refused_channels: Mapping[bytes, frozenset[Channel]] = _NO_WISHES,
) -> Chosen:
    """A way for each message, as far as there is any now. Messages choose in the order given.

    Runs in the caller's transaction, as reserved servers are held to its end. Neighbouring pools of a message's
    routes are one choice, made by `servers.selection`; of other routes it takes the first that has room. An otp whose
    pools have a server in time for its first attempt waits for it. `refused_channels`: by the recipient's hash.
    """
    been, last_errors = _been(messages)
    verdicts = _Judge(ways, been, refused_channels, now, rng).verdicts(messages)
    choice = _Choice(been, ways.room, now)
    stages = _stages_of(verdicts, been, ways)
    for stage in range(max(map(len, stages.values()), default=0)):
        wishes = [
            _Wish(message, stages[message.id][stage], stages[message.id][stage - 1] if stage else ())
            for message in messages
            if message.id not in choice.made and stage < len(stages[message.id])
        ]
        for lane in Lane:  # in the order of their precedence
            choice.by_pools([w for w in wishes if w.of_pools and w.message.lane is lane], lane, now, rng)
        choice.by_routes([wish for wish in wishes if not wish.of_pools])
    left = [message for message in messages if message.id not in choice.made]
    refusals = {message.id: _refusals(verdicts[message.id], choice.made.get(message.id)) for message in messages}
    return Chosen(
        choice.made,
        {message.id: _outlook(message, ways, verdicts[message.id]) for message in left},
        {message_id: each for message_id, each in refusals.items() if each},
        last_errors,
    )


def _outlook(message: Traveller, ways: Ways, verdict: Verdict) -> Outlook:
    """A flow without any route waits for one: somebody may be changing them at this moment."""
    return verdict.outlook if ways.of_flow[message.flow_id] else Outlook.WAIT


def _refusals(verdict: Verdict, way: Way | None) -> Refusals:
    """Why the routes that were not taken were not: those that would have come first had no room."""
    if way is not None and verdict.eligible[0].spec.name == way.route.name and way.route.name not in verdict.refused:
        return verdict.refused
    eligible = [offer.spec.name for offer in verdict.eligible]
    before = eligible if way is None else eligible[: eligible.index(way.route.name)]
    reasons = {**dict.fromkeys(before, RefusalReason.NO_CAPACITY), **verdict.refused}  # of a probe: its breaker
    if way is not None:
        reasons.pop(way.route.name, None)
    return reasons


@dataclass(slots=True)
class _Judge:
    """Which of its flow's routes may carry each message.

    Where nothing depends on the message, all of a flow share one verdict: judging each takes longer than the rest.
    """

    ways: Ways
    been: Mapping[int, Tried]
    refused_channels: Mapping[bytes, frozenset[Channel]]
    now: datetime
    rng: random.Random
    flows: dict[int, _FlowOffers] = field(default_factory=dict)

    def verdicts(self, messages: Iterable[Traveller]) -> dict[int, Verdict]:
        """By message id."""
        return {message.id: self._verdict(message) for message in messages}

    def _verdict(self, message: Traveller) -> Verdict:
        flow = self.flows.get(message.flow_id)
        if flow is None:
            flow = self.flows[message.flow_id] = _FlowOffers(self.ways.offers(message.flow_id))
        is_its_own = (
            not flow.are_alike
            or message.sender_name
            or message.id in self.been
            or message.to_hash in self.refused_channels
            or self.now + flow.slowest > message.expires_at
        )
        if is_its_own:
            return self._judged(message, flow)
        if flow.verdict is None:
            flow.verdict = self._judged(message, flow)
        return flow.verdict

    def _judged(self, message: Traveller, flow: _FlowOffers) -> Verdict:
        been = self.been.get(message.id, NOWHERE)
        wanted = Wanted(
            to=message.to,
            lane=message.lane,
            channels=flow.channels,
            pools=flow.pools,
            size=measure(message.text) if flow.counts else _ANY_SIZE,
            expires_at=message.expires_at,
            sender_name=message.sender_name,
            tried=been.out,
            used=been.used,
            max_routes=message.max_routes,
            refused_channels=been.channels | self.refused_channels.get(message.to_hash, frozenset()),
        )
        verdict = judge(flow.offers, wanted, now=self.now, rng=self.rng)
        is_shut_out = all(offer.spec.pool for offer in verdict.eligible)  # a pool may have no server to spare
        if (
            not is_shut_out
            or message.lane is not Lane.OTP
            or RefusalReason.BREAKER_OPEN not in verdict.refused.values()
        ):
            return verdict
        with_probes = judge(map(self._as_last_way, flow.offers), wanted, now=self.now, rng=self.rng)
        probes = tuple(offer for offer in with_probes.eligible if offer.spec.name in verdict.refused)
        return replace(verdict, eligible=(*verdict.eligible, *probes))

    def _as_last_way(self, offer: Offer) -> Offer:
        """An otp without any other way may probe a route whose breaker is open, as far as there are tickets."""
        tickets = self.ways.tickets.get(offer.spec.name)
        if tickets is None or not tickets.ids:
            return offer
        return replace(offer, standing=replace(offer.standing, breaker_open=False))


class _FlowOffers:
    """A flow's routes, and what is the same for all its messages."""

    __slots__ = ("are_alike", "channels", "counts", "offers", "pools", "slowest", "verdict")

    def __init__(self, offers: Sequence[Offer]) -> None:
        self.offers = offers
        self.channels = tuple(dict.fromkeys(Channel(offer.spec.channel) for offer in offers))
        self.pools = tuple(offer.spec.pool for offer in offers if offer.spec.pool)
        self.slowest = max((offer.terms.delivery for offer in offers), default=timedelta())
        self.counts = any(offer.terms.encodings or offer.terms.max_parts for offer in offers)
        self.are_alike = _are_alike(offers)
        self.verdict: Verdict | None = None


def _are_alike(offers: Sequence[Offer]) -> bool:
    """Whether these routes carry any message, and there is one order of them."""
    outside = [(offer.spec.channel, offer.spec.priority) for offer in offers if not offer.spec.pool]
    terms = [offer.terms for offer in offers]
    are_free = not any(each.prefixes or each.encodings or each.max_parts or each.hours for each in terms)
    return are_free and len(set(outside)) == len(outside)


#: Of a text that no route asks about.
_ANY_SIZE = Measure(Encoding.GSM7, 1)
_FREE = Terms(delivery=timedelta())
_FINE = Standing()


def _stages_of(
    verdicts: Mapping[int, Verdict], been: Mapping[int, Tried], ways: Ways
) -> dict[int, list[tuple[RouteSpec, ...]]]:
    """By message. Those that share a verdict share its stages."""
    shared: dict[int, list[tuple[RouteSpec, ...]]] = {}
    stages = {}
    for message_id, verdict in verdicts.items():
        if message_id in been:
            stages[message_id] = _stages(verdict, been[message_id], ways)
            continue
        if id(verdict) not in shared:
            shared[id(verdict)] = _stages(verdict, NOWHERE, ways)
        stages[message_id] = shared[id(verdict)]
    return stages


def _stages(verdict: Verdict, been: Tried, ways: Ways) -> list[tuple[RouteSpec, ...]]:
    """The routes in order, those that failed of late at the end, neighbouring pools together.

    None where the first one is another dispatcher's: the message is left to it.
    """
    specs = [offer.spec for offer in verdict.eligible]
    specs.sort(key=lambda spec: (spec.name in verdict.refused, spec.name in been.last))
    if specs and specs[0].name in ways.elsewhere:
        return []
    return [tuple(group) for _, group in groupby(specs, key=lambda spec: spec.kind is RouteKind.IMESSAGE_POOL)]


@dataclass(frozen=True, slots=True)
class _Wish:
    """A message, the routes that it asks for now, pools or others, and those that it asked for before in vain."""

    message: Traveller
    routes: tuple[RouteSpec, ...]
    before: tuple[RouteSpec, ...] = ()

    @property
    def of_pools(self) -> bool:
        return self.routes[0].kind is RouteKind.IMESSAGE_POOL


@dataclass(slots=True)
class _Choice:
    """Ways that are chosen, and the room that is left."""

    been: Mapping[int, Tried]  # by message
    room: Mapping[str, Mapping[Lane, int]]
    now: datetime
    taken: Counter[str] = field(default_factory=Counter)  # by route
    made: dict[int, Way] = field(default_factory=dict)
    free_at: dict[tuple[str, ...], datetime | None] = field(default_factory=dict)  # by pools
    patient: set[int] = field(default_factory=set)  # ids of messages that wait for their pools

    def _left(self, spec: RouteSpec, lane: Lane) -> int:
        return self.room.get(spec.name, {}).get(lane, 0) - self.taken[spec.name]

    def _make(self, message_id: int, way: Way) -> None:
        self.taken[way.route.name] += 1
        self.made[message_id] = way

    def by_routes(self, wishes: Iterable[_Wish]) -> None:
        """Give each the first of its routes that has room."""
        for wish in wishes:
            if self._waits_for_its_pools(wish):
                continue
            routes = (spec for spec in wish.routes if self._left(spec, wish.message.lane) > 0)
            if (route := next(routes, None)) is not None:
                self._make(wish.message.id, Way(route))

    def _waits_for_its_pools(self, wish: _Wish) -> bool:
        """Whether it is an otp, and a server will be free by the time that its first attempt is due.

        Where servers are free now, it is something else that keeps it: it goes on.
        """
        message = wish.message
        if message.id in self.patient:
            return True
        pools = tuple(spec.pool for spec in wish.before if spec.pool)
        if not pools or message.lane is not Lane.OTP or message.attempts_made or message.first_attempt_by is None:
            return False
        if pools not in self.free_at:
            self.free_at[pools] = selection.next_free_at(pools, now=self.now)
        free_at = self.free_at[pools]
        if free_at is None or not self.now < free_at <= message.first_attempt_by:
            return False
        self.patient.add(message.id)
        return True

    def by_pools(self, wishes: Sequence[_Wish], lane: Lane, now: datetime, rng: random.Random) -> None:
        """Give each, all of one lane, a server of its pools, as far as there are any."""
        left = {spec.pool: self._left(spec, lane) for wish in wishes for spec in wish.routes}
        specs = {spec.pool: spec for wish in wishes for spec in wish.routes if left[spec.pool] > 0}
        requests = [request for wish in wishes if (request := self._request(wish, specs)).pools]
        reserved = selection.reserve(requests, now=now, rng=rng, most=left)
        for wish in wishes:
            if server := reserved.get(wish.message.id):
                self._make(wish.message.id, Way(specs[server.region], server))

    def _request(self, wish: _Wish, specs: Mapping[str, RouteSpec]) -> selection.SendRequest:
        been = self.been.get(wish.message.id, NOWHERE)
        return selection.SendRequest(
            key=wish.message.id,
            pools=tuple(spec.pool for spec in wish.routes if spec.pool in specs),
            recipient_hash=wish.message.to_hash,
            recipient=wish.message.to,
            is_otp=wish.message.lane is Lane.OTP,
            excluded_servers=been.servers,
            excluded_hosts=been.hosts,
        )


def _been(messages: Iterable[Traveller]) -> tuple[Mapping[int, Tried], Mapping[int, ErrorClass | None]]:
    """By message: what its earlier attempts say, and what came of the newest."""
    again = [message.id for message in messages if message.attempts_made]
    if not again:
        return {}, {}
    past: dict[int, list[Past]] = {message_id: [] for message_id in again}
    columns = ("message_id", "route", "server_id", "server__host_id", "error_class", "error_code", "state")
    attempts = Attempt.objects.filter(message_id__in=again).order_by("message_id", "number")
    for message_id, route, server, host, error, code, state in attempts.values_list(*columns):
        past[message_id].append(
            Past(
                route=route,
                channel=Channel(route.partition(":")[0]),
                server_id=server,
                host_id=host,
                error_class=ErrorClass(error) if error else None,
                error_code=code,
                is_alive=state in ALIVE,
            )
        )
    last = {message_id: last_error(attempts) for message_id, attempts in past.items() if attempts}
    return {message_id: tried(attempts) for message_id, attempts in past.items()}, last
