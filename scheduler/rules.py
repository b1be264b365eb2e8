"""The planner: which flows are claimed from, and how much. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from otp_service.messages.rules import Lane

LANE_ORDER: tuple[Lane, ...] = (Lane.OTP, Lane.TRANSACTIONAL, Lane.PROMO)


#: Share of a pool's free servers that promo leaves for others.
PROMO_LEAVES = 0.3


@dataclass(frozen=True, slots=True)
class FlowView:
    """A flow with something to claim: `ready` rows wait in it (counted up to the room that there is)."""

    id: int
    lane: Lane
    pools: tuple[str, ...]
    ready: int


def plan(flows: Sequence[FlowView], *, room: int, free_by_pool: Mapping[str, int]) -> list[tuple[int, int]]:
    """How many messages to claim from which flow: `[(flow id, n)]`, n > 0, together at most `room`.

    Lanes in order; inside a lane one message a flow in turn, so that a large flow does not starve a small
    one. Nothing is planned beyond the servers that are free, each counted for one message: what cannot be
    sent is not claimed only to be put back.
    """
    free = dict(free_by_pool)
    planned: dict[int, int] = {}
    for lane in LANE_ORDER:
        if lane is Lane.PROMO:
            free = {pool: count - int(count * PROMO_LEAVES) for pool, count in free.items()}
        room -= _share_out([flow for flow in flows if flow.lane is lane], room, free, planned)
    return list(planned.items())


def _share_out(flows: Sequence[FlowView], room: int, free: dict[str, int], planned: dict[int, int]) -> int:
    """Give one message a flow in turn until room, servers or messages end; returns how many were given."""
    given = 0
    turn = list(flows)
    while turn and given < room:
        turn = [flow for flow in turn if planned.get(flow.id, 0) < flow.ready and _pool(flow, free)]
        for flow in turn:
            pool = _pool(flow, free)
            if given == room or pool is None:
                break
            free[pool] -= 1
            given += 1
            planned[flow.id] = planned.get(flow.id, 0) + 1
    return given


def _pool(flow: FlowView, free: Mapping[str, int]) -> str | None:
    return next((pool for pool in flow.pools if free.get(pool, 0) > 0), None)
