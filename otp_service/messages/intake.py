"""Intake: from a checked request to a message in the queue, in one statement; in a second one it supersedes others.

One statement is one transaction: idempotency key, message and queue row come to be together or not at all. Redis has
no part in it; the wake-up follows the commit, and the dispatchers' poll finds what was not told.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from otp_service.core.errors import ServiceError
from otp_service.messages import idempotency, plan, queue, supersede
from otp_service.messages.idempotency import KeyedRequest
from otp_service.messages.models import Flow, Message, Ready
from otp_service.messages.plan import NewMessage
from otp_service.messages.rules import Lane, MessageStatus
from otp_service.web.fields import encrypted_field, recipient_hash

_TO = encrypted_field(Message, "to")
_TEXT = encrypted_field(Message, "text")
_ADDRESSES = encrypted_field(Message, "addresses")

#: Columns in which new messages differ, and their types: what everybody stores who takes messages in.
COLUMNS = {
    "uuid": "uuid",
    "flow_id": "bigint",
    "lane": "varchar",
    "to": "bytea",
    "to_hash": "bytea",
    "text": "bytea",
    "region": "varchar",
    "channels": "varchar[]",
    "addresses": "bytea",
    "sender_name": "varchar",
    "reference": "varchar",
    "supersede_key": "varchar",
    "metadata": "jsonb",
    "event_at": "timestamptz",
    "expires_at": "timestamptz",
    "first_attempt_by": "timestamptz",
    "on_late_first": "varchar",
    "max_attempts": "smallint",
    "max_routes": "smallint",
    "on_unknown": "varchar",
    "copies_left": "smallint",
}


def insert_of(values: Mapping[str, str]) -> str:
    """`INSERT INTO message ... SELECT ...`, to go on with its FROM; `values`: by column, as SQL.

    Parameters beside those that `values` name: `client_id` and `created_at`.
    """
    row = {
        "client_id": "%(client_id)s",
        "created_at": "%(created_at)s",
        "status": f"'{MessageStatus.QUEUED.value}'",
        "attempts_made": "0",
        "attempts_charged": "0",
        "final_reason": "''",
        "final_route": "''",
        **values,
    }
    names = ", ".join(f'"{name}"' for name in row)
    return f"INSERT INTO {Message._meta.db_table} ({names}) SELECT {', '.join(row.values())}"


_FLOW = f"""flow AS (
  SELECT id FROM {Flow._meta.db_table}
  WHERE client_id = %(client_id)s AND lane = %(lane)s AND pools = %(pools)s::varchar[]
    AND channels = %(channels)s::varchar[] AND campaign_id IS NULL
)"""  # noqa: S608 - the table's own name
_VALUES = {name: f"%({name})s::{kind}" for name, kind in COLUMNS.items()} | {"flow_id": "flow.id"}


def _statement(*, keyed: bool, superseding: bool) -> str:
    """What stores a message, if the last step gives it its one row. Locks are taken before it has its id."""
    steps, last = [_FLOW], "flow"
    if keyed:
        steps, last = [*steps, idempotency.CLAIM], "claimed"
    if superseding:
        locked = f"locked AS MATERIALIZED (SELECT {supersede.LOCK} FROM {last})"  # noqa: S608 - our own names
        steps, last = [*steps, locked], "locked"
    sources = "flow" if last == "flow" else f"flow, {last}"
    return f"""WITH {", ".join(steps)}, message AS (
  {insert_of(_VALUES)} FROM {sources} RETURNING id, flow_id
), ready AS (
  INSERT INTO {Ready._meta.db_table} (message_id, flow_id, due_at) SELECT id, flow_id, %(due_at)s FROM message
)
SELECT FROM message"""  # noqa: S608 - names of our tables


#: By whether there is an idempotency key, and a supersede_key.
_INSERT = {
    (keyed, superseding): _statement(keyed=keyed, superseding=superseding)
    for keyed in (False, True)
    for superseding in (False, True)
}


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a client is told. `replayed`: it was told so before, and nothing was done now."""

    response: dict[str, Any]
    replayed: bool


@dataclass(frozen=True, slots=True, repr=False)
class Draft:
    """A message that is ready to be stored: its columns that differ from message to message, and its place."""

    row: dict[str, Any]
    response: dict[str, Any]


