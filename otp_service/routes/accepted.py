"""The plain outcome of calls, many at a time: the other side took the attempt, and nothing was heard of it before.

Nearly all calls end so. What `settle.apply_changes` would do for each of them is done here for all in two
statements; whatever does not fit is left to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from otp_service.core.outcomes import Submission
from otp_service.messages.client_events import EVENTS_OF_MESSAGES
from otp_service.messages.models import Attempt, Message
from otp_service.messages.rules import STATUS_EVENTS, AttemptState, MessageStatus
from otp_service.web.arrays import array


@dataclass(frozen=True, slots=True, repr=False)
class Accepted:
    """What became known of one attempt: the other side's id (or ""), its reply as it is stored, ms of the call."""

    attempt_id: int
    token: UUID
    provider_message_id: str
    sealed_reply: bytes | None
    duration_ms: int
    check_at: datetime | None  # when the other side is asked, if nothing is heard until then


# `= ANY(ARRAY(...))` keeps the planner from a join over all messages; nothing but ids is looked for, so that a plan
# made while the tables were empty uses no other index. What changed during the wait for a lock is left out.
_LOCK = f"""
SELECT m.id FROM {Message._meta.db_table} m
WHERE m.id = ANY(ARRAY(SELECT a.message_id FROM {Attempt._meta.db_table} a WHERE a.id = ANY(%s::bigint[])))
  AND m.status = '{MessageStatus.SENDING.value}'
ORDER BY m.id FOR NO KEY UPDATE
"""  # noqa: S608 - the tables' own names

# State and facts in one write of the row. What each row gets is looked up in one JSON object by its id: without a
# join no plan can be a bad one, and JSON is several times cheaper to write down than arrays. Losing the comparison
# means that a receipt, the rescuer or another claim was here first. Its message and the event follow in the same
# statement: nothing of a message travels to this process and back.
_ACCEPT = f"""
WITH moved AS (
  UPDATE {Attempt._meta.db_table} AS a
  SET state = '{AttemptState.ACCEPTED.value}', settled_at = %(now)s,
      check_at = (done.of -> a.id::text ->> 'check')::timestamptz,
      provider_message_id = COALESCE(NULLIF(a.provider_message_id, ''), done.of -> a.id::text ->> 'guid'),
      submission = '{Submission.ACCEPTED.value}', raw_reply = decode(done.of -> a.id::text ->> 'reply', 'hex'),
      duration_ms = (done.of -> a.id::text ->> 'ms')::integer
  FROM (SELECT %(done)s::jsonb AS of) AS done
  WHERE a.id = ANY(%(ids)s::bigint[]) AND a.token = (done.of -> a.id::text ->> 'token')::uuid
    AND a.state = '{AttemptState.SUBMITTING.value}' AND a.message_id = ANY(%(messages)s::bigint[])
  RETURNING a.id, a.message_id
), submitted AS (
  UPDATE {Message._meta.db_table} AS m SET status = '{MessageStatus.SUBMITTED.value}'
  WHERE m.id = ANY(ARRAY(SELECT moved.message_id FROM moved))
  RETURNING m.*
), told AS (
  {EVENTS_OF_MESSAGES} FROM submitted AS m
)
SELECT id FROM moved
"""  # noqa: S608 - the tables' own names


def accept(batch: Sequence[Accepted], *, now: datetime) -> set[int]:
    """Write those that are still being submitted, and whose messages wait for nothing else; returns their ids.

    One transaction: messages are locked before attempts, by ascending id.
    """
    of = {done.attempt_id: done for done in batch}
    if not of:
        return set()
    with transaction.atomic(savepoint=False), connection.cursor() as cursor:
        cursor.execute(_LOCK, [array(of)])
        messages = [message_id for (message_id,) in cursor.fetchall()]
        if not messages:
            return set()
        cursor.execute(_ACCEPT, _parameters(of, messages, now))
        return {attempt_id for (attempt_id,) in cursor.fetchall()}


def _parameters(of: Mapping[int, Accepted], messages: list[int], now: datetime) -> dict[str, Any]:
    return {
        "done": json.dumps({attempt_id: _figures(done) for attempt_id, done in of.items()}),
        "ids": array(of),
        "messages": array(messages),
        "now": now,
        "event": STATUS_EVENTS[MessageStatus.SUBMITTED],
    }


def _figures(done: Accepted) -> dict[str, Any]:
    return {
        "token": str(done.token),
        "guid": done.provider_message_id,
        "reply": done.sealed_reply.hex() if done.sealed_reply is not None else None,
        "ms": done.duration_ms,
        "check": done.check_at.isoformat() if done.check_at is not None else None,
    }
