"""The planner: tables, and what no plan may break."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.messages.rules import Lane
from scheduler.rules import FlowView, plan


def flow(number: int, lane: Lane = Lane.TRANSACTIONAL, ready: int = 100, pools: tuple[str, ...] = ("es",)) -> FlowView:
    return FlowView(number, lane, pools, ready)


@pytest.mark.parametrize(
    ("flows", "room", "free", "expected"),
    [
        pytest.param([], 10, {"es": 5}, [], id="nothing to do"),
        pytest.param([flow(1)], 10, {}, [], id="an empty pool is not claimed for"),
        pytest.param([flow(1)], 10, {"es": 3}, [(1, 3)], id="no more than the pool can carry"),
        pytest.param([flow(1)], 2, {"es": 3}, [(1, 2)], id="no more than there are slots"),
        pytest.param([flow(1, ready=1)], 10, {"es": 3}, [(1, 1)], id="no more than waits"),
        pytest.param([flow(1), flow(2, ready=1)], 4, {"es": 9}, [(1, 3), (2, 1)], id="a small flow is not starved"),
        pytest.param([flow(1, Lane.PROMO), flow(2, Lane.OTP, 3)], 9, {"es": 3}, [(2, 3)], id="otp before promo"),
        pytest.param([flow(1, Lane.PROMO)], 99, {"es": 10}, [(1, 7)], id="promo leaves a share of the pool"),
        pytest.param([flow(1, Lane.PROMO)], 99, {"es": 1}, [(1, 1)], id="a pool of one still serves promo"),
        pytest.param([flow(1, pools=("es", "zp"))], 9, {"es": 1, "zp": 2}, [(1, 3)], id="the next pool serves too"),
        pytest.param(
            [flow(1, pools=("es", "zp")), flow(2, pools=("zp",))],
            9,
            {"es": 0, "zp": 2},
            [(1, 1), (2, 1)],
            id="two flows share what is left of a pool",
        ),
    ],
)
def test_plan(flows: list[FlowView], room: int, free: dict[str, int], expected: list[tuple[int, int]]) -> None:
    assert plan(flows, room=room, free_by_pool=free) == expected


_FLOWS = st.lists(
    st.builds(
        FlowView,
        id=st.integers(1, 20),
        lane=st.sampled_from(Lane),
        pools=st.lists(st.sampled_from(["es", "zp", "pt"]), min_size=1, unique=True).map(tuple),
        ready=st.integers(0, 30),
    ),
    max_size=8,
    unique_by=lambda view: view.id,
)


@given(
    flows=_FLOWS, room=st.integers(0, 40), free=st.dictionaries(st.sampled_from(["es", "zp", "pt"]), st.integers(0, 20))
)
def test_a_plan_stays_within_slots_servers_and_messages(flows: list[FlowView], room: int, free: dict[str, int]) -> None:
    planned = dict(plan(flows, room=room, free_by_pool=free))
    assert sum(planned.values()) <= min(room, sum(free.values()))
    waiting = {view.id: view.ready for view in flows}
    assert all(0 < count <= waiting[flow_id] for flow_id, count in planned.items())


@given(flows=_FLOWS, room=st.integers(1, 40), free=st.dictionaries(st.just("es"), st.integers(0, 20)))
def test_nothing_else_is_planned_while_an_otp_that_could_go_is_left(
    flows: list[FlowView], room: int, free: dict[str, int]
) -> None:
    same_pool = [FlowView(view.id, view.lane, ("es",), view.ready) for view in flows]
    planned = dict(plan(same_pool, room=room, free_by_pool=free))
    otp_left = any(view.lane is Lane.OTP and view.ready > planned.get(view.id, 0) for view in same_pool)
    others = sum(planned.get(view.id, 0) for view in same_pool if view.lane is not Lane.OTP)
    assert not (otp_left and others)
