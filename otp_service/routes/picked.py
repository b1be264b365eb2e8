"""Messages that a claim holds: picked from the queue, locked, and opened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from django.db import connection
from psycopg.types.datetime import TimestamptzLoader

from otp_service.core.crypto import CryptoError
from otp_service.messages import queue
from otp_service.messages.models import Flow, Message, Ready
from otp_service.messages.rules import Lane, MessageStatus
from otp_service.web.fields import encrypted_field

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class Picked:
    """A message that this claim holds."""

    id: int
    flow_id: int
    to: str
    text: str
    to_hash: bytes
    created_at: datetime
    expires_at: datetime
    first_attempt_by: datetime | None
    on_late_first: str
    attempts_made: int
    attempts_charged: int
    max_attempts: int
    lane: Lane
    sender_name: str
    max_routes: int
    copies_left: int
    addresses: Mapping[str, str]  # by channel, where its number does not reach
    is_race: bool  # a copy of it may be on its way: nobody knows

    @property
    def due_at(self) -> datetime:
        """What its `ready` row was ordered by."""
        first_by = None if self.attempts_made else self.first_attempt_by
        return min(first_by or self.expires_at, self.expires_at)


# The rows are picked flow by flow, by equality, so that each pick reads the index from its beginning;
# MATERIALIZED keeps the planner from merging the LIMIT away, `= ANY(ARRAY(...))` from a hash join over all messages.
# A flow that is being paused is passed over: to wait for it while holding others would invite a deadlock.
_PICK = f"""
WITH planned AS (
  SELECT f.id, p.n FROM unnest(%(flows)s::bigint[], %(counts)s::int[]) AS p (flow_id, n)
  JOIN {Flow._meta.db_table} f ON f.id = p.flow_id AND f.state = 'on' AND {queue.FLOW_IS_LEFT_ALONE}
  FOR SHARE OF f SKIP LOCKED
), picked AS MATERIALIZED (
  SELECT chosen.message_id FROM planned CROSS JOIN LATERAL (
    SELECT r.message_id FROM {Ready._meta.db_table} r WHERE r.flow_id = planned.id
    ORDER BY r.due_at, r.message_id LIMIT planned.n FOR UPDATE SKIP LOCKED
  ) chosen
)
SELECT m.id, m.flow_id, m."to", m.text, m.to_hash, m.created_at, m.expires_at, m.first_attempt_by, m.on_late_first,
       m.attempts_made, m.attempts_charged, m.max_attempts, m.lane, m.sender_name, m.max_routes, m.copies_left,
       m.addresses, m.status
FROM {Message._meta.db_table} m
WHERE m.id = ANY(ARRAY(SELECT message_id FROM picked))
ORDER BY m.id FOR NO KEY UPDATE OF m SKIP LOCKED
"""  # noqa: S608 - the tables' own names


@dataclass(frozen=True, slots=True)
class Lot:
    """What was locked: messages that may be sent; those that cannot be opened, with their ends; how many by flow."""

    messages: Sequence[Picked]
    unreadable: Mapping[int, datetime]
    by_flow: Mapping[int, int]


def pick(plan: Sequence[tuple[int, int]]) -> Lot:
    """Lock messages of the planned flows, as far as nobody else holds them."""
    with connection.cursor() as cursor:
        # Django's own one is Python for each value; both give aware times in UTC.
        cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
        cursor.execute(_PICK, {"flows": [flow for flow, _ in plan], "counts": [count for _, count in plan]})
        rows = cursor.fetchall()
    picked, strays, unreadable = [], [], {}
    for row in rows:
        if not _is_claimable(MessageStatus(row[-1]), copies_left=row[15]):
            strays.append(row[0])
            continue
        try:
            picked.append(_open(row))
        except CryptoError as error:
            # One that cannot be opened must not hold up those behind it. It may be a key that is missing here.
            log.error("message_unreadable", message=row[0], error=str(error))  # noqa: TRY400 - frames may hold texts
            if row[-1] == MessageStatus.QUEUED:
                unreadable[row[0]] = row[6]
            else:
                strays.append(row[0])
    if strays:
        # Nobody writes such rows; one that is there all the same must not stand at the head of its flow for ever.
        log.error("ready_but_not_claimable", messages=strays)
        queue.remove(strays)
    return Lot(picked, unreadable, Counter(row[1] for row in rows))


def _is_claimable(status: MessageStatus, *, copies_left: int) -> bool:
    """Whether its `ready` row means anything: that of a submitted message, that an extra copy may leave."""
    return status is MessageStatus.QUEUED or (status is MessageStatus.SUBMITTED and copies_left > 0)


_NONE: Mapping[str, str] = {}


def _open(row: Sequence[Any]) -> Picked:
    return Picked(
        id=row[0],
        flow_id=row[1],
        to=encrypted_field(Message, "to").open(row[2]),
        text=encrypted_field(Message, "text").open(row[3]),
        to_hash=bytes(row[4]),
        created_at=row[5],
        expires_at=row[6],
        first_attempt_by=row[7],
        on_late_first=row[8],
        attempts_made=row[9],
        attempts_charged=row[10],
        max_attempts=row[11],
        lane=Lane(row[12]),
        sender_name=row[13],
        max_routes=row[14],
        copies_left=row[15],
        addresses=json.loads(encrypted_field(Message, "addresses").open(row[16])) if row[16] is not None else _NONE,
        is_race=row[17] == MessageStatus.SUBMITTED,
    )
