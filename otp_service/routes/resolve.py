"""Asking the other side about attempts that do not report: unknown ones, and overdue receipts.

An unknown attempt is first asked about; if a host has never heard of it, it gets a tombstone, so that the copy that is
sent elsewhere is the only one. Where nobody can say whether a copy has left by the time that its receipt should have
come, it is decided what becomes of the message. Nothing here sends.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast
from uuid import UUID

import aiohttp
import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Prefetch

from otp_service.core import clock
from otp_service.core.crypto import CryptoError
from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, StatusReport
from otp_service.messages.models import Attempt, Message
from otp_service.messages.rules import AttemptState
from otp_service.routes import rules
from otp_service.routes.changes import Change
from otp_service.routes.eligibility import Terms
from otp_service.routes.providers.base import OutsideProvider, Provider, Question
from otp_service.routes.receipts import change_of, take_orphans
from otp_service.routes.route_rules import RouteKind, RouteSpec
from otp_service.routes.settle import apply_changes, update_rows
from servers.hosts import address_of, mark_seen
from servers.models import Server
from servers.relay.base import HostAddress, Known, RelayAdapter
from servers.relay.bluebubbles import SEND_WINDOW
from servers.relay.error_codes import DEFAULT_CODE, SERVICE_ERROR, error_class
from servers.rules import RelayProtocol

log = structlog.get_logger(__name__)

#: Answers of a host that is there, and cannot say what became of an attempt.
_NO_OUTCOME = frozenset({ReportedState.QUEUED, ReportedState.UNKNOWN, ReportedState.NOT_FOUND})


#: What was sent is out: no promise about it is asked for, or believed.
_MAY_BE_WITHDRAWN = frozenset({AttemptState.UNKNOWN, AttemptState.ACCEPTED})


@dataclass(frozen=True, slots=True)
class Check:
    """One attempt that the other side is to be asked about: a host, or a provider; or nobody, where nobody can say."""

    attempt_id: int
    attempt_uuid: UUID
    state: AttemptState
    owner: int | str  # the host's id, or the route's name
    host: HostAddress | None = None
    known: Known | None = None  # where the host does not keep our ids
    question: Question | None = None
    is_overdue: bool = True  # silent for so long that it may be held against the server
    is_due: bool = False  # unclear for so long that it is to be decided what becomes of its message
    was_asked: bool = False  # about before
    next_at: datetime | None = None  # when it is looked at again, once that is decided


def claim_checks(
    *,
    now: datetime,
    routes: Mapping[str, tuple[RouteSpec, Terms]],
    batch: int = 50,
    without: Collection[int | str] = (),
) -> list[Check]:
    """Take attempts whose time to be asked about has come; the next time is set before anybody is asked.

    Those of the hosts and routes of `without` wait for another turn; of its routes not for longer than TURN, and nobody
    is asked then: what is to be decided is decided all the same.
    """
    hosts = [owner for owner in without if isinstance(owner, int)]
    busy_routes = [owner for owner in without if isinstance(owner, str)]
    with transaction.atomic():
        # Servers are read afterwards: joined here, the planner may begin with them.
        due = list(
            Attempt.objects.filter(check_at__lte=now)
            .exclude(server__in=Server.objects.filter(host__in=hosts).values("id"))
            .exclude(route__in=busy_routes, check_at__gt=now - TURN)
            .order_by("check_at")
            .select_for_update(no_key=True, skip_locked=True)
            .prefetch_related(Prefetch("server", Server.objects.select_related("host")))
            .defer("raw_reply")[:batch]
        )
        found = [_found(attempt, routes, without) for attempt in due]
        columns = {"check_at": "timestamptz", "checks_made": "smallint"}
        update_rows(Attempt._meta.db_table, columns, [each.asked(now) for each in found])
    numbers = _numbers([each.attempt for each in found if each.can_query])
    known = _known([each.attempt for each in found if each.must_be_found])
    return [
        each.check(numbers.get(each.attempt.message_id), known.get(each.attempt.id), now)
        for each in found
        if each.matters
    ]


#: For so long an attempt waits until its provider, who has as many questions as it may, can be asked.
TURN = timedelta(seconds=5)
#: A decision that is not written by then (its process died) falls due again.
DECIDED_WITHIN = timedelta(seconds=10)
_MOST_CHECKS = 1_000  # that are counted: after so many nothing depends on their number


#: Of a route that is not there any more, and of pools that have no row.
_OF_POOLS = Terms()


@dataclass(frozen=True, slots=True)
class _Found:
    """An attempt, and the route that carried it."""

    attempt: Attempt
    spec: RouteSpec | None
    terms: Terms
    is_busy: bool = False  # its provider has as many questions as it may

    @property
    def can_query(self) -> bool:
        """Whether a provider can be asked."""
        return self.attempt.server_id is None and self.spec is not None and self.terms.can_query

    @property
    def must_be_found(self) -> bool:
        """Whether it is on a host that does not keep our ids."""
        server = self.attempt.server
        return server is not None and server.host.protocol == RelayProtocol.BLUEBUBBLES

    @property
    def matters(self) -> bool:
        """Whether anything can come of it."""
        return self.attempt.server_id is not None or self.can_query or self.attempt.state == AttemptState.UNKNOWN

    @property
    def decides_at(self) -> datetime:
        """When a receipt of it should have come, if a copy has left."""
        return self.attempt.claimed_at + (self.terms.delivery if self.terms.has_receipts else timedelta())

    @property
    def is_unclear(self) -> bool:
        """Whether anybody has to decide what becomes of its message."""
        return self.attempt.state == AttemptState.UNKNOWN

    def next_at(self, now: datetime) -> datetime | None:
        """When it is looked at again: by the pauses, while anybody can be asked; at the latest when it is decided."""
        can_answer = self.attempt.server_id is not None or self.can_query
        pause = rules.check_pause(self.attempt.checks_made) if can_answer else None
        times = [] if pause is None else [now + pause]
        if self.is_unclear and now < self.decides_at:
            times.append(self.decides_at)
        return min(times, default=None)

    def asked(self, now: datetime) -> dict[str, Any]:
        """Its next time. One that is due is decided before that; if nobody does, it comes back soon."""
        next_at = self.next_at(now)
        if self.is_unclear and now >= self.decides_at:
            next_at = min(next_at or now + DECIDED_WITHIN, now + DECIDED_WITHIN)
        return {
            "id": self.attempt.id,
            "check_at": next_at,
            "checks_made": min(self.attempt.checks_made + (not self.is_busy), _MOST_CHECKS),
        }

    @property
    def overdue_at(self) -> datetime:
        """When its host should have told of it. It may be asked earlier, where something hints at news."""
        return (self.attempt.settled_at or self.attempt.claimed_at) + (self.terms.receipt_wait or settings.RECEIPT_WAIT)

    def check(self, number: str | None, known: Known | None, now: datetime) -> Check:
        """What is to be asked. `number`: the recipient's, for a provider; `known`: for a host without our ids."""
        attempt, server = self.attempt, self.attempt.server
        host = address_of(server.host, now=now) if server is not None else None
        question = None
        if self.can_query and not self.is_busy and self.spec is not None and number is not None:
            question = Question(self.spec, attempt.uuid, attempt.provider_message_id, number, attempt.claimed_at)
        return Check(
            attempt_id=attempt.id,
            attempt_uuid=attempt.uuid,
            state=AttemptState(attempt.state),
            owner=attempt.route if host is None else host.host_id,
            host=host,
            known=known,
            question=question,
            is_overdue=not self.must_be_found or now >= self.overdue_at,
            is_due=self.is_unclear and now >= self.decides_at,
            was_asked=attempt.checks_made > 0,
            next_at=self.next_at(now),
        )


