"""The planner: tables, and what no plan may break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otp_service.messages.rules import Channel, Lane
from otp_service.routes.bulkheads import Bulkheads, Pools
from otp_service.routes.route_rules import RouteKind, RouteSpec
from scheduler.rules import LANE_ORDER, FlowView, Planned, RouteView, SlotSizes, Turns, plan, rooms

ROOMY = SlotSizes(floor=10, shared=100, reserve=30, promo_floor=7)


def otp(number: int, routes: str = "a") -> FlowView:
    return FlowView(number, Lane.OTP, number, 1, tuple(routes))


def transactional(number: int, routes: str = "a") -> FlowView:
    return FlowView(number, Lane.TRANSACTIONAL, number, 1, tuple(routes))


def promo(number: int, routes: str = "a", client: int | None = None, weight: int = 1) -> FlowView:
    return FlowView(number, Lane.PROMO, number if client is None else client, weight, tuple(routes))


def view(routes: Mapping[str, int | Mapping[Lane, int]]) -> dict[str, RouteView]:
    return {
        name: RouteView(name, dict.fromkeys(Lane, room) if isinstance(room, int) else room)
        for name, room in routes.items()
    }


def planned(
    flows: Sequence[FlowView],
    routes: Mapping[str, int | Mapping[Lane, int]],
    *,
    most: int = 1000,
    in_flight: Mapping[Lane, int] | None = None,
) -> Planned:
    return plan(flows, sizes=ROOMY, in_flight=in_flight or {}, most=most, routes=view(routes), turns=Turns())


@pytest.mark.parametrize(
    ("flows", "routes", "most", "expected"),
    [
        pytest.param([], {"a": 5}, 9, [], id="nothing to do"),
        pytest.param([otp(1)], {"a": 5}, 0, [], id="nothing is wanted"),
        pytest.param([otp(1)], {"a": 5}, 3, [(1, 3)], id="no more than is wanted"),
        pytest.param([otp(1)], {"a": 3}, 9, [(1, 3)], id="no more than the route carries"),
        pytest.param([promo(1)], {"a": 0}, 9, [], id="its only route has no room"),
        pytest.param([promo(1, "ba"), promo(2, "b")], {"a": 9, "b": 0}, 9, [(1, 9)], id="its next route has none"),
        pytest.param([otp(1), otp(2, "b")], {"a": 0, "b": 2}, 9, [(2, 2)], id="another flow's route has some"),
        pytest.param([otp(1, "x")], {"a": 9}, 9, [], id="a route that nobody knows"),
        pytest.param([otp(1, "")], {"a": 9}, 9, [], id="no possible route"),
        pytest.param([promo(1)], {"a": {Lane.OTP: 9}}, 9, [], id="a route that carries other lanes only"),
        pytest.param([promo(1, "ab")], {"a": 1, "b": 2}, 9, [(1, 3)], id="the next route carries the rest"),
        pytest.param([promo(1, "ab"), promo(2, "b")], {"a": 2, "b": 2}, 9, [(1, 2), (2, 2)], id="first routes first"),
        pytest.param([promo(1, "b"), promo(2, "b")], {"b": 3}, 9, [(1, 2), (2, 1)], id="a scarce route is shared"),
        pytest.param([promo(3), transactional(2), otp(1)], {"a": 3}, 9, [(1, 3)], id="otp first, on a scarce route"),
        pytest.param(
            [promo(3, "c"), transactional(2, "b"), otp(1)],
            {"a": 1, "b": 2, "c": 3},
            9,
            [(1, 1), (2, 2), (3, 3)],
            id="lanes in order",
        ),
        pytest.param(
            [promo(3, "c"), transactional(2, "b"), otp(1)],
            {"a": 1, "b": 2, "c": 3},
            4,
            [(1, 1), (2, 2), (3, 1)],
            id="what is wanted goes to the first lanes",
        ),
        pytest.param(
            [promo(3), transactional(2)],
            {"a": {Lane.TRANSACTIONAL: 5, Lane.PROMO: 7}},
            99,
            [(2, 5), (3, 2)],
            id="what one lane takes on a route lowers the room of the next",
        ),
        pytest.param(
            [promo(3), transactional(2)],
            {"a": {Lane.TRANSACTIONAL: 5, Lane.PROMO: 4}},
            99,
            [(2, 5)],
            id="and leaves it nothing when it was less",
        ),
        pytest.param(
            [promo(1), *(promo(number) for number in range(2, 12))],
            {"a": 99},
            22,
            [(number, 2) for number in range(1, 12)],
            id="one huge campaign beside ten small ones",
        ),
        pytest.param(
            [*(promo(number, client=1) for number in range(1, 11)), promo(11, client=2)],
            {"a": 99},
            20,
            [(1, 1), (11, 10), *((number, 1) for number in range(2, 11))],
            id="a client with ten campaigns beside one with one",
        ),
        pytest.param(
            [promo(1, client=1, weight=3), promo(2, client=1), promo(3, client=2)],
            {"a": 99},
            16,
            [(1, 6), (3, 8), (2, 2)],
            id="a weight divides what its client gets",
        ),
    ],
)
def test_plan(
    flows: list[FlowView],
    routes: dict[str, int | Mapping[Lane, int]],
    most: int,
    expected: list[tuple[int, int]],
) -> None:
    assert planned(flows, routes, most=most).take == expected


SMS = RouteSpec("a", Channel.SMS, RouteKind.SIMULATED, in_flight_cap=40)
POOL = RouteSpec("a", Channel.IMESSAGE, RouteKind.IMESSAGE_POOL)


def calls(made: Bulkheads, count: int, *, until: float = 0.0) -> None:
    """So many that began at 0 and have not ended."""
    for call in range(count):
        made.started(call, "a", 0.0)
    made.look(until)


@pytest.mark.parametrize(
    ("spec", "before", "room", "expected"),
    [
        pytest.param(SMS, None, {}, {"otp": 40, "promo": 16}, id="nothing is the matter"),
        pytest.param(SMS, lambda made: calls(made, 40), {}, {"otp": 0, "promo": 0}, id="its cap is full"),
        pytest.param(SMS, lambda made: calls(made, 28), {}, {"otp": 12, "promo": 0}, id="the rest is kept for otp"),
        pytest.param(SMS, lambda made: calls(made, 9, until=60), {}, {"otp": 31, "promo": 0}, id="it hangs"),
        pytest.param(SMS, None, {"granted": 0}, {"otp": 0, "promo": 0}, id="its rate is used up"),
        pytest.param(POOL, None, {"pools": Pools({POOL.pool: 0})}, {"otp": 0, "promo": 0}, id="its pool is empty"),
        pytest.param(
            POOL,
            None,
            {"pools": Pools({POOL.pool: 5}, {POOL.pool: 10})},
            {"otp": 5, "promo": 2},
            id="its pool is small",
        ),
    ],
)
def test_a_route_is_planned_for_as_far_as_it_carries(
    spec: RouteSpec, before: Callable[[Bulkheads], None] | None, room: dict[str, Any], expected: dict[str, int]
) -> None:
    made = Bulkheads(slots=ROOMY.floor + ROOMY.shared)
    made.set_up({"a": spec}, dispatchers=1)
    if before is not None:
        before(made)
    found = {"a": made.rooms(spec, **{"at": 60.0, "granted": None, "pools": Pools(), **room})}
    for flow in (otp(1), promo(1)):
        take = [(1, expected[flow.lane])] if expected[flow.lane] else []
        assert planned([flow], found).take == take


ALL_LANES = [otp(1, "a"), transactional(2, "b"), promo(3, "c")]


@pytest.mark.parametrize(
    ("in_flight", "flows", "expected"),
    [
        pytest.param({}, [otp(1)], [(1, 110)], id="an otp wave takes every slot"),
        pytest.param({}, ALL_LANES, [(1, 110)], id="an otp wave leaves nothing to others"),
        pytest.param({}, ALL_LANES[1:], [(2, 63), (3, 7)], id="promo floor"),
        pytest.param({}, ALL_LANES[1:2], [(2, 63)], id="promo's floor is left to it when it has nothing yet"),
        pytest.param({}, ALL_LANES[2:], [(3, 70)], id="reserve"),
        pytest.param({Lane.PROMO: 70}, ALL_LANES[1:], [], id="the reserve is not for transactional either"),
        pytest.param({Lane.PROMO: 70}, ALL_LANES, [(1, 40)], id="otp takes its floor and the reserve"),
        pytest.param({Lane.OTP: 40, Lane.PROMO: 67}, ALL_LANES, [(1, 3)], id="otp before the last slots"),
        pytest.param({Lane.OTP: 40, Lane.PROMO: 67}, ALL_LANES[1:], [(2, 3)], id="a reserve in use by otp is no loss"),
        pytest.param({Lane.OTP: 110}, ALL_LANES, [], id="no slot"),
    ],
)
def test_lanes_share_slots(in_flight: dict[Lane, int], flows: list[FlowView], expected: list[tuple[int, int]]) -> None:
    assert planned(flows, {"a": 999, "b": 999, "c": 999}, in_flight=in_flight).take == expected


def test_what_otp_borrows_in_a_plan_counts_for_the_others() -> None:
    take = dict(planned(ALL_LANES, {"a": 60, "b": 999, "c": 999}).take)
    assert take == {1: 60, 2: 43, 3: 7}  # 10 on the floor, 50 borrowed: 100 - 50 are left


ROUTES = "abc"
_SIZES = st.builds(SlotSizes, *(st.integers(0, 12),) * 4)
_ROOM = st.fixed_dictionaries(dict.fromkeys(Lane, st.integers(0, 15)))
_VIEWS = st.fixed_dictionaries(dict.fromkeys(ROUTES, _ROOM))


def _flows(most_routes: int) -> st.SearchStrategy[list[FlowView]]:
    return st.lists(
        st.builds(
            FlowView,
            id=st.integers(1, 12),
            lane=st.sampled_from(Lane),
            client_id=st.integers(1, 3),
            weight=st.integers(1, 3),
            routes=st.lists(st.sampled_from(ROUTES), max_size=most_routes, unique=True).map(tuple),
        ),
        max_size=8,
        unique_by=lambda flow: flow.id,
    )


#: A step between two plans: flows, what routes carry, how many are wanted, and how many calls end before it, by lane.
_Step = tuple[list[FlowView], dict[str, dict[Lane, int]], int, dict[Lane, int]]


def _steps(most_routes: int) -> st.SearchStrategy[list[_Step]]:
    return st.lists(st.tuples(_flows(most_routes), _VIEWS, st.integers(0, 30), _ROOM), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)  # a busy machine is no fault of a plan
@given(sizes=_SIZES, steps=_steps(most_routes=3))
def test_no_plan_breaks_a_rule(sizes: SlotSizes, steps: list[_Step]) -> None:
    turns, in_flight = Turns(), Counter[Lane]()
    for flows, routes, most, ends in steps:
        in_flight -= Counter(ends)
        made = plan(flows, sizes=sizes, in_flight=in_flight, most=most, routes=view(routes), turns=turns)
        turns = made.turns
        take = dict(made.take)
        assert len(take) == len(made.take)
        assert all(count > 0 for count in take.values())
        assert sum(take.values()) <= most
        assert set(turns.left) == {flow.id for flow in flows}
        assert all(1 <= turns.left[flow.id] <= flow.weight for flow in flows)
        lanes = {flow.id: LANE_ORDER.index(flow.lane) for flow in flows}
        assert [lanes[flow_id] for flow_id in take] == sorted(lanes[flow_id] for flow_id in take)
        _check_routes(flows, routes, take)
        _check_slots(sizes, in_flight, flows, take)
        for flow in flows:
            in_flight[flow.lane] += take.get(flow.id, 0)


def _check_routes(flows: list[FlowView], routes: dict[str, dict[Lane, int]], take: dict[int, int]) -> None:
    """What flows take that have no other routes than these, these carry: for every choice of routes."""
    for names in (set(names) for size in range(len(ROUTES) + 1) for names in combinations(ROUTES, size)):
        bound = [flow for flow in flows if names.issuperset(flow.routes)]
        for lane in Lane:
            taken = sum(take.get(flow.id, 0) for flow in bound if flow.lane is lane)
            assert taken <= sum(routes[name][lane] for name in names)
        taken = sum(take.get(flow.id, 0) for flow in bound)
        assert taken <= sum(max(routes[name].values()) for name in names)


def _check_slots(sizes: SlotSizes, in_flight: Counter[Lane], flows: list[FlowView], take: dict[int, int]) -> None:
    """What a lane starts, it may start after the lanes before it."""
    busy = Counter(in_flight)
    for lane in LANE_ORDER:
        taken = sum(take.get(flow.id, 0) for flow in flows if flow.lane is lane)
        assert taken <= rooms(sizes, busy)[lane]
        busy[lane] += taken


@settings(max_examples=60, deadline=None)  # a busy machine is no fault of a plan
@given(sizes=_SIZES, steps=_steps(most_routes=1))
def test_a_lane_gets_all_that_it_may_have_before_the_next(sizes: SlotSizes, steps: list[_Step]) -> None:
    turns = Turns()
    for flows, routes, most, in_flight in steps:
        made = plan(flows, sizes=sizes, in_flight=in_flight, most=most, routes=view(routes), turns=turns)
        turns = made.turns
        busy, on_route, left = Counter(in_flight), Counter[str](), most
        for lane in LANE_ORDER:
            of_lane = [flow for flow in flows if flow.lane is lane]
            names = {name for flow in of_lane for name in flow.routes}
            carried = sum(max(0, routes[name][lane] - on_route[name]) for name in names)
            taken = sum(dict(made.take).get(flow.id, 0) for flow in of_lane)
            assert taken == min(left, rooms(sizes, busy)[lane], carried)
            busy[lane] += taken
            left -= taken
            on_route.update({name: dict(made.take).get(flow.id, 0) for flow in of_lane for name in flow.routes})
