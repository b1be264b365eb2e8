"""What a dispatcher knows of its routes: what they are held to, what they may carry, how good they are."""

from __future__ import annotations

import datetime as dt
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from structlog.testing import capture_logs

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import ErrorClass
from otp_service.messages.rules import Channel
from otp_service.routes import breakers, route_health, table
from otp_service.routes.breaker_models import Breaker, ProbeTicket
from otp_service.routes.breaker_rules import BreakerState, Limits, Standing
from otp_service.routes.breakers import CallEnded, Reported
from otp_service.routes.eligibility import Standing as Shown
from otp_service.routes.eligibility import Terms
from otp_service.routes.route_health import Hearing, RouteHealth, limits_of
from otp_service.routes.route_rules import RouteKind, RouteSpec
from otp_service.routes.samples import Samples
from scheduler import tasks
from tests.conftest import NOON
from tests.factories import RouteFactory

SECOND = dt.timedelta(seconds=1)
POST = "https://otp.example/webhooks/providers/sms:one/"


def route(kind: RouteKind = RouteKind.TWILIO, *, name: str = "sms:one", expected_ms: int = 400) -> RouteSpec:
    expected, url = dt.timedelta(milliseconds=expected_ms), POST if kind is RouteKind.TWILIO else ""
    return RouteSpec(name, Channel.SMS, kind, expected=expected, receipts_url=url)


# --- limits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected_ms", "slow_after_ms"),
    [(1, 2_000), (400, 2_000), (401, 2_005), (3_000, 15_000)],
    ids=["at least two seconds", "just that", "five times as long", "of a slow one"],
)
def test_a_call_is_slow_after_five_times_its_normal_length(expected_ms: int, slow_after_ms: int) -> None:
    limits = limits_of(route(expected_ms=expected_ms), Terms())
    assert limits.slow_after == dt.timedelta(milliseconds=slow_after_ms)


@pytest.mark.parametrize(
    ("delivery_s", "target_s"),
    [(0, 30), (10, 30), (11, 33), (60, 180)],
    ids=["at least half a minute", "just that", "three times as long", "of a slow one"],
)
def test_a_delivery_is_late_after_three_times_its_normal_length(delivery_s: int, target_s: int) -> None:
    assert limits_of(route(), Terms(delivery=delivery_s * SECOND)).target == target_s * SECOND


@pytest.mark.parametrize(
    ("kind", "has_receipts", "is_judged"),
    [
        pytest.param(RouteKind.TWILIO, True, True, id="they are posted to us"),
        pytest.param(RouteKind.SMPP, True, True, id="they come over the bind"),
        pytest.param(RouteKind.TWILIO, False, False, id="it has none"),
        pytest.param(RouteKind.KANNEL, True, False, id="it does not know where to post them"),
        pytest.param(RouteKind.SIMULATED, True, False, id="it delivers nothing"),
    ],
)
def test_silence_counts_only_where_receipts_can_come_in(kind: RouteKind, has_receipts: bool, is_judged: bool) -> None:
    assert (limits_of(route(kind), Terms(has_receipts=has_receipts)).target is not None) == is_judged


def test_pools_are_not_judged() -> None:
    pool = RouteSpec("imessage:es", Channel.IMESSAGE, RouteKind.IMESSAGE_POOL)
    found = route_health.limits_by_route({"imessage:es": (pool, Terms()), "sms:one": (route(), Terms())})
    assert list(found) == ["sms:one"]


# --- what a dispatcher knows ---------------------------------------------------------------------------


@pytest.fixture
def name() -> str:
    return f"sms:{uuid4().hex}"


@pytest.fixture
def health(name: str) -> Iterator[RouteHealth]:
    """Of one route that has receipts."""
    made = RouteHealth(settings.REDIS_URL)
    made.follow({name: (route(name=name), Terms())})
    yield made
    made.close()


def ended(
    name: str, good: int, bad: int, *, generation: int = 0, at: dt.datetime = NOON, ticket: int | None = None
) -> list[CallEnded]:
    errors = [None] * good + [ErrorClass.TEMPORARY] * bad
    return [CallEnded(name, generation, at, at, SECOND / 10, error, ticket) for error in errors]


def stand(name: str, state: BreakerState, *, until: dt.datetime | None = None, generation: int = 3) -> None:
    """Its breaker's row says so."""
    shut = {"opened_at": NOON, "pause": 30 * SECOND} if state in {BreakerState.OPEN, BreakerState.HALF_OPEN} else {}
    by = {"isolated_by": "ada", "reason": "no balance"} if state is BreakerState.ISOLATED else {}
    Breaker.objects.create(route=name, state=state, generation=generation, since=NOON, until=until, **shut, **by)


@pytest.mark.django_db
def test_a_route_that_was_never_shut_carries_anything(health: RouteHealth, name: str) -> None:
    health.look(NOON)
    admitted = health.admit({name}, for_otp=True, now=NOON)
    assert (dict(admitted.tickets), dict(admitted.most)) == ({}, {})
    assert admitted.standings == {name: Shown()}
    assert health.states() == {name: "closed"}


