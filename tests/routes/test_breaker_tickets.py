"""Probes of a half-open breaker: few, counted in the database, and never lost for ever."""

from __future__ import annotations

import datetime as dt

import pytest

from otp_service.routes import breaker_rules as rules
from otp_service.routes import breakers
from otp_service.routes.breaker_models import Breaker, ProbeTicket
from otp_service.routes.breaker_rules import BreakerState
from otp_service.routes.breakers import Tickets
from tests.conftest import NOON

pytestmark = pytest.mark.django_db

SECOND = dt.timedelta(seconds=1)
NAME = "sms:one"


def breaker(state: BreakerState, generation: int = 2) -> Breaker:
    shut = state in {BreakerState.OPEN, BreakerState.HALF_OPEN}
    isolated = state is BreakerState.ISOLATED
    return Breaker.objects.create(
        route=NAME,
        state=state,
        generation=generation,
        since=NOON,
        opened_at=NOON if shut else None,
        pause=rules.PAUSES[0] if shut else None,
        until=NOON + rules.PAUSES[0] if state is BreakerState.OPEN else None,
        isolated_by="ada" if isolated else "",
        reason="no balance" if isolated else "",
    )


def take(wanted: int, at: dt.datetime = NOON, *, only_way_of_otp: bool = False) -> tuple[int, ...]:
    return breakers.take_tickets(NAME, wanted, now=at, only_way_of_otp=only_way_of_otp).ids


def end(tickets: tuple[int, ...], *, good: bool) -> None:
    ProbeTicket.objects.filter(pk__in=tickets).update(ended_at=NOON, good=good)


def test_five_may_go_and_no_more() -> None:
    breaker(BreakerState.HALF_OPEN)
    assert len(take(3)) == 3
    assert len(take(3)) == 2
    assert take(1) == ()


def test_those_that_ended_keep_their_place_in_this_era() -> None:
    breaker(BreakerState.HALF_OPEN)
    end(take(3), good=True)
    assert len(take(9)) == 2


def test_tickets_of_an_earlier_era_take_no_place() -> None:
    row = breaker(BreakerState.HALF_OPEN)
    take(5)
    Breaker.objects.filter(pk=row.pk).update(generation=3)
    assert len(take(9)) == 5


def test_a_ticket_that_expired_gives_its_place_to_another() -> None:
    breaker(BreakerState.HALF_OPEN)
    take(5)
    assert take(1, NOON + rules.TICKET_LIFE - SECOND) == ()
    assert len(take(9, NOON + rules.TICKET_LIFE)) == 5


def test_tickets_that_were_not_used_are_given_back_and_used_ones_are_not() -> None:
    breaker(BreakerState.HALF_OPEN)
    used, unused, ended = take(3)
    breakers.use_tickets({used: 41})
    end((ended,), good=False)
    breakers.give_back([used, unused, ended])
    assert set(ProbeTicket.objects.values_list("pk", "attempt_id")) == {(used, 41), (ended, None)}


@pytest.mark.parametrize("state", [BreakerState.CLOSED, BreakerState.OPEN, BreakerState.ISOLATED])
def test_only_a_half_open_one_gives_tickets(state: BreakerState) -> None:
    breaker(state)
    assert breakers.take_tickets(NAME, 1, now=NOON) == Tickets(2, ())


@pytest.mark.parametrize(("state", "number"), [(BreakerState.OPEN, 5), (BreakerState.ISOLATED, 0)])
def test_an_otp_without_another_way_is_shut_out_by_nobody_but_a_person(state: BreakerState, number: int) -> None:
    breaker(state)
    assert len(take(9, only_way_of_otp=True)) == number


def test_an_otp_without_another_way_goes_on_trying_while_it_is_open() -> None:
    breaker(BreakerState.OPEN)
    for _ in range(3):
        tickets = take(9, only_way_of_otp=True)
        assert len(tickets) == 5
        end(tickets, good=False)


def test_a_route_whose_breaker_never_changed_needs_none() -> None:
    assert breakers.take_tickets(NAME, 1, now=NOON) == Tickets(0, ())


def test_old_tickets_are_removed_but_for_those_that_still_decide() -> None:
    row = breaker(BreakerState.HALF_OPEN)
    late = NOON + rules.TICKET_LIFE + breakers.TICKETS_KEPT + SECOND
    take(2)
    assert breakers.remove_old(late) == 0
    Breaker.objects.filter(pk=row.pk).update(generation=3)
    take(1, NOON + 2 * SECOND)
    assert breakers.remove_old(late) == 2
    assert ProbeTicket.objects.get().generation == 3