def accept(client_id: int, request: NewMessage, *, now: datetime, idempotency_key: str = "") -> Accepted:
    """Store a message and its place in the queue; or repeat what the key was answered with.

    Raises a ServiceError: 400 for what cannot be served, 409 and 422 for the key. Then nothing was stored.
    """
    keyed = KeyedRequest.of(client_id, idempotency_key, request) if idempotency_key else None
    try:
        draft = draft_of(client_id, request, now)
    except ServiceError:
        # What was accepted in time stays accepted, however late it is asked about again.
        earlier = idempotency.stored(keyed) if keyed else None
        if earlier is None:
            raise
        return Accepted(earlier, replayed=True)
    return _store_once(draft, keyed, now)


def _store_once(draft: Draft, keyed: KeyedRequest | None, now: datetime) -> Accepted:
    for _ in range(2):
        if _insert(draft, keyed, now):
            if draft.row["lane"] == Lane.OTP:
                queue.wake()
            return Accepted(draft.response, replayed=False)
        earlier = idempotency.stored(keyed) if keyed else None
        if earlier is not None:
            return Accepted(earlier, replayed=True)
        _make_flow(draft)
    raise idempotency.KeyInProgress  # the key was held, and set free or removed as an old one, between our looks


def draft_of(client_id: int, request: NewMessage, now: datetime) -> Draft:
    """What is to be stored for a request. Raises a 400 for what cannot be served."""
    lane = settings.LANE_DEFAULTS[request.lane]
    plan.check_addresses(request.channels, request.addresses)
    life = plan.lifetime(request, lane, now=now)
    row = {
        "uuid": uuid.uuid4(),
        "client_id": client_id,
        "lane": request.lane,
        "pools": plan.pools(request, settings.POOLS_BY_PREFIX),
        "to": _TO.seal(request.to),
        "to_hash": recipient_hash(request.to),
        "text": _TEXT.seal(request.text),
        "region": request.region,
        "channels": list(request.channels),
        "addresses": sealed_addresses(request.addresses),
        "sender_name": request.sender_name,
        "reference": request.reference,
        "supersede_key": request.supersede_key,
        "metadata": json.dumps(request.metadata),
        "created_at": now,
        "event_at": life.event_at,
        "expires_at": life.expires_at,
        "first_attempt_by": life.first_attempt_by,
        "due_at": life.due_at,
        "on_late_first": request.on_late_first or lane["on_late_first"],
        "max_attempts": request.max_attempts or lane["max_attempts"],
        "max_routes": request.max_routes or lane["max_routes"],
        "on_unknown": request.on_unknown or lane["on_unknown"],
        "copies_left": settings.DUPLICATE_BUDGET,
    }
    return Draft(row, _response(row))


def sealed_addresses(addresses: Mapping[str, str]) -> bytes | None:
    """As they are stored: JSON by channel, encrypted."""
    return _ADDRESSES.seal(json.dumps(addresses)) if addresses else None


def _response(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["uuid"]),
        "status": MessageStatus.QUEUED.value,
        "lane": row["lane"],
        "created_at": _written(row["event_at"]),
        "expires_at": _written(row["expires_at"]),
    }


def _written(moment: datetime) -> str:
    """A time as the API writes it."""
    return moment.isoformat().replace("+00:00", "Z")


def _insert(draft: Draft, keyed: KeyedRequest | None, now: datetime) -> bool:
    """Store the message. False, and nothing done, if the key was used before or the flow does not exist yet."""
    supersede_key = draft.row["supersede_key"]
    params = draft.row | (keyed.claim_params(draft.response, now) if keyed else {})
    sql = _INSERT[keyed is not None, bool(supersede_key)]
    with idempotency.bounded_wait():
        return _insert_superseding(sql, params, now) if supersede_key else _execute(sql, params)


def _insert_superseding(sql: str, params: Mapping[str, Any], now: datetime) -> bool:
    client_id, key = params["client_id"], params["supersede_key"]
    with transaction.atomic():
        is_stored = _execute(sql, {**params, **supersede.lock_params(client_id, key)})
        if is_stored:
            supersede.take_place(client_id, [key], now=now)
    return is_stored


def _execute(sql: str, params: Mapping[str, Any]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return bool(cursor.rowcount)


def _make_flow(draft: Draft) -> None:
    """The flow of the first message of its kind. Another first message may make it at the same time."""
    kind = {name: draft.row[name] for name in ("client_id", "lane", "pools", "channels")}
    Flow.objects.bulk_create([Flow(**kind)], ignore_conflicts=True)
