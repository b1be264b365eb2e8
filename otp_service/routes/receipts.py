"""Receipts: what the other side reports about attempts, whichever way it reports."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction

from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState
from otp_service.messages.models import Attempt
from otp_service.messages.rules import AttemptState
from otp_service.routes.changes import Change
from otp_service.routes.models import OrphanReceipt
from otp_service.routes.settle import apply_changes
from otp_service.web.batches import remove_batch
from servers.models import Server

log = structlog.get_logger(__name__)

#: What the other side says, as a state of ours. What is not here moves nothing.
STATES: dict[ReportedState, AttemptState] = {
    ReportedState.QUEUED: AttemptState.ACCEPTED,
    ReportedState.SENT: AttemptState.SENT,
    ReportedState.DELIVERED: AttemptState.DELIVERED,
    ReportedState.FAILED: AttemptState.FAILED,
    ReportedState.NEVER: AttemptState.NOT_SUBMITTED,
}
#: States after which more is expected: the other side is asked if it does not come.
_MORE_IS_EXPECTED = frozenset({AttemptState.ACCEPTED, AttemptState.SENT})
ORPHAN_LIFE = timedelta(days=1)
Owner = TypeVar("Owner", bound=int | str)
_SERVICE_LIMIT = Attempt._meta.get_field("service").max_length  # a host's new word may be longer


def change_of(attempt_id: int, receipt: Receipt, *, now: datetime) -> Change:
    """A receipt as a change of its attempt."""
    state = STATES.get(receipt.state) if receipt.state else None
    return Change(
        attempt_id=attempt_id,
        state=state,
        error_class=receipt.error_class,
        error_code=receipt.error_code,
        provider_message_id=receipt.provider_message_id,
        service=receipt.service[:_SERVICE_LIMIT],
        reason=receipt.reason,
        check_at=now + settings.RECEIPT_WAIT if state in _MORE_IS_EXPECTED else None,
        read=receipt.read,
    )


def apply_host_receipts(
    host_id: int,
    receipts: Sequence[Receipt],
    *,
    now: datetime,
    then_servers: Collection[int] = (),
    named: Named | None = None,
) -> int:
    """Apply what a relay host reports about its own attempts; returns how many of them changed.

    A receipt that names only an id which no attempt carries yet is kept as an orphan. One about another
    host's attempt, or about none, is logged and changes nothing. `then_servers` as in `apply_changes`; `named`
    if the caller has looked for the attempts.
    """
    return _apply(host_id, receipts, named, now=now, then_servers=then_servers) if receipts else 0


def apply_route_receipts(route: str, receipts: Sequence[Receipt], *, now: datetime) -> int:
    """The same for what a provider reports about the attempts of its route, by the route's name."""
    return _apply(route, [_as_taken(receipt) for receipt in receipts], None, now=now) if receipts else 0


def _apply(
    owner: int | str,
    receipts: Sequence[Receipt],
    named: Named | None,
    *,
    now: datetime,
    then_servers: Collection[int] = (),
) -> int:
    named = named or _attempts_of(
        owner,
        {receipt.attempt_uuid for receipt in receipts if receipt.attempt_uuid},
        {receipt.provider_message_id for receipt in receipts if receipt.provider_message_id},
    )
    by_uuid = named.by_uuid
    # A receipt with both ids teaches the other side's to those that have only that one, in this call or before.
    taught = {
        receipt.provider_message_id: by_uuid[receipt.attempt_uuid]
        for receipt in receipts
        if receipt.provider_message_id and receipt.attempt_uuid is not None and receipt.attempt_uuid in by_uuid
    }
    by_guid = {**named.by_guid, **taught}
    changes, orphans = [], []
    for receipt in receipts:
        attempt_id = by_uuid.get(receipt.attempt_uuid) if receipt.attempt_uuid else None
        attempt_id = attempt_id or by_guid.get(receipt.provider_message_id)
        if attempt_id is not None:
            changes.append(change_of(attempt_id, receipt, now=now))
        elif receipt.attempt_uuid is None:
            orphans.append(_orphan(owner, receipt, now))
        else:
            log.info("receipt_for_nothing", of=_scope(owner), attempt=str(receipt.attempt_uuid))
    with transaction.atomic(savepoint=False):
        if orphans:
            OrphanReceipt.objects.bulk_create(orphans)
        # What came after an attempt had learned its id did not have to wait for it.
        new = {(owner, guid): taught[guid] for guid in taught.keys() - named.by_guid.keys()}
        waited = take_orphans(new, now=now)
        return apply_changes([*waited, *changes], now=now, then_servers=then_servers)