@pytest.mark.django_db
def test_calls_of_a_route_that_was_shut_are_of_its_new_generation(health: RouteHealth, name: str) -> None:
    stand(name, BreakerState.CLOSED)
    health.look(NOON)
    admitted = health.admit({name}, for_otp=False, now=NOON)
    assert admitted.tickets[name] == breakers.Tickets(3, ())
    assert dict(admitted.most) == {}


@pytest.mark.django_db
def test_an_isolated_route_carries_nothing_not_even_the_last_otp(health: RouteHealth, name: str) -> None:
    stand(name, BreakerState.ISOLATED)
    health.look(NOON)
    admitted = health.admit({name}, for_otp=True, now=NOON)
    assert admitted.most == {name: 0}
    assert admitted.standings[name] == Shown(isolated=True)


@pytest.mark.django_db
def test_a_pool_that_a_person_isolated_carries_nothing(health: RouteHealth) -> None:
    stand("imessage:es", BreakerState.ISOLATED)
    health.look(NOON)
    assert health.admit({"imessage:es"}, for_otp=True, now=NOON).most == {"imessage:es": 0}


@pytest.mark.django_db
@pytest.mark.parametrize(("for_otp", "most"), [(True, 5), (False, 0)], ids=["leave for otp", "none for the rest"])
def test_an_open_route_is_kept_for_otp_that_has_no_other_way(
    health: RouteHealth, name: str, for_otp: bool, most: int
) -> None:
    stand(name, BreakerState.OPEN, until=NOON + SECOND)
    health.look(NOON)
    admitted = health.admit({name}, for_otp=for_otp, now=NOON)
    assert admitted.most == {name: most} == {name: len(admitted.tickets[name].ids)}
    assert admitted.standings[name] == Shown(breaker_open=True)


@pytest.mark.django_db
def test_a_route_that_is_tried_again_carries_five_probes(health: RouteHealth, name: str) -> None:
    stand(name, BreakerState.OPEN, until=NOON)
    health.look(NOON)
    assert health.states() == {name: "half_open"}
    first = health.admit({name}, for_otp=False, now=NOON)
    assert (first.most, first.tickets[name].generation) == ({name: 5}, 4)
    assert health.admit({name}, for_otp=True, now=NOON).most == {name: 0}
    assert first.standings[name] == Shown()


@pytest.mark.django_db
def test_tickets_that_no_attempt_used_are_there_for_others(health: RouteHealth, name: str) -> None:
    stand(name, BreakerState.OPEN, until=NOON)
    health.look(NOON)
    tickets = health.admit({name}, for_otp=True, now=NOON).tickets
    used = tickets[name].ids[0]
    breakers.use_tickets({used: 77})
    health.give_back(tickets, [used], for_otp=True, now=NOON)
    assert health.admit({name}, for_otp=False, now=NOON).most == {name: 4}


@pytest.mark.django_db
def test_who_has_no_use_for_probes_asks_once_a_second_and_otp_always(health: RouteHealth, name: str) -> None:
    stand(name, BreakerState.OPEN, until=NOON)
    health.look(NOON)
    health.give_back(health.admit({name}, for_otp=False, now=NOON).tickets, [], for_otp=False, now=NOON)
    assert health.admit({name}, for_otp=False, now=NOON + SECOND / 2).most == {name: 0}
    otp = health.admit({name}, for_otp=True, now=NOON + SECOND / 2)
    assert otp.most == {name: 5}
    health.give_back(otp.tickets, [], for_otp=True, now=NOON)
    assert health.admit({name}, for_otp=False, now=NOON + SECOND).most == {name: 5}


@pytest.mark.django_db
def test_tickets_that_cannot_be_given_back_stop_nothing(
    health: RouteHealth, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_tickets: object) -> None:
        raise OperationalError

    monkeypatch.setattr(breakers, "give_back", fails)
    with capture_logs() as logs:
        health.give_back({name: breakers.Tickets(1, (1, 2))}, [1], for_otp=True, now=NOON)
    assert [line["event"] for line in logs] == ["tickets_not_given_back"]


@pytest.mark.django_db
def test_calls_that_fail_lower_a_routes_weight_and_then_open_it(health: RouteHealth, name: str) -> None:
    health.note(ended(name, good=15, bad=5))
    health.look(NOON)
    standing = health.admit({name}, for_otp=True, now=NOON).standings[name]
    assert (standing.health, standing.quality, standing.breaker_open) == (0.5, 1.0, False)
    health.note(ended(name, good=0, bad=10))
    health.look(NOON + SECOND)
    assert health.admit(set(), for_otp=True, now=NOON).standings[name] == Shown(breaker_open=True)


@pytest.mark.django_db
def test_weights_are_looked_at_every_five_seconds(health: RouteHealth, name: str) -> None:
    health.look(NOON)
    health.note(ended(name, good=15, bad=5))
    seen = []
    for seconds in (4, 5):
        health.look(NOON + seconds * SECOND)
        seen.append(health.admit(set(), for_otp=True, now=NOON).standings[name].health)
    assert seen == [1.0, 0.5]


