"""Messages and attempts as settling sees them: locked, with the columns that it reads or writes.

To read the others, and to make model objects of them, would cost more than all of the rules.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from django.db import connection

from otp_service.messages.models import Attempt, Message


@dataclass(slots=True)
class MessageRow:
    """One message."""

    id: int
    uuid: UUID
    client_id: int
    flow_id: int
    lane: str
    reference: str
    to_hash: bytes
    expires_at: datetime
    status: str
    attempts_made: int
    attempts_charged: int
    max_attempts: int
    on_unknown: str
    copies_left: int
    withdrawn: str
    run_after: datetime | None
    finished_at: datetime | None
    final_reason: str
    final_error_code: int | None
    final_route: str
    final_server_id: int | None


@dataclass(slots=True)
class AttemptRow:
    """One attempt."""

    id: int
    message_id: int
    route: str
    server_id: int | None
    is_last: bool
    state: str
    claimed_at: datetime
    possible_duplicate: bool
    settled_at: datetime | None
    check_at: datetime | None
    provider_message_id: str
    service: str
    error_class: str
    error_code: int | None
    sent_at: datetime | None
    finished_at: datetime | None
    read_at: datetime | None


def _columns(row: type) -> str:
    return ", ".join(column.name for column in fields(row))


# `= ANY(ARRAY(...))` keeps the planner from a join over all messages.
_LOCK_MESSAGES = f"""
SELECT {_columns(MessageRow)} FROM {Message._meta.db_table}
WHERE id = ANY(ARRAY(SELECT message_id FROM {Attempt._meta.db_table} WHERE id = ANY(%s::bigint[])))
ORDER BY id FOR NO KEY UPDATE
"""  # noqa: S608 - names of our own
# `id + 0`: asked for the order of an index, the planner may walk that one instead of looking for the messages. Message
# by message (OFFSET 0 keeps it so): for a list of them it may read all attempts, where it knows nothing of them yet.
_LOCK_ATTEMPTS = f"""
SELECT {_columns(AttemptRow)} FROM {Attempt._meta.db_table} WHERE id = ANY(ARRAY(
  SELECT a.id FROM unnest(%s::bigint[]) AS message (id) CROSS JOIN LATERAL (
    SELECT id FROM {Attempt._meta.db_table} WHERE message_id = message.id OFFSET 0
  ) a
))
ORDER BY id + 0 FOR NO KEY UPDATE
"""  # noqa: S608 - names of our own


def lock(attempt_ids: Collection[int]) -> tuple[dict[int, MessageRow], list[AttemptRow]]:
    """The messages of these attempts by id, then all of their attempts, each locked by ascending id.

    An attempt's message never changes: it is read without a lock.
    """
    with connection.cursor() as cursor:
        cursor.execute(_LOCK_MESSAGES, [sorted(attempt_ids)])
        messages = {row[0]: MessageRow(*row) for row in cursor.fetchall()}
        cursor.execute(_LOCK_ATTEMPTS, [list(messages)])
        return messages, [AttemptRow(*row) for row in cursor.fetchall()]
