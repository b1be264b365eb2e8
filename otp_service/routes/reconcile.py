"""Comparing the attempts of a day (UTC) with what their providers say of them: asked one by one, or by a file.

It changes nothing, but that a state which a provider answers with is taken as a receipt of it. What was found is a
Tally that grows: each function yields it again and again, and may be left at any time.
"""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import aiohttp
import structlog
from django.db import connection, transaction
from django.db.models import QuerySet

from otp_service.core.errors import ServiceError
from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, StatusReport
from otp_service.events import log as events
from otp_service.events.models import Event
from otp_service.messages.models import Attempt
from otp_service.messages.rules import AttemptState
from otp_service.routes import id_ranges, price_files, receipts, table
from otp_service.routes.breakers import subject_of
from otp_service.routes.models import Route
from otp_service.routes.price_files import BadLine, Priced
from otp_service.routes.providers.base import OutsideProvider, Question
from otp_service.routes.providers.foreign_ids import normal_id
from otp_service.routes.providers.http_json import HttpJson
from otp_service.routes.providers.twilio import Twilio
from otp_service.routes.reconcile_rules import EXAMPLES, Difference, Kind, Ours, Tally, Theirs
from otp_service.routes.route_rules import RouteKind, RouteSpec

log = structlog.get_logger(__name__)

RECONCILED = "route.reconciled"
#: Those whose APIs answer questions. The others report by themselves.
PROVIDERS: Mapping[RouteKind, OutsideProvider] = {RouteKind.TWILIO: Twilio(), RouteKind.HTTP_JSON: HttpJson()}
#: Questions under way at once, and a second where the route has no rate of its own.
AT_ONCE, TPS = 8, 10.0
_BATCH = 100  # attempts: what an interruption loses at most
_LINES = 500  # of a file, that are looked up together
#: A night's work: from this hour (UTC) on, when late receipts are in, and within what a task may take.
NIGHT_BEGINS, NIGHTLY_TIME, NIGHTLY_MOST = 3, timedelta(seconds=200), 5_000
_LOCK = 0x7265636F  # "reco": the advisory lock, apart from everybody else's
_OPEN = [AttemptState.UNKNOWN.value, AttemptState.ACCEPTED.value, AttemptState.SENT.value]
_ENDED = [AttemptState.DELIVERED.value, AttemptState.FAILED.value]
#: Kinds whose ids are kept in one spelling.
_SPELT_ANEW = frozenset({RouteKind.KANNEL, RouteKind.SMPP})

Clock = Callable[[], datetime]
T = TypeVar("T")


class CannotReconcile(ServiceError):
    """The route is not there, or its provider cannot be asked."""

    code = "cannot_reconcile"
    title = "The route cannot be reconciled"


# --- by questions --------------------------------------------------------------------------------------


def queryable(only: str = "") -> list[RouteSpec]:
    """Routes whose providers can be asked, or the one of this name. Raises CannotReconcile."""
    routes = table.load_with_terms()
    specs = [spec for spec, terms in routes.values() if terms.can_query and spec.kind in PROVIDERS]
    if not only:
        return sorted(specs, key=lambda spec: spec.name)
    _check_name(only)
    found = [spec for spec in specs if spec.name == only]
    if not found:
        raise CannotReconcile(f"The provider of {only} cannot be asked: give a file of it, or set can_query if it can.")
    return found


def by_questions(
    spec: RouteSpec, day: date, *, clock: Clock, until: float = math.inf, most: int | None = None
) -> Iterator[Tally]:
    """Ask about a route's attempts of a day, those that have not ended first, as fast as the route's rate allows.

    `until`: monotonic seconds; `most`: attempts.
    """
    ids = _ids(spec.name, day)
    tally = Tally(spec.name, attempts=len(ids))
    yield tally
    pace, ids = _Pace(spec.tps or TPS, until), ids[:most]
    for start in range(0, len(ids), _BATCH):
        asked = _rows(Attempt.objects.filter(id__in=ids[start : start + _BATCH]))
        answers = asyncio.run(_answers(_questions(spec, asked), pace))
        _take(tally, [(row, answers[row.id]) for row in asked if row.id in answers], now=clock())
        yield tally
        if pace.is_over:
            return


@dataclass(frozen=True, slots=True)
class _Row:
    """An attempt that is compared."""

    id: int
    uuid: UUID
    state: str
    provider_message_id: str
    parts: int | None
    cost: Decimal | None
    currency: str
    claimed_at: datetime

    @property
    def ours(self) -> Ours:
        """As the rules see it."""
        return Ours(self.uuid, AttemptState(self.state), self.parts, self.cost, self.currency)


