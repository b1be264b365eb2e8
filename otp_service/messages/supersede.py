"""A newer message takes the place of older ones with the same client and supersede_key: no stale code leaves.

Messages with one key are stored one after another: each has its id when those before it are committed, so that the
newest sees all the others. Locks: idempotency keys, then supersede keys by ascending number, then messages by ascending
id; a claim takes messages with SKIP LOCKED and never waits for us.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import datetime

from django.db import connection

from otp_service.messages import lifecycle
from otp_service.messages.models import Message
from otp_service.messages.rules import MessageStatus, Reason

_LOCKS = 0x73757065  # "supe": the class of these advisory locks, apart from everybody else's

#: A part of the statement that stores a message; its parameters are `lock_params`.
LOCK = f"pg_advisory_xact_lock({_LOCKS}, %(supersede_lock)s)"

_ALIVE = [
    status.value
    for status in (MessageStatus.QUEUED, MessageStatus.WAITING, MessageStatus.SENDING, MessageStatus.SUBMITTED)
]

# Key by key (the window keeps it so): for a list of them the planner may read all messages of the client, where it
# knows nothing of them yet. `id + 0`: asked for the order of an index, it may walk that one.
_OLDER = f"""
SELECT id, uuid, client_id, lane, reference, status FROM {Message._meta.db_table}
WHERE id = ANY(ARRAY(
  SELECT named.id FROM unnest(%(keys)s::varchar[]) AS given (key) CROSS JOIN LATERAL (
    SELECT id, max(id) OVER () AS newest FROM {Message._meta.db_table}
    WHERE client_id = %(client_id)s AND supersede_key = given.key AND supersede_key <> ''
  ) named WHERE named.id < named.newest
)) AND status = ANY(%(alive)s::varchar[])
ORDER BY id + 0 FOR NO KEY UPDATE
"""  # noqa: S608 - the table's own name


def lock_params(client_id: int, key: str) -> dict[str, int]:
    """What LOCK needs."""
    return {"supersede_lock": _lock_number(client_id, key)}


def lock(client_id: int, keys: Collection[str]) -> None:
    """Wait until nobody else stores messages with these keys; others wait until this transaction ends."""
    if not keys:
        return
    numbers = sorted({_lock_number(client_id, key) for key in keys})
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, number) FROM unnest(%s::int[]) AS number", [_LOCKS, numbers])


def _lock_number(client_id: int, key: str) -> int:
    """32 bits: two keys that share them wait for each other, and that is all."""
    digest = hashlib.blake2b(f"{client_id} {key}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, signed=True)


def take_place(client_id: int, keys: Collection[str], *, now: datetime) -> None:
    """Withdraw all messages with these keys but the newest of each, in the transaction that locked the keys."""
    if not keys:
        return
    older = Message.objects.raw(_OLDER, {"client_id": client_id, "keys": list(keys), "alive": _ALIVE})
    # Locked first and written in a statement of its own, which sees what was queued while we waited.
    lifecycle.withdraw(list(older), Reason.SUPERSEDED, now=now)
