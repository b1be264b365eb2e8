"""The planner: which flows are claimed from, and how many messages each. Pure.

A slot is one call in flight. The planner does not know how many messages wait in a flow: one that gave fewer
than it was asked for is left out by the caller until its next scan.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from otp_service.messages.rules import Lane

LANE_ORDER: tuple[Lane, ...] = (Lane.OTP, Lane.TRANSACTIONAL, Lane.PROMO)


@dataclass(frozen=True, slots=True)
class SlotSizes:
    """How many calls may be in flight: `floor` of otp only, and `shared` of every lane.

    Of the shared slots `reserve` are left for otp to borrow, and of the others transactional leaves
    `promo_floor` to promo.
    """

    floor: int
    shared: int
    reserve: int
    promo_floor: int


@dataclass(frozen=True, slots=True)
class FlowView:
    """A flow with something to claim. `routes` are possible ones in order of preference.

    `weight`, 1 or more, is its part of what its client gets; clients of a lane get the same.
    """

    id: int
    lane: Lane
    client_id: int
    weight: int
    routes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RouteView:
    """A route and how many more attempts each lane may start on it: caps, breaker, tokens and pool together.

    One attempt of any lane lowers the room of all.
    """

    name: str
    room: Mapping[Lane, int]


@dataclass(frozen=True, slots=True)
class Turns:
    """Whose turn it is, from one plan to the next: of the flows that were planned for, and of no others.

    Flow ids, next first, the flows of a client together, each with what is left of its turn.
    """

    left: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Planned:
    """`take`: (flow id, n), n > 0, lanes in order. `turns`: for the next plan of the same flows.

    `by_route`: how many of them each route is to carry.
    """

    take: list[tuple[int, int]]
    turns: Turns
    by_route: Mapping[str, int] = field(default_factory=dict)


def rooms(sizes: SlotSizes, in_flight: Mapping[Lane, int]) -> dict[Lane, int]:
    """How many calls of each lane may start now, if it alone started any.

    otp fills its floor, then borrows shared slots, the reserve too. The others may start while the free shared
    slots keep what otp has not borrowed of the reserve: transactional + promo <= shared - max(reserve, borrowed).
    Transactional keeps free also what promo does not use of its floor.
    """
    otp, transactional, promo = (in_flight.get(lane, 0) for lane in LANE_ORDER)
    on_floor = min(sizes.floor, otp)
    borrowed = otp - on_floor
    unreserved = sizes.shared - max(sizes.reserve, borrowed) - transactional - promo
    return {
        Lane.OTP: sizes.floor - on_floor + max(0, sizes.shared - borrowed - transactional - promo),
        Lane.TRANSACTIONAL: max(0, unreserved - max(0, sizes.promo_floor - promo)),
        Lane.PROMO: max(0, unreserved),
    }


def plan(
    flows: Sequence[FlowView],
    *,
    sizes: SlotSizes,
    in_flight: Mapping[Lane, int],
    most: int,
    routes: Mapping[str, RouteView],
    turns: Turns,
) -> Planned:
    """How many messages to claim from which flow, together at most `most`.

    Lanes in order: what one takes counts for those after it. Within a lane deficit round robin, between clients
    and then between the flows of a client, so that neither many campaigns nor a huge one starve a small one.
    Nothing is planned beyond what a flow's routes can carry: nothing is claimed only to be put back. A flow whose
    routes are full keeps its place and what is left of its turn, and gathers nothing beyond it.
    """
    draft = _Draft(flows, routes, turns)
    busy = Counter(in_flight)
    for lane in LANE_ORDER:
        given = draft.share_out(lane, min(rooms(sizes, busy)[lane], most))
        busy[lane] += given
        most -= given
    return Planned(list(draft.take.items()), draft.turns(), draft.by_route)


class _Client:
    """The flows of one client in one lane: those that may be served, next first, and those without a route."""

    __slots__ = ("may_go", "stuck")

    def __init__(self) -> None:
        self.may_go: list[FlowView] = []  # a deque of its own for each of many clients costs more than pop(0)
        self.stuck: list[FlowView] = []


class _Draft:
    """A plan in the making."""

    def __init__(self, flows: Sequence[FlowView], routes: Mapping[str, RouteView], turns: Turns) -> None:
        self.take: dict[int, int] = {}
        self._routes = routes
        self.by_route: Counter[str] = Counter()
        self._left: dict[int, int] = {}
        self._clients: dict[Lane, dict[int, _Client]] = {lane: {} for lane in LANE_ORDER}
        for flow in _in_turn(flows, turns):
            self._left[flow.id] = min(turns.left.get(flow.id, flow.weight), flow.weight)
            clients = self._clients[flow.lane]
            if flow.client_id not in clients:
                clients[flow.client_id] = _Client()
            clients[flow.client_id].may_go.append(flow)

    def share_out(self, lane: Lane, room: int) -> int:
        """Give one message to a client in turn, until the room or the routes end; returns how many were given."""
        carried = {name: route.room.get(lane, 0) - self.by_route[name] for name, route in self._routes.items()}
        may_go = deque(self._clients[lane].items())
        stuck: list[tuple[int, _Client]] = []
        given = 0
        while may_go and given < room:
            client = may_go.popleft()
            if self._give_one(client[1], carried):
                may_go.append(client)
                given += 1
            else:
                stuck.append(client)
        self._clients[lane] = dict([*stuck, *may_go])
        return given

    def _give_one(self, client: _Client, carried: dict[str, int]) -> bool:
        """Give one message to the client's next flow that has a route; False: it has none."""
        while client.may_go:
            flow = client.may_go[0]
            for route in flow.routes:
                if carried.get(route, 0) > 0:
                    carried[route] -= 1
                    self.by_route[route] += 1
                    self._count(client, flow)
                    return True
            client.stuck.append(client.may_go.pop(0))
        return False

    def _count(self, client: _Client, flow: FlowView) -> None:
        self.take[flow.id] = self.take.get(flow.id, 0) + 1
        self._left[flow.id] -= 1
        if self._left[flow.id] <= 0:
            self._left[flow.id] = flow.weight
            client.may_go.append(client.may_go.pop(0))

    def turns(self) -> Turns:
        """Those whose routes were full come first: it was their turn."""
        return Turns(
            {
                flow.id: self._left[flow.id]
                for clients in self._clients.values()
                for client in clients.values()
                for flow in (*client.stuck, *client.may_go)
            }
        )


def _in_turn(flows: Sequence[FlowView], turns: Turns) -> list[FlowView]:
    """The flows in the order of their turns; new ones go to the back, or a stream of them would starve the rest."""
    by_id = {flow.id: flow for flow in flows}
    known = [by_id[flow_id] for flow_id in turns.left if flow_id in by_id]
    return known + [flow for flow in flows if flow.id not in turns.left]