_COLUMNS = ("id", "uuid", "state", "provider_message_id", "parts", "cost", "currency", "claimed_at")


def _rows(attempts: QuerySet[Attempt]) -> list[_Row]:
    return [_Row(*values) for values in attempts.order_by("id").values_list(*_COLUMNS)]


def _ids(route: str, day: date) -> array[int]:
    """Attempts of a day that were handed over, or may have been: those that have not ended, then the others."""
    since = datetime(day.year, day.month, day.day, tzinfo=UTC)
    until = since + timedelta(days=1)
    ids = id_ranges.within(Attempt, "claimed_at", since, until)
    of_day = Attempt.objects.filter(
        id__range=(ids.first, ids.last), claimed_at__gte=since, claimed_at__lt=until, route=route
    )
    found = array("q")
    for states in (_OPEN, _ENDED):
        found.extend(of_day.filter(state__in=states).order_by("id").values_list("id", flat=True))
    return found


class _Pace:
    """When the next question may be asked. `is_over`: not any more."""

    def __init__(self, tps: float, until: float) -> None:
        self._gap = 1 / tps
        self._until = until
        self._next = 0.0
        self.is_over = time.monotonic() >= until

    async def turn(self) -> bool:
        """Wait for it; False where there is none in time."""
        at = max(self._next, time.monotonic())
        if at >= self._until:
            self.is_over = True
            return False
        self._next = at + self._gap
        await asyncio.sleep(at - time.monotonic())
        return True


def _questions(spec: RouteSpec, rows: Sequence[_Row]) -> list[tuple[int, Question]]:
    attempts = Attempt.objects.filter(id__in=[row.id for row in rows]).select_related("message")
    numbers = {attempt.id: attempt.message.to for attempt in attempts.only("message", "message__to")}
    return [
        (row.id, Question(spec, row.uuid, row.provider_message_id, numbers[row.id], row.claimed_at))
        for row in rows
        if row.id in numbers
    ]


async def _answers(questions: Sequence[tuple[int, Question]], pace: _Pace) -> dict[int, StatusReport | None]:
    """By attempt: what was answered, None for nothing. Those for which the time was over are left out."""
    answers: dict[int, StatusReport | None] = {}
    pending = iter(questions)

    async def ask(session: aiohttp.ClientSession) -> None:
        for attempt_id, question in pending:
            if not await pace.turn():
                return
            answers[attempt_id] = await _answer(session, question)

    async with aiohttp.ClientSession(trust_env=False) as session, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(ask(session))
    return answers


async def _answer(session: aiohttp.ClientSession, question: Question) -> StatusReport | None:
    try:
        return await PROVIDERS[question.spec.kind].query(session, question)
    except Exception as error:  # noqa: BLE001 - one attempt's trouble is not another's
        log.warning("question_failed", attempt=str(question.attempt_uuid), error=type(error).__name__)
        return None


def _take(tally: Tally, answers: Sequence[tuple[_Row, StatusReport | None]], *, now: datetime) -> None:
    """Compare what was answered with what we knew, then let what is new in."""
    news = []
    for row, report in answers:
        if report is None or not report.answered or report.state is ReportedState.UNKNOWN:
            tally.unanswered += 1
            continue
        differences = tally.add(row.ours, Theirs(report.state))
        if any(difference.kind is Kind.STATE for difference in differences):
            news.append(_receipt(row, report))
    tally.learned += receipts.apply_route_receipts(tally.route, news, now=now)


def _receipt(row: _Row, report: StatusReport) -> Receipt:
    """A failure that the provider does not explain is nobody's fault that we know of."""
    failed = report.state in {ReportedState.FAILED, ReportedState.NEVER}
    return Receipt(
        report.state,
        attempt_uuid=row.uuid,
        provider_message_id=report.provider_message_id,
        service=report.service,
        error_class=(report.error_class or ErrorClass.TEMPORARY) if failed else None,
        error_code=report.error_code,
    )


# --- by a file -----------------------------------------------------------------------------------------