def _as_taken(receipt: Receipt) -> Receipt:
    """Whoever reports about a message has it, even in a word that we do not know; who drops it rarely says why."""
    match receipt.state:
        case ReportedState.UNKNOWN:
            return replace(receipt, state=ReportedState.QUEUED)
        case ReportedState.NEVER | ReportedState.FAILED if receipt.error_class is None:
            return replace(receipt, error_class=ErrorClass.TEMPORARY)
        case _:
            return receipt


# Each id is looked up by itself (OFFSET 0 keeps it so): for a list of them the planner may read all attempts instead,
# where it knows nothing of the columns yet. Whose they are is looked up for each too: as a join, it may begin with all
# attempts of the host.
_NAMED = f"""
SELECT a.id, a.uuid, a.provider_message_id,
  (SELECT s.host_id FROM {Server._meta.db_table} s WHERE s.id = a.server_id), a.route
FROM unnest(%(uuids)s::uuid[]) AS named (uuid) CROSS JOIN LATERAL (
  SELECT * FROM {Attempt._meta.db_table} a WHERE a.uuid = named.uuid OFFSET 0
) a
UNION ALL
SELECT a.id, a.uuid, a.provider_message_id,
  (SELECT s.host_id FROM {Server._meta.db_table} s WHERE s.id = a.server_id), a.route
FROM unnest(%(guids)s::varchar[]) AS named (guid) CROSS JOIN LATERAL (
  SELECT * FROM {Attempt._meta.db_table} a
  WHERE a.provider_message_id = named.guid AND a.provider_message_id <> '' OFFSET 0
) a
"""  # noqa: S608 - the tables' own names


@dataclass(frozen=True, slots=True)
class Named:
    """Attempts of one host or route: by our id, and by the other side's own."""

    by_uuid: Mapping[UUID, int]
    by_guid: Mapping[str, int]


def attempts_of_host(host_id: int, uuids: Collection[UUID], guids: Collection[str]) -> Named:
    """Those of these ids that are attempts of the host."""
    return _attempts_of(host_id, uuids, guids)


def _attempts_of(owner: int | str, uuids: Collection[UUID], guids: Collection[str]) -> Named:
    with connection.cursor() as cursor:
        cursor.execute(_NAMED, {"uuids": list(uuids), "guids": list(guids)})
        # One that gives one guid to two attempts means the newer one, which is last here and so stays. Sorted in
        # Python: asked for an order, the planner may walk the primary key instead of the index on the column.
        rows = sorted(row[:3] for row in cursor.fetchall() if (row[4] if row[3] is None else row[3]) == owner)
    by_uuid = {attempt_uuid: attempt_id for attempt_id, attempt_uuid, _ in rows if attempt_uuid in uuids}
    return Named(by_uuid, {guid: attempt_id for attempt_id, _, guid in rows if guid in guids})


def _orphan(owner: int | str, receipt: Receipt, now: datetime) -> OrphanReceipt:
    return OrphanReceipt(
        scope=_scope(owner),
        provider_message_id=receipt.provider_message_id,
        receipt={
            "state": receipt.state.value if receipt.state else None,
            "service": receipt.service,
            "error_class": receipt.error_class.value if receipt.error_class else None,
            "error_code": receipt.error_code,
            "reason": receipt.reason,
            "read": receipt.read,
        },
        at=now,
    )


def _scope(owner: int | str) -> str:
    """Within what the other side's ids are its own: a relay host, by its row id, or a route, by its name."""
    return f"host:{owner}" if isinstance(owner, int) else f"route:{owner}"


