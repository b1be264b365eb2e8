"""Receipts: what the other side reports about attempts, whichever way it reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from otp_service.core.outcomes import ErrorClass, ReportedState
from otp_service.events import log as events
from otp_service.messages.models import Attempt
from otp_service.messages.rules import AttemptState
from otp_service.routes.models import OrphanReceipt
from otp_service.routes.settle import Change, apply_changes

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


@dataclass(frozen=True, slots=True)
class Receipt:
    """A report about the attempt `attempt_uuid`, or about whichever one carries `provider_message_id`."""

    state: ReportedState
    attempt_uuid: UUID | None = None
    provider_message_id: str = ""
    service: str = ""
    error_class: ErrorClass | None = None
    error_code: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReadReceipt:
    """The recipient has read it."""

    attempt_uuid: UUID | None
    provider_message_id: str


def change_of(attempt_id: int, receipt: Receipt, *, now: datetime) -> Change | None:
    """A receipt as a change of its attempt; None when it says nothing that moves one."""
    state = STATES.get(receipt.state)
    if state is None:
        return None
    return Change(
        attempt_id=attempt_id,
        state=state,
        error_class=receipt.error_class,
        error_code=receipt.error_code,
        provider_message_id=receipt.provider_message_id,
        service=receipt.service,
        reason=receipt.reason,
        check_at=now + settings.RECEIPT_WAIT if state in _MORE_IS_EXPECTED else None,
    )


def apply_host_receipts(host_id: int, receipts: Sequence[Receipt], *, now: datetime) -> int:
    """Apply what a relay host reports about its own attempts; returns how many of them moved.

    A receipt that names only an id which no attempt carries yet is kept as an orphan. One about another
    host's attempt, or about none, is logged and changes nothing.
    """
    if not receipts:
        return 0
    by_uuid, by_guid = _attempts_of_host(host_id, receipts)
    changes, orphans = [], []
    for receipt in receipts:
        attempt_id = by_uuid.get(receipt.attempt_uuid) if receipt.attempt_uuid else None
        attempt_id = attempt_id or by_guid.get(receipt.provider_message_id)
        if attempt_id is not None:
            changes.append(change_of(attempt_id, receipt, now=now))
        elif receipt.attempt_uuid is None:
            orphans.append(_orphan(host_id, receipt, now))
        else:
            log.info("receipt_for_nothing", host=host_id, attempt=str(receipt.attempt_uuid))
    with transaction.atomic():
        OrphanReceipt.objects.bulk_create(orphans)
        moved = apply_changes([change for change in changes if change is not None], now=now)
        learned = [receipt.provider_message_id for receipt in receipts if receipt.attempt_uuid]
        return moved + match_orphans(host_id, learned, now=now)


def _attempts_of_host(
    host_id: int, receipts: Sequence[Receipt] | Sequence[ReadReceipt]
) -> tuple[dict[UUID, int], dict[str, int]]:
    uuids = {receipt.attempt_uuid for receipt in receipts if receipt.attempt_uuid}
    guids = {receipt.provider_message_id for receipt in receipts if receipt.provider_message_id}
    of_host = Attempt.objects.filter(server__host_id=host_id)
    by_uuid = dict(of_host.filter(uuid__in=uuids).values_list("uuid", "id")) if uuids else {}
    by_guid = (
        dict(of_host.filter(provider_message_id__in=guids).values_list("provider_message_id", "id")) if guids else {}
    )
    return by_uuid, by_guid


def _orphan(host_id: int, receipt: Receipt, now: datetime) -> OrphanReceipt:
    return OrphanReceipt(
        scope=_scope(host_id),
        provider_message_id=receipt.provider_message_id,
        receipt={
            "state": receipt.state.value,
            "service": receipt.service,
            "error_class": receipt.error_class.value if receipt.error_class else None,
            "error_code": receipt.error_code,
            "reason": receipt.reason,
        },
        at=now,
    )


def _scope(host_id: int) -> str:
    return f"host:{host_id}"


def match_orphans(host_id: int, provider_message_ids: Sequence[str], *, now: datetime) -> int:
    """Apply the orphans of a host that name one of these ids, if an attempt carries it by now."""
    ids = [guid for guid in provider_message_ids if guid]
    if not ids:
        return 0
    with transaction.atomic():
        orphans = list(
            OrphanReceipt.objects.filter(scope=_scope(host_id), provider_message_id__in=ids)
            .order_by("id")
            .select_for_update(skip_locked=True)
        )
        return _apply_orphans(host_id, orphans, now=now) if orphans else 0


def match_all_orphans(*, now: datetime, batch: int = 500) -> int:
    """The sweep behind `match_orphans`: a receipt and the settling of its attempt may have passed each other."""
    moved = 0
    with transaction.atomic():
        # Only those whose attempt is there by now are touched; the rest wait, and are removed when too old.
        orphans = list(OrphanReceipt.objects.raw(_MATCHABLE, [now - ORPHAN_LIFE, batch]))
        hosts: dict[int, list[OrphanReceipt]] = {}
        for orphan in orphans:
            hosts.setdefault(int(orphan.scope.removeprefix("host:")), []).append(orphan)
        for host_id, of_host in hosts.items():
            moved += _apply_orphans(host_id, of_host, now=now)
    return moved


_MATCHABLE = f"""
SELECT o.* FROM {OrphanReceipt._meta.db_table} o
WHERE o.at > %s AND EXISTS (
  SELECT 1 FROM {Attempt._meta.db_table} a JOIN servers_server s ON s.id = a.server_id
  WHERE a.provider_message_id = o.provider_message_id AND a.provider_message_id <> ''
    AND o.scope = 'host:' || s.host_id
)
ORDER BY o.id LIMIT %s FOR UPDATE OF o SKIP LOCKED
"""  # noqa: S608 - the tables' own names


def _apply_orphans(host_id: int, orphans: Sequence[OrphanReceipt], *, now: datetime) -> int:
    receipts = [_from_orphan(orphan) for orphan in orphans]
    _, by_guid = _attempts_of_host(host_id, receipts)
    changes = [
        change_of(by_guid[receipt.provider_message_id], receipt, now=now)
        for receipt in receipts
        if receipt.provider_message_id in by_guid
    ]
    matched = [orphan.id for orphan in orphans if orphan.provider_message_id in by_guid]
    moved = apply_changes([change for change in changes if change is not None], now=now)
    OrphanReceipt.objects.filter(id__in=matched).delete()
    return moved


def _from_orphan(orphan: OrphanReceipt) -> Receipt:
    kept = orphan.receipt
    return Receipt(
        state=ReportedState(kept["state"]),
        provider_message_id=orphan.provider_message_id,
        service=kept["service"],
        error_class=ErrorClass(kept["error_class"]) if kept["error_class"] else None,
        error_code=kept["error_code"],
        reason=kept["reason"],
    )


def remove_old_orphans(*, now: datetime) -> int:
    """Forget receipts that nothing was found for within a day."""
    removed, _ = OrphanReceipt.objects.filter(at__lte=now - ORPHAN_LIFE).delete()
    return removed


def apply_reads(host_id: int, reads: Sequence[ReadReceipt], *, now: datetime) -> None:
    """Keep when recipients read; tell the clients once."""
    if not reads:
        return
    by_uuid, by_guid = _attempts_of_host(host_id, reads)
    ids = {
        (by_uuid.get(read.attempt_uuid) if read.attempt_uuid else None) or by_guid.get(read.provider_message_id)
        for read in reads
    }
    with transaction.atomic():
        unread = Attempt.objects.filter(id__in=ids - {None}, read_at__isnull=True)
        attempts = list(
            unread.order_by("id")
            .select_related("message")
            .select_for_update(no_key=True, of=("self",))
            .only("id", "message__uuid", "message__client_id", "message__lane", "message__reference")
        )
        Attempt.objects.filter(id__in=[attempt.id for attempt in attempts]).update(read_at=now)
        events.record_many(
            [
                events.NewEvent(
                    type="message.read",
                    at=now,
                    subject_uuid=attempt.message.uuid,
                    client_id=attempt.message.client_id,
                    data={"lane": attempt.message.lane, "reference": attempt.message.reference},
                )
                for attempt in attempts
            ]
        )
