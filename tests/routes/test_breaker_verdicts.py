"""A person shuts a route off and lets it through again, with a name and a reason."""

from __future__ import annotations

import datetime as dt

import pytest

from otp_service.events.models import Event
from otp_service.routes import breakers
from otp_service.routes.breaker_models import Breaker
from otp_service.routes.breaker_rules import PAUSES, BreakerState, Standing
from otp_service.routes.breakers import InvalidVerdict, UnknownRoute
from tests.conftest import NOON
from tests.factories import RouteFactory

pytestmark = pytest.mark.django_db

LATER = NOON + dt.timedelta(hours=1)


@pytest.fixture
def name() -> str:
    name: str = RouteFactory.create().name
    return name


def isolate(name: str, *, by: str = "ada", reason: str = "no balance") -> bool:
    return breakers.isolate(name, by=by, reason=reason, now=NOON)


def enable(name: str, *, by: str = "bob", reason: str = "paid") -> bool:
    return breakers.enable(name, by=by, reason=reason, now=LATER)


def events_of(name: str) -> list[Event]:
    return list(Event.objects.filter(subject_uuid=breakers.subject_of(name)).order_by("id"))


def test_an_isolated_route_says_who_shut_it_off_and_why(name: str) -> None:
    assert isolate(name, by=" ada ", reason=" no balance ")
    assert breakers.standings()[name] == Standing(
        BreakerState.ISOLATED, 1, NOON, isolated_by="ada", reason="no balance"
    )
    (event,) = events_of(name)
    assert event.type == "route.isolated"
    assert event.data == {
        "route": name,
        "old": "closed",
        "new": "isolated",
        "generation": 1,
        "by": "ada",
        "reason": "no balance",
    }


def test_time_does_not_let_an_isolated_route_through(name: str) -> None:
    isolate(name)
    assert breakers.take_tickets(name, 1, now=LATER, only_way_of_otp=True).ids == ()
    assert breakers.standings()[name].until is None


def test_an_enabled_route_lets_everything_through_again(name: str) -> None:
    isolate(name)
    assert enable(name)
    assert breakers.standings()[name] == Standing(BreakerState.CLOSED, 2, LATER)
    event = events_of(name)[-1]
    assert (event.type, event.data["by"], event.data["reason"]) == ("route.enabled", "bob", "paid")
    assert (event.data["old"], event.at) == ("isolated", LATER)


def test_an_open_breaker_is_closed_by_hand(name: str) -> None:
    Breaker.objects.create(
        route=name, state=BreakerState.OPEN, generation=7, since=NOON, opened_at=NOON, pause=PAUSES[-1], until=LATER
    )
    assert enable(name)
    assert breakers.standings()[name] == Standing(BreakerState.CLOSED, 8, LATER)


def test_what_is_so_already_stays_as_it_is(name: str) -> None:
    assert not enable(name)
    isolate(name)
    assert not isolate(name, by="bob", reason="again")
    assert breakers.standings()[name].isolated_by == "ada"
    assert [event.type for event in events_of(name)] == ["route.isolated"]


def test_a_pool_without_a_row_can_be_isolated() -> None:
    assert isolate("imessage:es")


@pytest.mark.parametrize("field", ["by", "reason"])
@pytest.mark.parametrize("text", ["", "  ", "a\0b", "x" * 501], ids=["nothing", "blank", "zero byte", "too long"])
def test_refuses_to_change_anything_for_nobody_or_no_reason(name: str, field: str, text: str) -> None:
    for verdict in (isolate, enable):
        with pytest.raises(InvalidVerdict, match=f"{field}: write wh") as refused:
            verdict(name, **{field: text})
        assert refused.value.data == {"field": field}
    assert name not in breakers.standings()


def test_refuses_a_route_that_there_is_not() -> None:
    for verdict in (isolate, enable):
        with pytest.raises(UnknownRoute):
            verdict("sms:nowhere")
    assert breakers.standings() == {}