_TAKE = f"""
SELECT o.id, known.attempt_id, o.provider_message_id, o.receipt
FROM jsonb_to_recordset(%(known)s::jsonb) AS known (scope varchar, guid varchar, attempt_id bigint)
JOIN {OrphanReceipt._meta.db_table} o ON o.scope = known.scope AND o.provider_message_id = known.guid
ORDER BY o.id FOR UPDATE OF o SKIP LOCKED
"""  # noqa: S608 - the table's own name

# Only those whose attempt is there by now are touched; the rest wait, and are removed when too old. The server is
# looked up for each attempt: as a join, the planner may begin with all servers.
_TAKE_MATCHABLE = f"""
SELECT o.id, known.attempt_id, o.provider_message_id, o.receipt
FROM {OrphanReceipt._meta.db_table} o CROSS JOIN LATERAL (
  SELECT a.id AS attempt_id FROM {Attempt._meta.db_table} a
  WHERE a.provider_message_id = o.provider_message_id AND a.provider_message_id <> ''
    AND o.scope = COALESCE(
      (SELECT 'host:' || s.host_id FROM {Server._meta.db_table} s WHERE s.id = a.server_id), 'route:' || a.route)
  ORDER BY a.id LIMIT 1
) known
WHERE o.at > %(since)s ORDER BY o.id LIMIT %(most)s FOR UPDATE OF o SKIP LOCKED
"""  # noqa: S608 - the tables' own names

# From the newest: where they come and go, the oldest entries of the index are dead.
_ANY = f"""
SELECT (SELECT id FROM {OrphanReceipt._meta.db_table} ORDER BY id DESC LIMIT 1) IS NOT NULL
"""  # noqa: S608 - the table's own name


def take_orphans(learned: Mapping[tuple[Owner, str], int], *, now: datetime) -> list[Change]:
    """What has been waiting for these ids, `(host or route, its id)`, as changes of the attempts that carry them.

    It is forgotten with the caller's transaction, which applies it. Locks nothing that anybody waits for.
    """
    if not learned or not any_orphan():
        return []
    known = [
        {"scope": _scope(owner), "guid": guid, "attempt_id": attempt_id}
        for (owner, guid), attempt_id in learned.items()
    ]
    return _take(_TAKE, {"known": json.dumps(known)}, now)


def any_orphan() -> bool:
    """Whether any receipt waits for its attempt. Nearly always none does."""
    with connection.cursor() as cursor:
        cursor.execute(_ANY)
        return bool(cursor.fetchone()[0])


def match_all_orphans(*, now: datetime, batch: int = 500) -> int:
    """The sweep behind `take_orphans`: a receipt and the settling of its attempt may have passed each other."""
    with transaction.atomic():
        waited = _take(_TAKE_MATCHABLE, {"since": now - ORPHAN_LIFE, "most": batch}, now)
        return apply_changes(waited, now=now)


def _take(statement: str, parameters: dict[str, Any], now: datetime) -> list[Change]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows = cursor.fetchall()
    OrphanReceipt.objects.filter(id__in=[row[0] for row in rows]).delete()
    return [change_of(attempt_id, _from_orphan(guid, json.loads(kept)), now=now) for _, attempt_id, guid, kept in rows]


def _from_orphan(provider_message_id: str, kept: Mapping[str, Any]) -> Receipt:
    return Receipt(
        state=ReportedState(kept["state"]) if kept["state"] else None,
        provider_message_id=provider_message_id,
        service=kept["service"],
        error_class=ErrorClass(kept["error_class"]) if kept["error_class"] else None,
        error_code=kept["error_code"],
        reason=kept["reason"],
        read=kept["read"],
    )


def remove_old_orphans(*, now: datetime, batch: int = 1000) -> int:
    """Forget a batch of receipts that nothing was found for within a day; returns how many. Safe beside itself."""
    return remove_batch(OrphanReceipt.objects.filter(at__lte=now - ORPHAN_LIFE).order_by("at"), batch)
