"""A breaker changes by what was noted, once, with its event; and neither a flush of Redis nor its absence moves it."""

from __future__ import annotations

import datetime as dt
import random
import socket
from collections.abc import Iterator
from uuid import uuid4

import pytest
import redis
from django.conf import settings
from structlog.testing import capture_logs

from otp_service.core.outcomes import ErrorClass
from otp_service.events.models import Event
from otp_service.routes import breaker_rules as rules
from otp_service.routes import breakers
from otp_service.routes.breaker_models import Breaker, ProbeTicket
from otp_service.routes.breaker_rules import BreakerState, Limits, Standing
from otp_service.routes.breakers import CallEnded, Reported
from otp_service.routes.samples import Samples
from tests.conftest import NOON

pytestmark = pytest.mark.django_db

SECOND = dt.timedelta(seconds=1)
LIMITS = Limits(slow_after=2 * SECOND, target=30 * SECOND)


@pytest.fixture
def samples() -> Iterator[Samples]:
    made = Samples(settings.REDIS_URL)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    """A route that no other test has: all of them share one Redis."""
    return f"sms:{uuid4().hex}"


def forget(name: str) -> None:
    """What a flush of Redis does to one route."""
    with redis.Redis.from_url(settings.REDIS_URL) as store:
        keys = list(store.scan_iter(f"otp:breaker:*:{name}:*", count=10_000))
        assert keys
        store.delete(*keys)


def note(  # what became of some calls that ended just now
    samples: Samples,
    name: str,
    number: int,
    error_class: ErrorClass | None = None,
    *,
    at: dt.datetime = NOON,
    generation: int = 0,
    tickets: tuple[int | None, ...] = (),
) -> None:
    one = CallEnded(name, generation, at - SECOND, at, SECOND, error_class)
    calls = [one] * number + [CallEnded(name, generation, at, at, SECOND, error_class, each) for each in tickets]
    breakers.note(calls, [], {name: LIMITS}, samples, now=at)


def decide(samples: Samples, name: str, at: dt.datetime = NOON) -> Standing | None:
    return breakers.decide({name: LIMITS}, samples, now=at, rng=random.Random(1)).get(name)


def fail(samples: Samples, name: str, at: dt.datetime = NOON, generation: int = 0) -> Standing:
    note(samples, name, 20, ErrorClass.TEMPORARY, at=at, generation=generation)
    opened = decide(samples, name, at)
    assert opened is not None
    assert opened.state is BreakerState.OPEN
    return opened


def half_open(samples: Samples, name: str) -> Standing:
    until = fail(samples, name).until
    assert until is not None
    changed = decide(samples, name, until)
    assert changed is not None
    assert changed.state is BreakerState.HALF_OPEN
    return changed


def told(name: str) -> list[str]:
    return list(
        Event.objects.filter(subject_uuid=breakers.subject_of(name)).order_by("id").values_list("type", flat=True)
    )


def test_nothing_is_written_of_a_route_that_works(samples: Samples, name: str) -> None:
    note(samples, name, 50)
    assert decide(samples, name) is None
    assert name not in breakers.standings()


@pytest.mark.parametrize(("bad", "good", "opens"), [(10, 10, True), (9, 11, False), (19, 0, False), (20, 0, True)])
def test_opens_past_a_volume_and_a_share(samples: Samples, name: str, bad: int, good: int, opens: bool) -> None:
    note(samples, name, bad, ErrorClass.TIMEOUT_AFTER_SUBMIT)
    note(samples, name, good)
    assert (decide(samples, name) is not None) is opens
    assert (breakers.standings().get(name, Standing()).state is BreakerState.OPEN) is opens


def test_an_opening_is_told_with_its_figures(
    samples: Samples, name: str, django_capture_on_commit_callbacks: pytest.FixtureRequest
) -> None:
    with capture_logs() as logs, django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]  # a fixture that is a function
        opened = fail(samples, name)
    event = Event.objects.get(subject_uuid=breakers.subject_of(name))
    figures = ("route", "old", "new", "generation", "cause", "bad", "volume", "pause_s")
    assert event.type == "route.breaker_opened"
    assert [event.data[key] for key in figures] == [name, "closed", "open", 1, "calls", 20, 20, 30.0]
    assert event.data["calls"]["faults"] == 20
    assert (event.at, event.client_id) == (NOON, None)
    assert breakers.standings()[name] == opened
    assert [line["event"] for line in logs] == ["breaker_opened"]


def test_looking_again_moves_nothing(samples: Samples, name: str) -> None:
    opened = fail(samples, name)
    assert decide(samples, name, NOON + SECOND) is None
    assert breakers.standings()[name] == opened


def test_a_flush_of_redis_neither_closes_nor_freezes_an_open_one(samples: Samples, name: str) -> None:
    opened = fail(samples, name)
    forget(name)
    assert opened.until is not None
    assert decide(samples, name, opened.until - SECOND) is None
    assert breakers.standings()[name] == opened
    changed = decide(samples, name, opened.until)
    assert changed is not None
    assert changed.state is BreakerState.HALF_OPEN


def test_a_flush_of_redis_loses_no_result_of_a_probe(samples: Samples, name: str) -> None:
    at = half_open(samples, name).since
    assert at is not None
    tickets = breakers.take_tickets(name, 4, now=at)
    note(samples, name, 0, at=at, generation=2, tickets=tickets.ids)
    forget(name)
    closed = decide(samples, name, at)
    assert closed is not None
    assert closed.state is BreakerState.CLOSED
    assert told(name) == ["route.breaker_opened", "route.breaker_half_open", "route.breaker_closed"]


