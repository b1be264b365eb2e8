"""Flows that have something to claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from otp_service.messages import queue
from otp_service.messages.models import Flow, Message, Ready
from otp_service.messages.rules import Lane


@dataclass(frozen=True, slots=True)
class ReadyFlow:
    """A flow that is on, and in which at least one message may be claimed."""

    id: int
    lane: Lane
    client_id: int
    weight: int
    channels: tuple[str, ...]
    pools: tuple[str, ...]


_COLUMNS = "f.id, f.lane, f.client_id, f.weight, f.channels, f.pools"

_PRESENT = f"""
{queue.FLOWS_PRESENT}
SELECT {_COLUMNS} FROM present p JOIN {Flow._meta.db_table} f ON f.id = p.flow_id
WHERE f.state = 'on' AND f.lane = ANY(%(lanes)s)
ORDER BY f.id
"""  # noqa: S608 - the tables' own names

# The other way round: campaigns make many flows of the other lanes, which cost a look for otp nothing.
# A subquery with LIMIT, as a semi-join might begin with the whole queue.
_PRESENT_OTP = f"""
SELECT {_COLUMNS} FROM {Flow._meta.db_table} f
WHERE f.lane = '{Lane.OTP.value}' AND f.state = 'on'
  AND (SELECT r.message_id FROM {Ready._meta.db_table} r WHERE r.flow_id = f.id LIMIT 1) IS NOT NULL
ORDER BY f.id
"""  # noqa: S608 - the tables' own names


#: Messages of a lane are counted up to here: so many tell as much as all of them.
COUNTED = 20_000

_WAITING = f"""
SELECT
  (SELECT count(*) FROM (
    SELECT 1 FROM unnest(%(flows)s::bigint[]) AS flow (id) CROSS JOIN LATERAL (
      SELECT 1 FROM {Ready._meta.db_table} r WHERE r.flow_id = flow.id ORDER BY r.due_at LIMIT %(most)s
    ) each LIMIT %(most)s
  ) counted),
  (SELECT min(m.created_at) FROM {Message._meta.db_table} m WHERE m.id = ANY(ARRAY(
    SELECT first.message_id FROM unnest(%(flows)s::bigint[]) AS flow (id) CROSS JOIN LATERAL (
      SELECT r.message_id FROM {Ready._meta.db_table} r WHERE r.flow_id = flow.id ORDER BY r.due_at LIMIT 1
    ) first
  )))
"""  # noqa: S608 - the tables' own names


@dataclass(frozen=True, slots=True)
class Queue:
    """One lane's: messages that may be claimed, counted up to COUNTED, and when the oldest of them was accepted.

    The oldest of those that are next in their flows, which go by deadline: by age where lifetimes are alike.
    """

    count: int
    oldest: datetime | None


def waiting() -> dict[Lane, Queue]:
    """How much waits, by lane."""
    by_lane: dict[Lane, list[int]] = {lane: [] for lane in Lane}
    for flow in present(list(Lane)):
        by_lane[flow.lane].append(flow.id)
    found = {}
    with connection.cursor() as cursor:
        for lane, flow_ids in by_lane.items():
            cursor.execute(_WAITING, {"flows": flow_ids, "most": COUNTED})
            found[lane] = Queue(*cursor.fetchone())
    return found


def present(lanes: Sequence[Lane]) -> list[ReadyFlow]:
    """Flows of these lanes that have something to claim, by ascending id."""
    with connection.cursor() as cursor:
        if tuple(lanes) == (Lane.OTP,):
            cursor.execute(_PRESENT_OTP)
        else:
            cursor.execute(_PRESENT, {"lanes": [lane.value for lane in lanes]})
        return [
            ReadyFlow(flow_id, Lane(lane), client_id, weight, tuple(channels), tuple(pools))
            for flow_id, lane, client_id, weight, channels, pools in cursor.fetchall()
        ]
