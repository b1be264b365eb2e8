"""The breakers of routes: what became of calls is noted, breakers change, probes get tickets, people intervene."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Count, F, Q

from otp_service.core import clock
from otp_service.core.errors import ServiceError
from otp_service.core.outcomes import ErrorClass
from otp_service.events import log as events
from otp_service.routes import breaker_rules as rules
from otp_service.routes import table
from otp_service.routes.breaker_models import LONGEST_NAME, LONGEST_REASON, Breaker, ProbeTicket
from otp_service.routes.breaker_rules import (
    Admission,
    BreakerState,
    Close,
    Enable,
    Ending,
    HalfOpen,
    Isolate,
    Limits,
    Open,
    Probes,
    Sign,
    Standing,
    Stay,
    Step,
)
from otp_service.routes.models import Route
from otp_service.routes.samples import CallSample, ReceiptSample, Samples, Window
from otp_service.web.batches import remove_batch

log = structlog.get_logger(__name__)

#: How long tickets are kept after they expired, for people who ask what the probes were.
TICKETS_KEPT = timedelta(days=7)
_SUBJECTS = uuid.UUID("0c7c1f0e-6f3b-4c39-9d7b-0a5d9b1f6e42")  # the subject of a route's events is made from it
_CLOSED = Standing()


# --- noting --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallEnded:
    """One call. `generation`: the breaker's when the attempt was claimed. `error_class` None: it was accepted."""

    route: str
    generation: int
    submitted_at: datetime
    ended_at: datetime
    duration: timedelta
    error_class: ErrorClass | None = None
    ticket: int | None = None  # of a probe


@dataclass(frozen=True, slots=True)
class Reported:
    """How an accepted attempt ended, told once. `submitted_at` as it was given when its call ended."""

    route: str
    submitted_at: datetime
    at: datetime
    delivered: bool
    error_class: ErrorClass | None = None


def note(
    calls: Sequence[CallEnded],
    reports: Sequence[Reported],
    limits: Mapping[str, Limits],
    samples: Samples,
    *,
    now: datetime,
) -> None:
    """Count what became of calls and of accepted attempts. Outside a transaction; raises what the database raises."""
    signs = [(call, _sign(call, limits)) for call in calls]
    accepted = Counter((call.route, call.submitted_at) for call in calls if call.error_class is None)
    samples.add(
        [CallSample(call.route, call.generation, call.ended_at, sign, call.duration) for call, sign in signs],
        [
            *(ReceiptSample(route, at, number=number) for (route, at), number in accepted.items()),
            *(_receipt(report) for report in reports),
        ],
        limits,
        now=now,
    )
    for call, sign in signs:
        if call.ticket is not None:
            _end_probe(call.ticket, sign, now)


def _sign(call: CallEnded, limits: Mapping[str, Limits]) -> Sign:
    """A route without limits was removed meanwhile."""
    if call.route not in limits:
        return Sign.NOTHING
    return rules.sign(call.error_class, call.duration, limits[call.route].slow_after)


def _receipt(report: Reported) -> ReceiptSample:
    ending = Ending.DELIVERED if report.delivered else rules.failed_ending(report.error_class)
    return ReceiptSample(report.route, report.submitted_at, ending, max(timedelta(), report.at - report.submitted_at))


def _end_probe(ticket: int, sign: Sign, now: datetime) -> None:
    """The first result of a probe stands; one that says nothing of the route gives its place back."""
    tickets = ProbeTicket.objects.filter(pk=ticket, ended_at=None)
    if sign is Sign.NOTHING:
        tickets.delete()
    else:
        tickets.update(ended_at=now, good=sign is Sign.GOOD)


# --- deciding ------------------------------------------------------------------------------------------


def standings() -> dict[str, Standing]:
    """Where the breakers stand, by route; a route that is missing has a closed one that never changed."""
    return {row.route: _standing(row) for row in Breaker.objects.all()}


def windows(limits: Mapping[str, Limits], samples: Samples, *, now: datetime) -> dict[str, Window]:
    """What is known of each route now: for its weight, and for people. Outside a transaction."""
    return _windows(standings(), limits, samples, now)