def _found(attempt: Attempt, routes: Mapping[str, tuple[RouteSpec, Terms]], without: Collection[int | str]) -> _Found:
    spec, terms = routes.get(attempt.route, (None, _OF_POOLS))
    return _Found(attempt, spec, terms, is_busy=attempt.route in without)


def _numbers(attempts: Sequence[Attempt]) -> dict[int, str]:
    """By message: the number that it went to. One that cannot be opened is not asked about."""
    if not attempts:
        return {}
    messages = Message.objects.filter(id__in=[each.message_id for each in attempts]).only("to")
    return {message.pk: number for message in messages if (number := _opened(message, "to")) is not None}


def _opened(message: Message, field: str) -> str | None:
    """What cannot be opened here must not hold up the others. It may be a key that is missing."""
    try:
        return str(getattr(message, field))
    except CryptoError as error:
        log.error("message_unreadable", message=message.pk, error=str(error))  # noqa: TRY400 - frames may hold texts
        return None


def _known(attempts: Sequence[Attempt]) -> dict[int, Known]:
    """By attempt: how a host that does not keep our ids finds its message."""
    if not attempts:
        return {}
    messages = Message.objects.only("to", "text").in_bulk([attempt.message_id for attempt in attempts])
    known = {}
    for attempt in attempts:
        to, text = (_opened(messages[attempt.message_id], field) for field in ("to", "text"))
        if to is not None and text is not None:
            others = frozenset(_guids_beside(attempt))
            guid = attempt.provider_message_id
            known[attempt.id] = Known(to, (text,), submitted_at=attempt.claimed_at, guid=guid, others=others)
    return known


