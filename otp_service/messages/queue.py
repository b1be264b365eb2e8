"""The queue: `ready` rows, and the wake-up that tells the dispatcher of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction

from otp_service.messages.models import Ready

#: NOTIFY channel for otp. Other lanes are found by the dispatcher's poll: one commit that notifies waits for another.
READY_CHANNEL = "otp_ready"

#: The flows that have something in the queue, as `present (flow_id)`, with which a statement may begin. It jumps
#: along the index from flow to flow: the cost follows their number, not that of messages. Its last row is null.
FLOWS_PRESENT = f"""
WITH RECURSIVE present AS (
  (SELECT flow_id FROM {Ready._meta.db_table} ORDER BY flow_id LIMIT 1)
  UNION ALL
  SELECT (SELECT r.flow_id FROM {Ready._meta.db_table} r WHERE r.flow_id > p.flow_id ORDER BY r.flow_id LIMIT 1)
  FROM present p WHERE p.flow_id IS NOT NULL
)"""  # noqa: S608 - the table's own name


_FLOW_LOCKS = 0x666C6F77  # "flow": the class of these advisory locks, apart from everybody else's

#: Condition of a claim on a flow `f`: nobody is changing its state, or waits to. Row locks alone do not queue: claims
#: that overlap, each sharing the row, would keep out for ever whoever wants to pause it.
FLOW_IS_LEFT_ALONE = f"pg_try_advisory_xact_lock_shared({_FLOW_LOCKS}, (f.id & 2147483647)::int)"


def wait_for_claims(flow_ids: Iterable[int]) -> None:
    """Until the running claims of these flows are committed; new ones pass them over until this transaction ends.

    By ascending id, before any row of them is locked.
    """
    with connection.cursor() as cursor:
        for key in sorted({flow_id & 0x7FFFFFFF for flow_id in flow_ids}):
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_FLOW_LOCKS, key])


@dataclass(frozen=True, slots=True)
class ReadyRow:
    """A message that may be claimed now. `due_at` is its deadline: the earliest of its flow goes first."""

    message_id: int
    flow_id: int
    due_at: datetime


def add(rows: Sequence[ReadyRow]) -> None:
    """Put messages into the queue. Adding one that is there already changes nothing."""
    if not rows:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {Ready._meta.db_table} (message_id, flow_id, due_at) "  # noqa: S608 - the table's own name
            "SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[]) ON CONFLICT DO NOTHING",
            [[row.message_id for row in rows], [row.flow_id for row in rows], [row.due_at for row in rows]],
        )


def remove(message_ids: Sequence[int]) -> None:
    """Take messages out of the queue; the caller holds the lock on their message rows."""
    if not message_ids:
        return
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {Ready._meta.db_table} WHERE message_id = ANY(%s)", [list(message_ids)])  # noqa: S608


def wake() -> None:
    """Tell the dispatchers, once the running transaction is committed, that there is an otp to claim.

    Not within it: PostgreSQL lets only one transaction that notifies commit at a time, so that messages would wait for
    each other's writes to the disk; alone, a notification writes nothing. What fails here is found by the poll.
    """
    transaction.on_commit(_notify, robust=True)


def _notify() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"NOTIFY {READY_CHANNEL}")