def test_without_redis_it_opens_and_closes_all_the_same(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    away = Samples(f"redis://127.0.0.1:{port}/0")
    at = half_open(away, name).since
    assert at is not None
    tickets = breakers.take_tickets(name, 4, now=at)
    note(away, name, 0, at=at, generation=2, tickets=tickets.ids)
    closed = decide(away, name, at)
    away.close()
    assert closed is not None
    assert closed.state is BreakerState.CLOSED


def test_two_bad_probes_open_it_again_for_longer(samples: Samples, name: str) -> None:
    at = half_open(samples, name).since
    assert at is not None
    first, second = breakers.take_tickets(name, 2, now=at).ids
    note(samples, name, 0, ErrorClass.TIMEOUT_AFTER_SUBMIT, at=at, generation=2, tickets=(first,))
    assert decide(samples, name, at) is None
    note(samples, name, 0, ErrorClass.TIMEOUT_AFTER_SUBMIT, at=at, generation=2, tickets=(second,))
    opened = decide(samples, name, at)
    assert opened is not None
    assert (opened.state, opened.pause, opened.opened_at) == (BreakerState.OPEN, rules.PAUSES[1], NOON)


def test_bad_probes_of_an_earlier_era_do_not_open_it_again(samples: Samples, name: str) -> None:
    at = half_open(samples, name).since
    assert at is not None
    tickets = breakers.take_tickets(name, 2, now=at).ids
    note(samples, name, 0, ErrorClass.TEMPORARY, at=at, generation=2, tickets=tickets)
    opened = decide(samples, name, at)
    assert opened is not None
    assert opened.until is not None
    tried_again = decide(samples, name, opened.until)
    assert tried_again is not None
    assert tried_again.state is BreakerState.HALF_OPEN
    assert decide(samples, name, opened.until) is None


def test_results_of_an_earlier_era_are_not_heard(samples: Samples, name: str) -> None:
    """Calls that were slow enough to end after the breaker closed again."""
    at = half_open(samples, name).since
    assert at is not None
    note(samples, name, 0, at=at, generation=2, tickets=breakers.take_tickets(name, 4, now=at).ids)
    decide(samples, name, at)
    for generation in (0, 1, 2):
        note(samples, name, 100, ErrorClass.TIMEOUT_AFTER_SUBMIT, at=at, generation=generation)
    assert decide(samples, name, at) is None
    assert fail(samples, name, at, generation=3).generation == 4


def test_opens_when_half_of_what_was_accepted_does_not_arrive_in_time(samples: Samples, name: str) -> None:
    note(samples, name, 20)
    reports = [
        *[Reported(name, NOON - SECOND, NOON + 9 * SECOND, delivered=True)] * 10,
        *[Reported(name, NOON - SECOND, NOON + 32 * SECOND, delivered=True)] * 4,
        *[Reported(name, NOON - SECOND, NOON + SECOND, delivered=False, error_class=ErrorClass.TEMPORARY)] * 3,
    ]
    breakers.note([], reports, {name: LIMITS}, samples, now=NOON + 32 * SECOND)
    assert decide(samples, name, NOON + 28 * SECOND) is None  # the rest may still come in time
    opened = decide(samples, name, NOON + 32 * SECOND)
    assert opened is not None
    data = Event.objects.get(subject_uuid=breakers.subject_of(name)).data
    assert (data["cause"], data["bad"], data["volume"]) == ("receipts", 10, 20)
    assert data["receipts"] | {"p95": 0} == {"volume": 20, "in_time": 10, "delivered": 14, "failed": 3, "p95": 0}


def test_what_fails_by_the_recipients_fault_counts_for_nobody(samples: Samples, name: str) -> None:
    note(samples, name, 30)
    reports = [
        *[Reported(name, NOON - SECOND, NOON, delivered=True)] * 10,
        *[Reported(name, NOON - SECOND, NOON, delivered=False, error_class=ErrorClass.RECIPIENT_INVALID)] * 20,
    ]
    breakers.note([], reports, {name: LIMITS}, samples, now=NOON)
    window = breakers.windows({name: LIMITS}, samples, now=NOON + 40 * SECOND)[name]
    assert (window.receipts.volume, window.receipts.bad) == (10, 0)


def test_a_route_that_reaches_nobody_opens(samples: Samples, name: str) -> None:
    note(samples, name, 40)
    unreached = Reported(name, NOON - SECOND, NOON, delivered=False, error_class=ErrorClass.RECIPIENT_UNREACHABLE)
    breakers.note([], [unreached] * 40, {name: LIMITS}, samples, now=NOON)
    assert decide(samples, name, NOON + 32 * SECOND) is not None


def test_a_call_of_a_route_without_limits_gives_its_ticket_back(samples: Samples, name: str) -> None:
    at = half_open(samples, name).since
    assert at is not None
    (ticket,) = breakers.take_tickets(name, 1, now=at).ids
    breakers.note([CallEnded(name, 2, at, at, SECOND, None, ticket)], [], {}, samples, now=at)
    assert not ProbeTicket.objects.filter(pk=ticket).exists()


def test_routes_have_breakers_of_their_own(samples: Samples, name: str) -> None:
    other = f"{name}-b"
    note(samples, name, 20, ErrorClass.ROUTE_REJECTED)
    note(samples, other, 20)
    changed = breakers.decide({name: LIMITS, other: LIMITS}, samples, now=NOON)
    assert list(changed) == [name]
    assert Breaker.objects.filter(route__in=[name, other]).count() == 1
