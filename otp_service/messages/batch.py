"""Intake of many messages at once: each stands for itself, and together they cost a bounded number of statements.

What is accepted is stored in one transaction. Keys are claimed in one order by everybody, and then supersede keys, so
two batches with the same keys wait for each other and never for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from otp_service.core.errors import ServiceError
from otp_service.messages import idempotency, intake, queue, supersede
from otp_service.messages.idempotency import KeyedRequest, KeyInProgress, KeyReused, StoredAnswers
from otp_service.messages.intake import COLUMNS, Accepted, Draft, insert_of
from otp_service.messages.models import Flow, IdempotencyKey, Ready
from otp_service.messages.plan import NewMessage
from otp_service.messages.rules import Lane

#: An array in writing: lists of lists must be of one length.
_KINDS = COLUMNS | {"channels": "varchar"}
_NAMES = ", ".join(f'"{name}"' for name in _KINDS)
_VALUES = {name: f'"{name}"' for name in _KINDS} | {"channels": "channels::varchar[]"}
_LISTS = ", ".join(f"%({name})s::{kind}[]" for name, kind in _KINDS.items())

# Ids are given in the order of the items: of two with one supersede_key the later one stays.
_STORE = f"""
WITH message AS (
  {insert_of(_VALUES)} FROM unnest({_LISTS}) WITH ORDINALITY AS item ({_NAMES}, place) ORDER BY place
  RETURNING id, flow_id, LEAST(first_attempt_by, expires_at) AS due_at
)
INSERT INTO {Ready._meta.db_table} (message_id, flow_id, due_at) SELECT id, flow_id, due_at FROM message
"""  # noqa: S608 - names of our tables and columns

_CLAIM = f"""
INSERT INTO {IdempotencyKey._meta.db_table} (client_id, key, fingerprint, response, created_at)
SELECT %(client_id)s, key, fingerprint, response, %(now)s
FROM unnest(%(keys)s::varchar[], %(fingerprints)s::bytea[], %(responses)s::jsonb[]) AS item (key, fingerprint, response)
ON CONFLICT (client_id, key) DO NOTHING RETURNING key
"""  # noqa: S608 - the table's own name

_FlowKind = tuple[str, tuple[str, ...], tuple[str, ...]]  # lane, pools, channels
Outcome = Accepted | ServiceError


@dataclass(frozen=True, slots=True, repr=False)
class Item:
    """One message of a batch; `key` is its Idempotency-Key, if it has one."""

    request: NewMessage
    key: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class _Planned:
    """An item that can be stored as `draft`, or a `fault`."""

    keyed: KeyedRequest | None
    draft: Draft | None = None
    fault: ServiceError | None = None


def accept_many(client_id: int, items: Sequence[Item], *, now: datetime) -> list[Outcome]:
    """What became of each item, in order: accepted, repeated, or the error that refuses it alone.

    Raises KeyInProgress if another request holds one of the keys for too long. Then nothing was stored.
    """
    planned = [_planned(client_id, item, now) for item in items]
    candidates = _first_of_each_key(planned)
    flows = _flows(client_id, {_flow_kind(draft) for _, draft in candidates})
    with idempotency.bounded_wait(), transaction.atomic():
        claimed = _claim(client_id, [(keyed, draft) for keyed, draft in candidates if keyed], now)
        new = [draft for keyed, draft in candidates if keyed is None or keyed.key in claimed]
        _store(client_id, new, flows, now)
        known = idempotency.stored_among([one.keyed for one in planned if one.keyed])
    stored = {draft.response["id"] for draft in new}
    return [_outcome(one, stored, known) for one in planned]


def _planned(client_id: int, item: Item, now: datetime) -> _Planned:
    keyed = KeyedRequest.of(client_id, item.key, item.request) if item.key else None
    try:
        return _Planned(keyed, draft=intake.draft_of(client_id, item.request, now))
    except ServiceError as fault:
        return _Planned(keyed, fault=fault)


def _first_of_each_key(planned: Iterable[_Planned]) -> list[tuple[KeyedRequest | None, Draft]]:
    """What may be stored: of items with one key the first, and all without."""
    keys: set[str] = set()
    found: list[tuple[KeyedRequest | None, Draft]] = []
    for one in planned:
        if one.draft is None or (one.keyed and one.keyed.key in keys):
            continue
        if one.keyed:
            keys.add(one.keyed.key)
        found.append((one.keyed, one.draft))
    return found


def _flow_kind(draft: Draft) -> _FlowKind:
    return draft.row["lane"], tuple(draft.row["pools"]), tuple(draft.row["channels"])


def _flows(client_id: int, kinds: set[_FlowKind]) -> Mapping[_FlowKind, int]:
    """The id of the flow of each kind. Those that are missing are made, perhaps by another at the same time."""
    found = _known_flows(client_id, kinds)
    missing = sorted(kinds - found.keys())
    if not missing:
        return found
    new = [
        Flow(client_id=client_id, lane=lane, pools=list(pools), channels=list(channels))
        for lane, pools, channels in missing
    ]
    Flow.objects.bulk_create(new, ignore_conflicts=True)
    return _known_flows(client_id, kinds)


def _known_flows(client_id: int, kinds: set[_FlowKind]) -> Mapping[_FlowKind, int]:
    rows = Flow.objects.filter(client_id=client_id, campaign=None, lane__in={lane for lane, _, _ in kinds})
    named = rows.values_list("lane", "pools", "channels", "id")
    return {(lane, tuple(pools), tuple(channels)): flow_id for lane, pools, channels, flow_id in named}


def _claim(client_id: int, keyed: Sequence[tuple[KeyedRequest, Draft]], now: datetime) -> set[str]:
    """Write down the keys with the answers that belong to them; returns those that were free."""
    if not keyed:
        return set()
    claims = sorted((one.claim_params(draft.response, now) for one, draft in keyed), key=lambda claim: claim["key"])
    parameters: dict[str, Any] = {
        "client_id": client_id,
        "now": now,
        "keys": [claim["key"] for claim in claims],
        "fingerprints": [claim["fingerprint"] for claim in claims],
        "responses": [claim["response"] for claim in claims],
    }
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %(key_wait)s, true)", claims[0])
        cursor.execute(_CLAIM, parameters)
        return {key for (key,) in cursor.fetchall()}


def _store(client_id: int, drafts: Sequence[Draft], flows: Mapping[_FlowKind, int], now: datetime) -> None:
    if not drafts:
        return
    rows = [draft.row | {"flow_id": flows[_flow_kind(draft)], "channels": _array(draft)} for draft in drafts]
    lists = {name: [row[name] for row in rows] for name in COLUMNS}
    supersede_keys = {row["supersede_key"] for row in rows} - {""}
    supersede.lock(client_id, supersede_keys)
    with connection.cursor() as cursor:
        cursor.execute(_STORE, {"client_id": client_id, "created_at": now, **lists})
    supersede.take_place(client_id, supersede_keys, now=now)
    if any(draft.row["lane"] == Lane.OTP for draft in drafts):
        queue.wake()


def _array(draft: Draft) -> str:
    return "{" + ",".join(draft.row["channels"]) + "}"


def _outcome(one: _Planned, stored: set[str], known: StoredAnswers) -> Outcome:
    if one.draft is not None and one.draft.response["id"] in stored:
        return Accepted(one.draft.response, replayed=False)
    try:
        earlier = known.answer(one.keyed) if one.keyed else None
    except KeyReused as reused:
        return reused
    if earlier is not None:
        return Accepted(earlier, replayed=True)
    return one.fault or KeyInProgress()  # an old key that was removed between our looks