def by_file(route: str, day: date, path: Path) -> Iterator[Tally]:
    """Compare a file's lines with the route's attempts, of whatever day, and look for those of the day in the file.

    Raises price_files.UnreadableFile, for a bad header before anything else; CannotReconcile.
    """
    lines = price_files.read(path)
    first = list(islice(lines, 1))
    kind = _check_name(route)
    tally = Tally(route)
    seen: set[int] = set()
    yield tally
    for lot in _in_lots(chain(first, lines)):
        _compare_lines(tally, kind, lot, seen)
        yield tally
    ids = _ids(route, day)
    tally.attempts = len(ids)
    _note_missing(tally, [attempt_id for attempt_id in ids if attempt_id not in seen])
    yield tally


def _check_name(name: str) -> RouteKind:
    """The route's kind. Raises CannotReconcile where there is no such route."""
    kind = Route.objects.filter(name=name).values_list("kind", flat=True).first()
    if kind is None:
        raise CannotReconcile(f"There is no route {name!r}: look its name up among the routes.")
    return RouteKind(kind)


def _in_lots(lines: Iterator[T]) -> Iterator[list[T]]:
    while lot := list(islice(lines, _LINES)):
        yield lot


def _compare_lines(tally: Tally, kind: RouteKind, lines: Sequence[Priced | BadLine], seen: set[int]) -> None:
    """`seen`: attempts that the file named so far."""
    priced = [line for line in lines if isinstance(line, Priced)]
    known = _named(tally.route, {_spelt(kind, line.id) for line in priced})
    for line in lines:
        if isinstance(line, BadLine):
            tally.note_bad(line.number, line.why)
            continue
        theirs = Theirs(line.state, line.parts, line.cost, line.currency)
        row = known.get(_spelt(kind, line.id))
        if row is None or row.id in seen:
            about = str(row.uuid) if row else f"line {line.number}, id {line.id}"
            tally.note(Difference(Kind.TWICE if row else Kind.NOT_OURS, about, "", line.state or ""))
            tally.count_cost(theirs)
            continue
        seen.add(row.id)
        tally.add(row.ours, theirs)


def _named(route: str, ids: Collection[str]) -> dict[str, _Row]:
    """The route's attempts by these ids, theirs or ours; of two with one id of theirs, the newer one."""
    uuids = {uuid: text for text in ids if (uuid := _uuid(text))}
    of_route = Attempt.objects.filter(route=route)
    by_theirs = _rows(of_route.filter(provider_message_id__in=ids).exclude(provider_message_id=""))
    by_ours = _rows(of_route.filter(uuid__in=uuids))
    return {
        **{row.provider_message_id: row for row in by_theirs},
        **{uuids[row.uuid]: row for row in by_ours},
    }


def _spelt(kind: RouteKind, text: str) -> str:
    return normal_id(text) if kind in _SPELT_ANEW else text


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _note_missing(tally: Tally, ids: Sequence[int]) -> None:
    """Attempts of ours that the file does not name."""
    for row in _rows(Attempt.objects.filter(id__in=ids[:EXAMPLES])):
        tally.note(Difference(Kind.NOT_THEIRS, str(row.uuid), row.state, ""))
    tally.differences.update({Kind.NOT_THEIRS: len(ids[EXAMPLES:])} if len(ids) > EXAMPLES else {})


# --- every night ---------------------------------------------------------------------------------------


def nightly(*, clock: Clock) -> int:
    """Reconcile yesterday's attempts of the routes that can be asked; returns how many routes were.

    Bounded in time and attempts, and once for each route and day: safe to call at any time, and several at once.
    """
    now = clock().astimezone(UTC)
    day = now.date() - timedelta(days=1)
    if now.hour < NIGHT_BEGINS:
        return 0
    due = [spec for spec in queryable() if not _is_told(spec.name, day)]
    ends = time.monotonic() + NIGHTLY_TIME.total_seconds()
    for left, spec in zip(range(len(due), 0, -1), due, strict=True):
        at = time.monotonic()
        *_, tally = by_questions(spec, day, clock=clock, until=at + (ends - at) / left, most=NIGHTLY_MOST)
        _tell(tally, day, now=clock())
    return len(due)


def _is_told(route: str, day: date) -> bool:
    told = Event.objects.filter(subject_uuid=subject_of(route), type=RECONCILED, data__day=day.isoformat())
    return told.exists()


def _tell(tally: Tally, day: date, *, now: datetime) -> None:
    """Counts to the log and to the events. Losing: another process has told of this day."""
    told = {"day": day.isoformat(), **tally.counts()}
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        if _is_told(tally.route, day):
            return
        events.record(RECONCILED, at=now, subject_uuid=subject_of(tally.route), data=told)
    log.info("route_reconciled", **told)