def decide(
    limits: Mapping[str, Limits], samples: Samples, *, now: datetime, rng: random.Random = clock.rng
) -> dict[str, Standing]:
    """Look at the breakers of these routes, and change what is due; returns those that changed, as they stand now.

    Safe at any time and several at once. Outside a transaction: each change is one of its own.
    """
    known = standings()
    found = _windows(known, limits, samples, now)
    probes = _probes([name for name in limits if known.get(name, _CLOSED).state is BreakerState.HALF_OPEN])
    changed = {}
    for name in sorted(limits):
        standing, window = known.get(name, _CLOSED), found[name]
        step = rules.decide(standing, window.calls, window.receipts, probes.get(name, Probes()), now)
        if isinstance(step, Stay):
            continue
        new = rules.after(standing, step, now, rng)
        if _carry_out(_Change(name, standing, new, step, _figures(window) if isinstance(step, Open) else {}), now):
            changed[name] = new
    return changed


def _standing(row: Breaker) -> Standing:
    return Standing(
        state=BreakerState(row.state),
        generation=row.generation,
        since=row.since,
        opened_at=row.opened_at,
        pause=row.pause,
        until=row.until,
        isolated_by=row.isolated_by,
        reason=row.reason,
    )


def _windows(
    known: Mapping[str, Standing], limits: Mapping[str, Limits], samples: Samples, now: datetime
) -> dict[str, Window]:
    return samples.read({name: (known.get(name, _CLOSED), limit) for name, limit in limits.items()}, now=now)


def _probes(names: Collection[str]) -> dict[str, Probes]:
    if not names:
        return {}
    tickets = ProbeTicket.objects.filter(breaker__route__in=names, generation=F("breaker__generation"))
    counts = tickets.values_list("breaker__route").annotate(
        well=Count("pk", filter=Q(good=True)), badly=Count("pk", filter=Q(good=False))
    )
    return {name: Probes(well, badly) for name, well, badly in counts.order_by()}


def _figures(window: Window) -> dict[str, Any]:
    """What was known when it opened; ratios are to the route's limits."""
    return {"calls": asdict(window.calls), "receipts": asdict(window.receipts)}


@dataclass(frozen=True, slots=True)
class _Change:
    """A step of one route's breaker, from where it was read to stand; `data` is for its event."""

    route: str
    old: Standing
    new: Standing
    step: Step
    data: Mapping[str, Any]


def _carry_out(change: _Change, now: datetime) -> bool:
    """Write a change and its event, unless the breaker has changed since it was read: then another was first."""
    with transaction.atomic():
        if change.old == _CLOSED:
            Breaker.objects.bulk_create([Breaker(route=change.route)], ignore_conflicts=True)
        as_read = Breaker.objects.filter(route=change.route, generation=change.old.generation)
        if not as_read.update(**asdict(change.new)):
            return False
        _tell(change, now)
    return True


#: What a step is called in the events.
_EVENTS: Mapping[type[Step], str] = {
    Open: "route.breaker_opened",
    HalfOpen: "route.breaker_half_open",
    Close: "route.breaker_closed",
    Isolate: "route.isolated",
    Enable: "route.enabled",
}


def _tell(change: _Change, now: datetime) -> None:
    """To the log of events, and as the alert to whoever watches the logs once it is true."""
    event, route, new = _EVENTS[type(change.step)], change.route, change.new
    told = {"route": route, "generation": new.generation, "old": change.old.state.value, "new": new.state.value}
    told |= asdict(change.step) | dict(change.data)
    if new.until is not None and new.pause is not None:
        told |= {"pause_s": new.pause.total_seconds(), "until": new.until.isoformat()}
    events.record(event, at=now, subject_uuid=subject_of(route), data=told)
    transaction.on_commit(lambda: log.warning(event.removeprefix("route."), route=route, state=new.state.value))


def subject_of(route: str) -> uuid.UUID:
    """The subject of the events of a route's breaker."""
    return uuid.uuid5(_SUBJECTS, route)


# --- probes --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tickets:
    """Leave for so many probes, and the generation that their calls are of."""

    generation: int
    ids: tuple[int, ...]


