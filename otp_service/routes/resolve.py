"""Asking the other side about attempts that do not report: unknown ones, and overdue receipts.

An unknown attempt is first asked about; if the host has never heard of it, it gets a tombstone, so that the
copy that is sent elsewhere is the only one. Nothing here sends.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import aiohttp
from django.db import transaction
from django.db.models import Prefetch

from otp_service.core import clock
from otp_service.core.outcomes import ErrorClass, ReportedState, StatusReport
from otp_service.messages.models import Attempt
from otp_service.messages.rules import AttemptState
from otp_service.routes import rules
from otp_service.routes.receipts import Receipt, change_of, take_orphans
from otp_service.routes.settle import Change, apply_changes, update_rows
from servers.hosts import address_of, mark_seen
from servers.models import Server
from servers.relay.base import HostAddress, RelayAdapter
from servers.relay.error_codes import DEFAULT_CODE, SERVICE_ERROR, error_class

#: Answers of a host that is there, and cannot say what became of an attempt.
_NO_OUTCOME = frozenset({ReportedState.QUEUED, ReportedState.UNKNOWN, ReportedState.NOT_FOUND})


#: What was sent is out: no promise about it is asked for, or believed.
_MAY_BE_WITHDRAWN = frozenset({AttemptState.UNKNOWN, AttemptState.ACCEPTED})


@dataclass(frozen=True, slots=True)
class Check:
    """One attempt that the other side is to be asked about."""

    attempt_id: int
    attempt_uuid: UUID
    state: AttemptState
    host: HostAddress


def claim_checks(*, now: datetime, batch: int = 50, without_hosts: Collection[int] = ()) -> list[Check]:
    """Take attempts whose time to be asked about has come; the next time is set before anybody is asked.

    Those of `without_hosts` wait for another turn.
    """
    with transaction.atomic():
        # Servers are read afterwards: joined here, the planner may begin with them.
        due = list(
            Attempt.objects.filter(check_at__lte=now, server__isnull=False)
            .exclude(server__in=Server.objects.filter(host__in=without_hosts).values("id"))
            .order_by("check_at")
            .select_for_update(no_key=True, skip_locked=True)
            .prefetch_related(Prefetch("server", Server.objects.select_related("host")))
            .defer("raw_reply")[:batch]
        )
        columns = {"check_at": "timestamptz", "checks_made": "smallint"}
        update_rows(Attempt._meta.db_table, columns, [_asked(attempt, now) for attempt in due])
    return [_check(attempt, now) for attempt in due if attempt.server is not None]


def _asked(attempt: Attempt, now: datetime) -> dict[str, Any]:
    pause = rules.check_pause(attempt.checks_made)
    return {
        "id": attempt.id,
        "check_at": None if pause is None else now + pause,
        "checks_made": attempt.checks_made + 1,
    }


def _check(attempt: Attempt, now: datetime) -> Check:
    assert attempt.server is not None
    address = address_of(attempt.server.host, now=now)
    return Check(attempt.id, attempt.uuid, AttemptState(attempt.state), address)


async def ask(check: Check, adapter: RelayAdapter, session: aiohttp.ClientSession) -> StatusReport:
    """Where the attempt stands. NEVER only when the host promised that it will not be sent."""
    report = await adapter.query(session, check.host, check.attempt_uuid)
    if not report.answered or report.state not in _NO_OUTCOME or check.state not in _MAY_BE_WITHDRAWN:
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
        changes = [_change(check, report, now) for check, report in answered]
        changed = apply_changes([*take_orphans(learned, now=now), *changes], now=now, rng=rng)
    for host_id in {check.host.host_id for check, _ in answered}:
        mark_seen(host_id, now=now)
    return changed


def _change(check: Check, report: StatusReport, now: datetime) -> Change:
    receipt = Receipt(report.state, provider_message_id=report.provider_message_id, service=report.service)
    change = change_of(check.attempt_id, receipt, now=now)
    nothing_to_show = check.state is AttemptState.ACCEPTED and report.state in _NO_OUTCOME
    if report.state is ReportedState.FAILED:
        code = DEFAULT_CODE if report.error_code is None else report.error_code
        return replace(change, error_class=error_class(code), error_code=code, reason="reported_failed")
    if report.state is ReportedState.NEVER and check.state not in _MAY_BE_WITHDRAWN:
        return replace(change, state=None)
    if report.state is ReportedState.NEVER and check.state is AttemptState.UNKNOWN:
        # It never answered the submission: nobody knows whose fault that was. The attempt is charged all the
        # same, or a message that kills its dispatcher each time would go round until its lifetime ends.
        return replace(change, error_class=ErrorClass.TEMPORARY)
    if report.state is ReportedState.NEVER or nothing_to_show:
        # It took the message, and did not send it in time.
        fault = replace(change, error_class=ErrorClass.SENDER_FAULT, error_code=SERVICE_ERROR, reason="timeout_125")
        return replace(fault, overdue=nothing_to_show)
    return change
