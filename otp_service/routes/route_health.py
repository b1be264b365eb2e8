"""How routes do at this moment: what their breakers let through, how good they are, what is told of them.

Only routes to providers are judged. Of a pool each server and each host is judged for itself: one dead host of many is
no reason to leave the pool, and a few that fail would hide in the figures of all. A person may isolate a pool, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.conf import settings

from otp_service.routes import breaker_rules, breakers, table
from otp_service.routes.breaker_rules import LEAST_VOLUME, PROBES, BreakerState, Limits, share, weight
from otp_service.routes.breakers import CallEnded, Reported, Tickets
from otp_service.routes.eligibility import Standing, Terms
from otp_service.routes.route_rules import RouteKind, RouteSpec
from otp_service.routes.samples import Samples, Window

log = structlog.get_logger(__name__)

#: A call is slow when it takes so many times what is normal, and longer than this: a client's code can wait for two
#: seconds, and a route that answers in 50 ms is not ill when it takes 300.
SLOW_TIMES, LEAST_SLOW = 5, timedelta(seconds=2)
#: A delivery is late when it takes so many times what is normal, and longer than this: phones without a signal and
#: providers that report in lots make receipts of a healthy route come half a minute after the call.
LATE_TIMES, LEAST_LATE = 3, timedelta(seconds=30)
#: Weights change slowly, and windows are large: they are added up so often.
WEIGH_EVERY = timedelta(seconds=5)
#: Other lanes than otp, having found no use for any probe of a route, ask for none for so long.
IDLE_PAUSE = timedelta(seconds=1)

_MOST_ENDED = 100_000  # calls between two looks: more than a dispatcher makes
_CLOSED = breaker_rules.Standing()


def limits_of(spec: RouteSpec, terms: Terms) -> Limits:
    """What a route to a provider is held to."""
    target = max(LATE_TIMES * terms.delivery, LEAST_LATE) if _hears_receipts(spec, terms) else None
    return Limits(max(SLOW_TIMES * spec.expected, LEAST_SLOW), target)


def _hears_receipts(spec: RouteSpec, terms: Terms) -> bool:
    """Where none can come in, silence is no fault of the route: nobody knows our address, or it delivers nothing."""
    return terms.has_receipts and (bool(spec.receipts_url) or spec.kind is RouteKind.SMPP)


def limits_by_route(routes: Mapping[str, tuple[RouteSpec, Terms]]) -> dict[str, Limits]:
    """The limits of the routes that are judged."""
    return {
        name: limits_of(spec, terms)
        for name, (spec, terms) in routes.items()
        if spec.kind is not RouteKind.IMESSAGE_POOL
    }


@dataclass(frozen=True, slots=True)
class Admitted:
    """What breakers let through now.

    An open route that has tickets is for otp alone that has no other way: by its standing it is open all the same.
    """

    standings: Mapping[str, Standing]
    tickets: Mapping[str, Tickets]  # by route whose breaker ever changed
    most: Mapping[str, int]  # attempts that may start, by route; any number on one that is missing


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was read last."""

    breakers: Mapping[str, breaker_rules.Standing]
    standings: Mapping[str, Standing]