_BESIDE = 50  # attempts of a server that may have been sent within SEND_WINDOW of another; far more than it may send


def _guids_beside(attempt: Attempt) -> Iterable[str]:
    """What its host calls the other attempts of about that time."""
    others = Attempt.objects.filter(server=attempt.server, claimed_at__gte=attempt.claimed_at - SEND_WINDOW)
    named = others.exclude(pk=attempt.pk).exclude(provider_message_id="").order_by("-id")
    return named.values_list("provider_message_id", flat=True)[:_BESIDE]


Answer = TypeVar("Answer", bound=StatusReport | None)


async def ask(
    check: Check, adapter: RelayAdapter, providers: Mapping[RouteKind, Provider], session: aiohttp.ClientSession
) -> StatusReport:
    """Where the attempt stands. NEVER only where the other side promises that it will not be sent."""
    if check.host is not None:
        return await _in_time(check, _ask_host(check, check.host, adapter, session))
    if check.question is None or (check.is_due and check.was_asked):  # who hangs keeps nobody waiting again
        return _NOBODY
    provider = cast("OutsideProvider", providers[check.question.spec.kind])
    return await _in_time(check, provider.query(session, check.question)) or _NOBODY


async def _in_time(check: Check, answer: Awaitable[Answer]) -> Answer | StatusReport:
    """Who hangs does not put off what is to be decided."""
    if not check.is_due:
        return await answer
    try:
        return await asyncio.wait_for(answer, _ANSWERED_WITHIN_S)
    except TimeoutError:
        return _NOBODY


_ANSWERED_WITHIN_S = 2.0
#: Nobody can be asked.
_NOBODY = StatusReport(ReportedState.UNKNOWN, answered=False)


async def _ask_host(
    check: Check, host: HostAddress, adapter: RelayAdapter, session: aiohttp.ClientSession
) -> StatusReport:
    report = await adapter.query(session, host, check.attempt_uuid, check.known)
    if not report.answered or report.state not in _NO_OUTCOME or check.state not in _MAY_BE_WITHDRAWN:
        return report
    is_queued = check.state is AttemptState.UNKNOWN and report.state is ReportedState.QUEUED
    still_in_time = is_queued or not check.is_overdue
    if still_in_time:
        return report
    return await adapter.tombstone(session, host, check.attempt_uuid)


def apply_answers(
    answers: Sequence[tuple[Check, StatusReport]], *, now: datetime, rng: random.Random = clock.rng
) -> int:
    """Write what was answered, and what is to be decided without an answer; returns how many attempts changed."""
    answered = [(check, report) for check, report in answers if report.answered]
    learned = {
        (check.owner, report.provider_message_id): check.attempt_id
        for check, report in answered
        if report.provider_message_id
    }
    with transaction.atomic():
        changes = [_change(check, report, now) for check, report in answered]
        # Last: what an answer says of an attempt is known by then.
        due = [check for check, _ in answers if check.is_due]
        undecided = [Change(check.attempt_id, undecided=True, check_at=check.next_at) for check in due]
        changed = apply_changes([*take_orphans(learned, now=now), *changes, *undecided], now=now, rng=rng)
    for host_id in {check.host.host_id for check, _ in answered if check.host is not None}:
        mark_seen(host_id, now=now)
    return changed


def _change(check: Check, report: StatusReport, now: datetime) -> Change:
    receipt = Receipt(
        report.state,
        provider_message_id=report.provider_message_id,
        service=report.service,
        error_class=report.error_class,
        error_code=report.error_code,
    )
    change = change_of(check.attempt_id, receipt, now=now)
    if check.host is None:
        return _change_of_route(change)
    has_shown_nothing = check.state is AttemptState.ACCEPTED and report.state in _NO_OUTCOME
    nothing_to_show = has_shown_nothing and check.is_overdue
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


def _change_of_route(change: Change) -> Change:
    """A provider that will not send it says no more than that it was not sent."""
    if change.state is AttemptState.NOT_SUBMITTED:
        return replace(change, error_class=change.error_class or ErrorClass.TEMPORARY)
    return change
