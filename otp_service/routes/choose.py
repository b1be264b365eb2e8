"""Which way each claimed message goes: its route, and the server of a pool."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Protocol

from otp_service.core.outcomes import ErrorClass
from otp_service.messages.models import Attempt
from otp_service.messages.rules import Lane
from otp_service.routes import rules
from otp_service.routes.route_rules import RouteKind, RouteSpec
from servers import selection
from servers.selection import Reservation


class Traveller(Protocol):
    """What a message tells of itself."""

    @property
    def id(self) -> int: ...
    @property
    def flow_id(self) -> int: ...
    @property
    def to(self) -> str: ...
    @property
    def to_hash(self) -> bytes: ...
    @property
    def lane(self) -> Lane: ...
    @property
    def attempts_made(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Ways:
    """By flow its possible routes, the preferred one first; by route, how many attempts of each lane may start now.

    One attempt of any lane lowers the room of all.
    """

    of_flow: Mapping[int, tuple[RouteSpec, ...]]
    room: Mapping[str, Mapping[Lane, int]]

    def pools(self, flow_id: int) -> tuple[str, ...]:
        """The pools among a flow's routes."""
        return tuple(spec.pool for spec in self.of_flow[flow_id] if spec.kind is RouteKind.IMESSAGE_POOL)


@dataclass(frozen=True, slots=True)
class Way:
    """The route of one attempt; of a pool also the server, which is reserved."""

    route: RouteSpec
    server: Reservation | None = None


@dataclass(frozen=True, slots=True)
class _Tried:
    """Where a message has been: what is not tried again, and hosts that others are preferred to."""

    servers: set[int] = field(default_factory=set)
    hosts: set[int] = field(default_factory=set)
    routes: set[str] = field(default_factory=set)


_NOWHERE = _Tried()  # of nearly every message; never added to


def choose(messages: Sequence[Traveller], ways: Ways, *, now: datetime, rng: random.Random) -> dict[int, Way]:
    """A way for each message, by its id; what has none now is missing. Messages choose in the order given.

    Runs in the caller's transaction, as reserved servers are held to its end. Neighbouring pools of a message's
    routes are one choice, made by `servers.selection`; of other routes it takes the first that has room.
    """
    choice = _Choice(_tried(messages), ways.room)
    stages = {flow: _stages(ways.of_flow[flow]) for flow in {message.flow_id for message in messages}}
    for stage in range(max(map(len, stages.values()), default=0)):
        left = [
            _Wish(message, stages[message.flow_id][stage])
            for message in messages
            if message.id not in choice.made and stage < len(stages[message.flow_id])
        ]
        for lane in Lane:  # in the order of their precedence
            choice.by_pools([w for w in left if w.of_pools and w.message.lane is lane], lane, now, rng)
        choice.by_routes([wish for wish in left if not wish.of_pools])
    return choice.made


def _stages(routes: Iterable[RouteSpec]) -> list[tuple[RouteSpec, ...]]:
    """The routes in order, neighbouring pools together."""
    return [tuple(group) for _, group in groupby(routes, key=lambda spec: spec.kind is RouteKind.IMESSAGE_POOL)]


@dataclass(frozen=True, slots=True)
class _Wish:
    """A message, and the routes that it asks for now: pools, or others."""

    message: Traveller
    routes: tuple[RouteSpec, ...]

    @property
    def of_pools(self) -> bool:
        return self.routes[0].kind is RouteKind.IMESSAGE_POOL


@dataclass(slots=True)
class _Choice:
    """Ways that are chosen, and the room that is left."""

    tried: Mapping[int, _Tried]
    room: Mapping[str, Mapping[Lane, int]]
    taken: Counter[str] = field(default_factory=Counter)  # by route
    made: dict[int, Way] = field(default_factory=dict)

    def _left(self, spec: RouteSpec, lane: Lane) -> int:
        return self.room.get(spec.name, {}).get(lane, 0) - self.taken[spec.name]

    def _make(self, message_id: int, way: Way) -> None:
        self.taken[way.route.name] += 1
        self.made[message_id] = way

    def by_routes(self, wishes: Iterable[_Wish]) -> None:
        """Give each the first of its routes that has room and may help."""
        for wish in wishes:
            tried = self.tried.get(wish.message.id, _NOWHERE).routes
            lane = wish.message.lane
            routes = (spec for spec in wish.routes if self._left(spec, lane) > 0 and spec.name not in tried)
            if (route := next(routes, None)) is not None:
                self._make(wish.message.id, Way(route))

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
        tried = self.tried.get(wish.message.id, _NOWHERE)
        return selection.SendRequest(
            key=wish.message.id,
            pools=tuple(spec.pool for spec in wish.routes if spec.pool in specs),
            recipient_hash=wish.message.to_hash,
            recipient=wish.message.to,
            is_otp=wish.message.lane is Lane.OTP,
            excluded_servers=frozenset(tried.servers),
            excluded_hosts=frozenset(tried.hosts),
        )


def _tried(messages: Iterable[Traveller]) -> Mapping[int, _Tried]:
    """By message: what its earlier attempts say."""
    again = [message.id for message in messages if message.attempts_made]
    tried: dict[int, _Tried] = {}
    if not again:
        return tried
    columns = ("message_id", "route", "server_id", "server__host_id", "error_class")
    for message_id, route, server_id, host_id, error in Attempt.objects.filter(message_id__in=again).values_list(
        *columns
    ):
        there = tried.setdefault(message_id, _Tried())
        again_there = rules.same_server_may_help(ErrorClass(error) if error else None)
        if server_id is not None:
            there.hosts.add(host_id)
        if again_there:
            continue
        if server_id is None:
            there.routes.add(route)
        else:
            there.servers.add(server_id)
    return tried