@pytest.mark.django_db
def test_its_quality_is_what_it_delivered_of_late(health: RouteHealth, name: str) -> None:
    health.note(ended(name, good=20, bad=0))
    reports = [Reported(name, NOON, NOON + SECOND, delivered=number < 15) for number in range(20)]
    with closing(Samples(settings.REDIS_URL)) as samples:
        breakers.note((), reports, {name: limits_of(route(), Terms())}, samples, now=NOON)
    health.look(NOON + 40 * SECOND)
    standing = health.admit(set(), for_otp=True, now=NOON).standings[name]
    assert (standing.quality, standing.health) == (0.75, 0.5)


def test_calls_that_cannot_be_noted_stop_nothing(
    health: RouteHealth, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_given: object, **_named: object) -> None:
        raise OperationalError

    monkeypatch.setattr(breakers, "note", fails)
    with capture_logs() as logs:
        health.note(ended(name, good=1, bad=0))
        health.tell(NOON)
    assert [line["event"] for line in logs] == ["calls_not_noted"]


def test_calls_of_a_route_that_is_not_judged_are_not_noted(
    health: RouteHealth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(breakers, "note")
    with capture_logs() as logs:
        health.note(ended("imessage:es", good=0, bad=1))
        health.tell(NOON)
    assert not logs


# --- receipts ------------------------------------------------------------------------------------------


@pytest.fixture
def hearing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hearing]:
    """A process that has heard nothing yet."""
    made = Hearing(settings.REDIS_URL)
    monkeypatch.setattr(route_health, "_hearing", made)
    yield made
    made.close()


@pytest.fixture
def named(settings: Any, name: str) -> str:
    """A route that is in the database, and has receipts."""
    settings.PUBLIC_URL = "https://otp.example"
    RouteFactory.create(name=name, kind=RouteKind.KANNEL, credentials="{}")
    return name


def delivered(name: str, number: int = 1) -> list[Reported]:
    return [Reported(name, NOON, NOON + SECOND, delivered=True)] * number


def heard(name: str) -> int:
    """How many deliveries are counted."""
    limits = Limits(2 * SECOND, 30 * SECOND)
    with closing(Samples(settings.REDIS_URL)) as samples:
        breakers.note(ended(name, good=9, bad=0), (), {name: limits}, samples, now=NOON)
        found = samples.read({name: (Standing(), limits)}, now=NOON + 40 * SECOND)
    return found[name].receipts.delivered


@pytest.mark.django_db
@pytest.mark.usefixtures("hearing")
def test_what_receipts_say_is_counted(named: str) -> None:
    route_health.reported(delivered(named, 7))
    assert heard(named) == 7


@pytest.mark.django_db
def test_limits_are_read_once_for_many_receipts(hearing: Hearing, named: str) -> None:
    hearing.note(delivered(named), at=100.0)
    with CaptureQueriesContext(connection) as queries:
        hearing.note(delivered(named), at=109.9)
    assert not queries.captured_queries
    with CaptureQueriesContext(connection) as queries:
        hearing.note(delivered(named), at=110.0)
    assert len(queries) == 1


@pytest.mark.django_db
def test_a_route_that_is_new_is_known_after_a_second(hearing: Hearing, named: str) -> None:
    hearing.note(delivered("sms:other"), at=100.0)
    other = f"sms:{uuid4().hex}"
    RouteFactory.create(name=other, kind=RouteKind.KANNEL, credentials="{}")
    hearing.note(delivered(other), at=100.9)
    hearing.note(delivered(other), at=101.0)
    assert heard(other) == 1


def test_nothing_that_fails_reaches_the_webhook(hearing: Hearing, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise OperationalError

    monkeypatch.setattr(table, "load_with_terms", fails)
    with capture_logs() as logs:
        route_health.reported(delivered("sms:one"))
    assert [(line["event"], line["error"]) for line in logs] == [("reports_not_noted", "OperationalError")]


@pytest.mark.django_db
def test_a_redis_that_is_away_is_no_fault(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    away = Hearing(f"redis://127.0.0.1:{port}/0")
    monkeypatch.setattr(route_health, "_hearing", away)
    with capture_logs() as logs:
        route_health.reported(delivered(named))
    assert [line["event"] for line in logs] == ["samples_without_redis"]
    away.close()


# --- retention -----------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_old_tickets_are_removed_by_the_task(name: str) -> None:
    stand(name, BreakerState.CLOSED, generation=3)
    breaker = Breaker.objects.get(route=name)
    for generation, days in ((2, 8), (2, 6), (3, 8)):
        expires_at = utc_now() - dt.timedelta(days=days)
        ProbeTicket.objects.create(breaker=breaker, generation=generation, expires_at=expires_at)
    tasks.remove_old_rows()
    left = breaker.tickets.order_by("generation").values_list("generation", flat=True)
    assert list(left) == [2, 3]
