"""Turns, over many plans: clients get the same, and their flows what their weights say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.messages.rules import Lane
from scheduler.rules import FlowView, RouteView, SlotSizes, Turns, plan

SIZES = SlotSizes(floor=0, shared=1000, reserve=0, promo_floor=0)


def flow(number: int, client: int = 1, weight: int = 1, routes: str = "a") -> FlowView:
    return FlowView(number, Lane.PROMO, client, weight, tuple(routes))


class Plans:
    """Plans one after the other, and what each flow got in all."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.got: Counter[int] = Counter()

    def next(self, flows: Sequence[FlowView], most: int, **room: int) -> dict[int, int]:
        """`room`: by route; without any, route "a" carries everything."""
        routes = {
            name: RouteView(name, dict.fromkeys(Lane, carried)) for name, carried in (room or {"a": 1000}).items()
        }
        made = plan(flows, sizes=SIZES, in_flight={}, most=most, routes=routes, turns=self.turns)
        self.turns = made.turns
        self.got.update(dict(made.take))
        return dict(made.take)


def spread(counts: Iterable[float]) -> float:
    counts = list(counts)
    return max(counts) - min(counts)


_MOSTS = st.lists(st.integers(0, 9), min_size=1, max_size=30)


@given(clients=st.lists(st.integers(1, 4), min_size=1, max_size=4), mosts=_MOSTS, carried=st.integers(1, 12))
def test_equal_flows_and_clients_differ_by_one_at_most(clients: list[int], mosts: list[int], carried: int) -> None:
    plans = Plans()
    flows = [flow(10 * client + number, client) for client, flows in enumerate(clients) for number in range(flows)]
    for most in mosts:
        plans.next(flows, most, a=carried)
    assert plans.got.total() == sum(min(most, carried) for most in mosts)
    got = [[plans.got[one.id] for one in flows if one.client_id == client] for client in range(len(clients))]
    assert all(spread(of_client) <= 1 for of_client in got)
    assert spread(sum(of_client) for of_client in got) <= 1


@given(weights=st.lists(st.integers(1, 5), min_size=1, max_size=5), mosts=_MOSTS)
def test_flows_of_a_client_differ_by_one_turn_at_most(weights: list[int], mosts: list[int]) -> None:
    plans = Plans()
    for most in mosts:
        plans.next([flow(number, weight=weight) for number, weight in enumerate(weights)], most)
    assert spread(plans.got[number] / weight for number, weight in enumerate(weights)) <= 1


@pytest.mark.parametrize("clients", [(1, 1, 1), (1, 2, 3)], ids=["flows of a client", "clients"])
@given(carried=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 6)), max_size=30))
def test_those_that_share_a_scarce_route_differ_by_one_at_most(
    clients: tuple[int, int, int], carried: list[tuple[int, int, int]]
) -> None:
    plans = Plans()
    flows = [
        flow(number, client, routes=route) for number, client, route in zip((1, 2, 3), clients, "aab", strict=True)
    ]
    for a, b, most in carried:
        plans.next(flows, most, a=a, b=b)
        assert abs(plans.got[1] - plans.got[2]) <= 1


@pytest.mark.parametrize("other_client", [1, 2])
def test_a_flow_without_a_route_gathers_no_credit(other_client: int) -> None:
    plans = Plans()
    flows = [flow(1, weight=2, routes="a"), flow(2, other_client, weight=2, routes="b")]
    for _ in range(50):
        assert plans.next(flows, 10, a=0, b=99) == {2: 10}
    assert plans.next(flows, 8, a=99, b=99) == {1: 4, 2: 4}


def test_a_flow_whose_route_was_full_is_next_when_it_is_not() -> None:
    plans = Plans()
    flows = [flow(1, 1), flow(2, 2), flow(3, 3, routes="b")]
    assert plans.next(flows, 9, a=1, b=1) == {1: 1, 3: 1}
    assert plans.next(flows, 1, a=1, b=1) == {2: 1}


@pytest.mark.parametrize("client", [1, 2])
def test_what_is_left_of_a_turn_is_had_in_the_next_plan(client: int) -> None:
    plans = Plans()
    flows = [flow(1, client, weight=3), flow(2, client, weight=3)]
    assert [plans.next(flows, 2) for _ in range(4)] == [{1: 2}, {1: 1, 2: 1}, {2: 2}, {1: 2}]


def test_a_weight_that_was_lowered_ends_the_turn_sooner() -> None:
    plans = Plans()
    assert plans.next([flow(1, weight=9), flow(2, weight=9)], 1) == {1: 1}
    assert plans.next([flow(1, weight=2), flow(2, weight=9)], 3) == {1: 2, 2: 1}


def test_more_flows_than_room_take_turns() -> None:
    plans = Plans()
    flows = [flow(number, client=number) for number in range(10)]
    assert [sorted(plans.next(flows, 4)) for _ in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 8, 9]]


def test_a_stream_of_new_flows_does_not_starve_an_old_one() -> None:
    plans = Plans()
    waiting = [flow(number, client=number) for number in range(1, 6)]
    for number in range(6, 60):
        served = plans.next([flow(1000, client=1000), *waiting], 1)
        waiting = [one for one in waiting if one.id not in served]
        waiting.insert(0, flow(number, client=number))
    assert plans.got[1000] >= 54 // 7


def test_flows_that_are_gone_are_forgotten() -> None:
    plans = Plans()
    for number in range(0, 100, 2):
        plans.next([flow(number), flow(number + 1, client=2)], 3)
    assert set(plans.turns.left) == {98, 99}
    plans.next([], 3)
    assert not plans.turns.left


@pytest.mark.parametrize("lane", [Lane.OTP, Lane.TRANSACTIONAL])
def test_a_client_has_its_turn_in_each_lane(lane: Lane) -> None:
    plans = Plans()
    flows = [FlowView(1, lane, 1, 1, ("b",)), flow(2, 1), flow(3, 2)]
    assert plans.next(flows, 2, a=9, b=1) == {1: 1, 2: 1}
    assert plans.next(flows, 2, a=9, b=1) == {1: 1, 3: 1}
