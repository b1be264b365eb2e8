"""Processes that look at one breaker at once change it once; a person who comes in between is not overruled."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import transaction

from otp_service.core.outcomes import ErrorClass
from otp_service.events.models import Event
from otp_service.routes import breaker_rules as rules
from otp_service.routes import breakers
from otp_service.routes.breaker_models import Breaker
from otp_service.routes.breaker_rules import BreakerState, Limits, Standing
from otp_service.routes.breakers import CallEnded
from otp_service.routes.samples import Samples
from tests.conftest import NOON
from tests.factories import RouteFactory
from tests.racing import Racer

pytestmark = pytest.mark.django_db(transaction=True)

SECOND = dt.timedelta(seconds=1)
LIMITS = Limits(slow_after=2 * SECOND)


@pytest.fixture
def samples() -> Iterator[Samples]:
    made = Samples(settings.REDIS_URL)
    yield made
    made.close()


@pytest.fixture
def name(samples: Samples) -> str:
    """A route of its own, all of whose calls failed."""
    name: str = RouteFactory.create(name=f"sms:{uuid4().hex}").name
    failed = CallEnded(name, 0, NOON, NOON, SECOND, ErrorClass.TEMPORARY)
    breakers.note([failed] * 20, [], {name: LIMITS}, samples, now=NOON)
    return name


def decide(name: str, samples: Samples, at: dt.datetime = NOON) -> dict[str, Standing]:
    return breakers.decide({name: LIMITS}, samples, now=at, rng=random.Random(1))


def told(name: str) -> list[str]:
    events = Event.objects.filter(subject_uuid=breakers.subject_of(name)).order_by("id")
    return list(events.values_list("type", flat=True))


@pytest.mark.parametrize("is_known", [False, True], ids=["that never changed", "that has a row"])
def test_of_two_at_once_one_opens_a_breaker(name: str, samples: Samples, *, is_known: bool) -> None:
    if is_known:
        Breaker.objects.create(route=name)
    with transaction.atomic():
        assert list(decide(name, samples)) == [name]
        second = Racer(lambda: decide(name, samples, NOON + SECOND))
        second.wait_until_blocked()
    assert second.result() == {}
    row = Breaker.objects.get(route=name)
    assert (row.state, row.generation, row.opened_at, row.pause) == (BreakerState.OPEN, 1, NOON, rules.PAUSES[0])
    assert told(name) == ["route.breaker_opened"]


def test_of_two_at_once_one_half_opens_it(name: str, samples: Samples) -> None:
    until = decide(name, samples)[name].until
    assert until is not None
    with transaction.atomic():
        assert decide(name, samples, until)[name].state is BreakerState.HALF_OPEN
        second = Racer(lambda: decide(name, samples, until))
        second.wait_until_blocked()
    assert second.result() == {}
    assert told(name) == ["route.breaker_opened", "route.breaker_half_open"]


def test_one_that_a_person_isolates_meanwhile_does_not_open(name: str, samples: Samples) -> None:
    with transaction.atomic():
        breakers.isolate(name, by="ada", reason="no balance", now=NOON)
        deciding = Racer(lambda: decide(name, samples))
        deciding.wait_until_blocked()
    assert deciding.result() == {}
    assert Breaker.objects.get(route=name).state == BreakerState.ISOLATED
    assert told(name) == ["route.isolated"]


def test_a_person_who_waits_for_an_opening_isolates_what_is_open(name: str, samples: Samples) -> None:
    with transaction.atomic():
        decide(name, samples)
        isolating = Racer(lambda: breakers.isolate(name, by="ada", reason="no balance", now=NOON))
        isolating.wait_until_blocked()
    assert isolating.result()
    row = Breaker.objects.get(route=name)
    assert (row.state, row.generation, row.isolated_by) == (BreakerState.ISOLATED, 2, "ada")
    assert Event.objects.filter(subject_uuid=breakers.subject_of(name)).order_by("id")[1].data["old"] == "open"


def test_of_several_at_once_five_probes_go(name: str, samples: Samples) -> None:
    until = decide(name, samples)[name].until
    assert until is not None
    decide(name, samples, until)
    with transaction.atomic():
        first = breakers.take_tickets(name, 3, now=until)
        second = Racer(lambda: breakers.take_tickets(name, 3, now=until))
        second.wait_until_blocked()
    assert (len(first.ids), len(second.result().ids)) == (3, 2)
