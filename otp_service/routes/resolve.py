"""Asking the other side about attempts that do not report: unknown ones, and overdue receipts.

An unknown attempt is first asked about; if the host has never heard of it, it gets a tombstone, so that the
copy that is sent elsewhere is the only one. Nothing here sends.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import aiohttp
from django.db import transaction

from otp_service.core import clock
from otp_service.core.outcomes import ErrorClass, ReportedState, StatusReport
from otp_service.messages.models import Attempt
from otp_service.messages.rules import AttemptState
from otp_service.routes import rules
from otp_service.routes.receipts import Receipt, change_of, take_orphans
from otp_service.routes.settle import apply_changes, update_rows
from servers.hosts import mark_seen
from servers.relay.base import HostAddress, RelayAdapter
from servers.relay.error_codes import error_class


@dataclass(frozen=True, slots=True)
class Check:
    """One attempt that the other side is to be asked about."""

    attempt_id: int
    attempt_uuid: UUID
    state: AttemptState
    host: HostAddress


def claim_checks(*, now: datetime, batch: int = 50) -> list[Check]:
    """Take attempts whose time to be asked about has come; the next time is set before anybody is asked."""
    with transaction.atomic():
        due = list(
            Attempt.objects.filter(check_at__lte=now, server__isnull=False)
            .order_by("check_at")
            .select_for_update(no_key=True, skip_locked=True, of=("self",))
            .select_related("server__host")
            .defer("raw_reply")[:batch]
        )
        pauses = [rules.check_pause(attempt.checks_made) for attempt in due]
        update_rows(
            Attempt._meta.db_table,
            [attempt.id for attempt in due],
            {
                "check_at": ("timestamptz", [now + pause if pause else None for pause in pauses]),
                "checks_made": ("smallint", [attempt.checks_made + 1 for attempt in due]),
            },
        )
    return [_check(attempt) for attempt in due if attempt.server is not None]


def _check(attempt: Attempt) -> Check:
    assert attempt.server is not None
    host = attempt.server.host
    address = HostAddress(host.id, host.number, host.base_url, host.secret)
    return Check(attempt.id, attempt.uuid, AttemptState(attempt.state), address)


async def ask(check: Check, adapter: RelayAdapter, session: aiohttp.ClientSession) -> StatusReport:
    """Where the attempt stands. NEVER only when the host promised that it will not be sent."""
    report = await adapter.query(session, check.host, check.attempt_uuid)
    settled = {ReportedState.SENT, ReportedState.DELIVERED, ReportedState.FAILED, ReportedState.NEVER}
    if not report.answered or report.state in settled:
        return report
    still_in_time = check.state is AttemptState.UNKNOWN and report.state is ReportedState.QUEUED
    if still_in_time:
        return report
    return await adapter.tombstone(session, check.host, check.attempt_uuid)


def apply_answers(
    answers: Sequence[tuple[Check, StatusReport]], *, now: datetime, rng: random.Random = clock.rng
) -> int:
    """Write what was answered; returns how many attempts changed."""
    answered = [(check, report) for check, report in answers if report.answered]
    learned = {
        (check.host.host_id, report.provider_message_id): check.attempt_id
        for check, report in answered
        if report.provider_message_id
    }
    with transaction.atomic():
        changes = [change_of(check.attempt_id, _receipt(check, report), now=now) for check, report in answered]
        changed = apply_changes([*take_orphans(learned, now=now), *changes], now=now, rng=rng)
    for host_id in {check.host.host_id for check, _ in answered}:
        mark_seen(host_id, now=now)
    return changed


def _receipt(check: Check, report: StatusReport) -> Receipt:
    return Receipt(
        state=report.state,
        provider_message_id=report.provider_message_id,
        service=report.service,
        error_class=_fault(check, report),
        error_code=_code(check, report),
        reason="timeout_125" if report.state is ReportedState.NEVER else "reported_failed",
    )


def _fault(check: Check, report: StatusReport) -> ErrorClass | None:
    if report.state is ReportedState.FAILED:
        return error_class(report.error_code)
    if report.state is not ReportedState.NEVER:
        return None
    # It took the message and never sent it: the server's fault. If it never answered, nobody knows whose.
    return ErrorClass.CONNECTION_REFUSED if check.state is AttemptState.UNKNOWN else ErrorClass.SENDER_FAULT


def _code(check: Check, report: StatusReport) -> int | None:
    promised = report.state is ReportedState.NEVER and check.state is not AttemptState.UNKNOWN
    return 125 if promised else report.error_code