class RouteHealth:
    """The breakers as one dispatcher knows them. For all its threads; outside a transaction."""

    def __init__(self, redis_url: str) -> None:
        self._samples = Samples(redis_url)
        self._lock = threading.Lock()
        self._ended: list[CallEnded] = []  # since the last look
        self._limits: Mapping[str, Limits] = {}
        self._seen = _Seen({}, {})
        self._windows: Mapping[str, Window] = {}
        self._weigh_at: datetime | None = None
        self._idle_until: dict[str, datetime] = {}  # by route

    def follow(self, routes: Mapping[str, tuple[RouteSpec, Terms]]) -> None:
        """Judge the routes as they are configured now."""
        self._limits = limits_by_route(routes)

    def look(self, now: datetime) -> None:
        """Change the breakers that are due, and see how all stand. Raises what the database raises."""
        self.tell(now)
        limits = self._limits
        breakers.decide(limits, self._samples, now=now)
        known = breakers.standings()
        if self._weigh_at is None or now >= self._weigh_at:
            closed = {n: each for n, each in limits.items() if known.get(n, _CLOSED).state is BreakerState.CLOSED}
            self._windows = breakers.windows(closed, self._samples, now=now)
            self._weigh_at = now + WEIGH_EVERY
        names = {*limits, *known}
        standings = {name: _standing(known.get(name, _CLOSED), self._windows.get(name, Window())) for name in names}
        self._seen = _Seen(known, standings)

    def admit(self, used: Collection[str], *, for_otp: bool, now: datetime) -> Admitted:
        """What these routes may carry. Tickets that no attempt uses are to be given back.

        Raises what the database raises.
        """
        seen = self._seen
        tickets, most = {}, {}
        for name in sorted(used & seen.breakers.keys()):
            breaker = seen.breakers[name]
            tickets[name] = self._tickets(name, breaker, for_otp=for_otp, now=now)
            if breaker.state is not BreakerState.CLOSED:
                most[name] = len(tickets[name].ids)
        return Admitted(seen.standings, tickets, most)

    def _tickets(self, name: str, breaker: breaker_rules.Standing, *, for_otp: bool, now: datetime) -> Tickets:
        admission = breaker_rules.admission(breaker.state, only_way_of_otp=for_otp)
        is_idle = not for_otp and now < self._idle_until.get(name, now)
        if admission is not breaker_rules.Admission.PROBES or is_idle:
            return Tickets(breaker.generation, ())
        return breakers.take_tickets(name, PROBES, now=now, only_way_of_otp=for_otp)

    def give_back(self, tickets: Mapping[str, Tickets], used: Collection[int], *, for_otp: bool, now: datetime) -> None:
        """Tickets without an attempt. What cannot be given back lapses; it is no reason to fail."""
        for name, of_route in tickets.items():
            if of_route.ids and not for_otp and not set(used).intersection(of_route.ids):
                self._idle_until[name] = now + IDLE_PAUSE
        unused = {ticket for of_route in tickets.values() for ticket in of_route.ids}.difference(used)
        try:
            if unused:
                breakers.give_back(unused)
        except Exception as error:  # noqa: BLE001 - whatever fails here, what was claimed must be sent
            log.warning("tickets_not_given_back", error=type(error).__name__)

    def note(self, calls: Sequence[CallEnded]) -> None:
        """Remember what became of calls, for the next look: whoever settles waits for nobody."""
        limits = self._limits
        judged = [call for call in calls if call.route in limits]
        with self._lock:
            self._ended += judged[: _MOST_ENDED - len(self._ended)]

    def tell(self, now: datetime) -> None:
        """Count what became of calls since the last time. That a breaker learns nothing is no reason to fail."""
        with self._lock:
            ended, self._ended = self._ended, []
        try:
            if ended:
                breakers.note(ended, (), self._limits, self._samples, now=now)
        except Exception as error:  # noqa: BLE001 - what was settled stands
            log.warning("calls_not_noted", error=type(error).__name__)

    def states(self) -> dict[str, str]:
        """How the breakers stand, by route, for people."""
        known = self._seen.breakers
        return {name: known.get(name, _CLOSED).state.value for name in sorted({*self._limits, *known})}

    def close(self) -> None:
        """Close the connections."""
        self._samples.close()


def _standing(breaker: breaker_rules.Standing, window: Window) -> Standing:
    """A route that is tried again is as good as any: its tickets bound it, and it must get what they allow."""
    if breaker.state is not BreakerState.CLOSED:
        is_isolated, is_open = breaker.state is BreakerState.ISOLATED, breaker.state is BreakerState.OPEN
        return Standing(isolated=is_isolated, breaker_open=is_open)
    receipts = window.receipts
    is_known = receipts.volume >= LEAST_VOLUME
    quality = share(receipts.delivered, receipts.volume) if is_known else 1.0
    return Standing(quality=quality, health=weight(window.calls, receipts))


# --- what receipts say, in any process -----------------------------------------------------------------

#: How long a process goes by the limits that it has read; one that hears of a route it does not know reads them sooner.
_LIMITS_KEPT, _LIMITS_KEPT_AT_LEAST = 10.0, 1.0  # seconds


class Hearing:
    """Counts what receipts say. Its limits are read when they are needed, which is seldom."""

    def __init__(self, redis_url: str) -> None:
        self._samples = Samples(redis_url)
        self._lock = threading.Lock()
        self._limits: Mapping[str, Limits] = {}
        self._read_at = float("-inf")  # monotonic seconds

    def note(self, reports: Sequence[Reported], *, at: float) -> None:
        """Raises what the database raises. `at`: monotonic seconds."""
        limits = self._limits_for({report.route for report in reports}, at)
        breakers.note((), reports, limits, self._samples, now=max(report.at for report in reports))

    def close(self) -> None:
        """Close the connections."""
        self._samples.close()

    def _limits_for(self, routes: set[str], at: float) -> Mapping[str, Limits]:
        with self._lock:
            kept = _LIMITS_KEPT if routes <= self._limits.keys() else _LIMITS_KEPT_AT_LEAST
            if at - self._read_at < kept:
                return self._limits
            self._read_at = at  # by one thread; the others go by what was read before
        self._limits = limits_by_route(table.load_with_terms())
        return self._limits


_hearing: Hearing | None = None
_making = threading.Lock()


def _of_this_process() -> Hearing:
    global _hearing  # noqa: PLW0603 - one for all threads, made when it is needed: not before a process forks
    with _making:
        if _hearing is None:
            _hearing = Hearing(settings.REDIS_URL)
        return _hearing


def reported(reports: Sequence[Reported]) -> None:
    """Count how accepted attempts ended. After the commit: never raises, and waits for one answer of Redis at most."""
    try:
        if reports:
            _of_this_process().note(reports, at=time.monotonic())
    except Exception as error:  # noqa: BLE001 - a receipt is written: that its route's breaker is not told must not undo it
        log.warning("reports_not_noted", error=type(error).__name__)