def take_tickets(route: str, wanted: int, *, now: datetime, only_way_of_otp: bool = False) -> Tickets:
    """Leave for up to `wanted` probes of a route: none where nothing may pass, and none where no leave is needed."""
    with transaction.atomic():
        breaker = Breaker.objects.select_for_update(no_key=True).filter(route=route).first()
        if breaker is None:
            return Tickets(0, ())
        state = BreakerState(breaker.state)
        if rules.admission(state, only_way_of_otp=only_way_of_otp) is not Admission.PROBES:
            return Tickets(breaker.generation, ())
        of_era = breaker.tickets.filter(generation=breaker.generation)
        counts = of_era.aggregate(
            out=Count("pk", filter=Q(ended_at=None, expires_at__gt=now)), ended=Count("pk", filter=~Q(ended_at=None))
        )
        number = min(wanted, rules.tickets_left(state, **counts))
        ticket = {"generation": breaker.generation, "expires_at": now + rules.TICKET_LIFE}
        made = ProbeTicket.objects.bulk_create(ProbeTicket(breaker=breaker, **ticket) for _ in range(number))
    return Tickets(breaker.generation, tuple(row.pk for row in made))


def use_tickets(attempts: Mapping[int, int]) -> None:
    """Say which attempts the probes are: ids of attempts by ids of tickets. In the transaction that makes them."""
    for ticket, attempt_id in sorted(attempts.items()):
        ProbeTicket.objects.filter(pk=ticket, attempt_id=None, ended_at=None).update(attempt_id=attempt_id)


def give_back(tickets: Collection[int]) -> None:
    """Tickets that no attempt used make place for others. Whoever dies before gives them back when they expire."""
    ProbeTicket.objects.filter(pk__in=tickets, attempt_id=None, ended_at=None).delete()


def remove_old(now: datetime, batch: int = 1000) -> int:
    """Remove a batch of tickets that decide nothing any more; returns how many."""
    old = ProbeTicket.objects.filter(expires_at__lt=now - TICKETS_KEPT).exclude(generation=F("breaker__generation"))
    return remove_batch(old.order_by("expires_at"), batch)


# --- people --------------------------------------------------------------------------------------------


class UnknownRoute(ServiceError):
    """There is no route of this name."""

    status = 404
    code = "unknown_route"
    title = "There is no such route"


class InvalidVerdict(ServiceError):
    """Who decided, or why, is missing or too long."""

    code = "invalid_verdict"
    title = "The breaker cannot be changed"


def isolate(route: str, *, by: str, reason: str, now: datetime) -> bool:
    """Shut a route off until it is enabled; False: it was, and stays as it is. Raises UnknownRoute, InvalidVerdict."""
    by, reason = _checked(by, "by"), _checked(reason, "reason")
    return _intervene(route, Isolate(by, reason), BreakerState.ISOLATED, {}, now)


def enable(route: str, *, by: str, reason: str, now: datetime) -> bool:
    """Let everything through, whatever shut the route off; False: nothing did. Raises UnknownRoute, InvalidVerdict."""
    told = {"by": _checked(by, "by"), "reason": _checked(reason, "reason")}
    return _intervene(route, Enable(), BreakerState.CLOSED, told, now)


def _checked(text: str, name: str) -> str:
    longest, what = (LONGEST_NAME, "who decides") if name == "by" else (LONGEST_REASON, "why")
    text = text.strip()
    if not text or "\0" in text or len(text) > longest:
        raise InvalidVerdict(f"{name}: write {what}, in 1 to {longest} characters.", field=name)
    return text


def _intervene(
    route: str, step: Isolate | Enable, wanted: BreakerState, data: Mapping[str, Any], now: datetime
) -> bool:
    """A person's decision waits for a change that is under way, and is made on what comes of it."""
    if not _exists(route):
        raise UnknownRoute("Look the name up among the routes: it is the channel, a colon and a word.")
    with transaction.atomic():
        Breaker.objects.bulk_create([Breaker(route=route)], ignore_conflicts=True)
        old = _standing(Breaker.objects.select_for_update(no_key=True).get(route=route))
        if old.state is wanted:
            return False
        return _carry_out(_Change(route, old, rules.after(old, step, now, clock.rng), step, data), now)


def _exists(route: str) -> bool:
    """A pool that numbers go to needs no row."""
    return "\0" not in route and (Route.objects.filter(name=route).exists() or route in table.load())
