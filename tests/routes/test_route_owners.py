"""One dispatcher at a time holds the binds of an SMPP route; another takes over when it is not heard of any more."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from uuid import UUID

import pytest
from django.db import transaction
from django.db.models import F

from otp_service.routes import route_owners
from otp_service.routes.owner_models import LONGEST_DETAIL, RouteOwner
from otp_service.routes.route_owners import LIFE, Binds, Owners
from tests.factories import DispatcherFactory
from tests.racing import Racer

ME, OTHER, THIRD = (UUID(int=number) for number in (1, 2, 3))
UP = Binds(True, "1 of 1 binds are up.")


@pytest.mark.parametrize(
    ("owners", "dispatchers", "wanted"),
    [
        pytest.param({}, 1, "abc", id="all, alone"),
        pytest.param({}, 0, "abc", id="all, before the others are known"),
        pytest.param({}, 2, "ab", id="its share, rounded up"),
        pytest.param({"a": OTHER}, 3, "b", id="what is free of it"),
        pytest.param({"c": ME}, 3, "c", id="nothing more than its share"),
        pytest.param({"a": ME, "b": ME, "c": ME}, 3, "abc", id="what it has, though that is more"),
        pytest.param({"a": OTHER, "b": OTHER, "c": THIRD}, 1, "", id="nothing of others that live"),
    ],
)
def test_a_dispatcher_asks_for(owners: Mapping[str, UUID], dispatchers: int, wanted: str) -> None:
    assert route_owners.to_take(ME, ["c", "a", "b"], owners, dispatchers=dispatchers) == set(wanted)


def take(who: UUID, routes: Collection[str] = ("sms:a",), *, dispatchers: int = 1) -> Owners:
    return route_owners.take(who, dict.fromkeys(routes, UP), dispatchers=dispatchers)


def lapse() -> None:
    RouteOwner.objects.update(until=F("until") - LIFE)


@pytest.mark.django_db
def test_a_free_route_is_taken_and_others_see_whose_it_is() -> None:
    assert take(ME) == Owners(own=frozenset({"sms:a"}))
    assert take(OTHER) == Owners(others=frozenset({"sms:a"}))
    assert take(ME) == Owners(own=frozenset({"sms:a"}))


@pytest.mark.django_db
def test_a_route_that_was_given_up_is_free_at_once() -> None:
    take(ME, ["sms:a", "sms:b"])
    take(OTHER, ["sms:c"])
    route_owners.give_up(ME)
    assert take(THIRD, ["sms:a", "sms:b", "sms:c"]) == Owners(frozenset({"sms:a", "sms:b"}), frozenset({"sms:c"}))


@pytest.mark.django_db
def test_a_route_that_is_not_renewed_is_free_when_its_time_is_over() -> None:
    take(ME)
    RouteOwner.objects.update(until=F("until") - LIFE + dt.timedelta(seconds=5))
    assert take(OTHER).own == frozenset()
    RouteOwner.objects.update(until=F("until") - dt.timedelta(seconds=5))
    assert take(OTHER).own == {"sms:a"}
    assert take(ME) == Owners(others=frozenset({"sms:a"}))


@pytest.mark.django_db
def test_to_renew_makes_its_time_longer() -> None:
    take(ME)
    before = RouteOwner.objects.get().until
    take(ME)
    assert RouteOwner.objects.get().until > before


@pytest.mark.django_db
def test_two_dispatchers_share_the_routes() -> None:
    names = ["sms:a", "sms:b", "sms:c"]
    assert take(ME, names, dispatchers=2).own == {"sms:a", "sms:b"}
    assert take(OTHER, names, dispatchers=2).own == {"sms:c"}


@pytest.mark.django_db
def test_without_such_routes_the_database_is_not_asked(django_assert_num_queries: object) -> None:
    with django_assert_num_queries(0):  # type: ignore[operator]  # pytest-django types its fixture as a class of its own
        assert take(ME, []) == Owners()


@pytest.mark.django_db
def test_people_are_told_what_its_owner_said_last() -> None:
    dispatcher = DispatcherFactory.create(name="dispatcher 7")
    assert route_owners.told("sms:a") is None
    take(dispatcher.pk)
    assert route_owners.told("sms:a") == Binds(True, "dispatcher 7: 1 of 1 binds are up.")
    route_owners.take(dispatcher.pk, {"sms:a": Binds(False, "x" * 300)}, dispatchers=1)
    assert route_owners.told("sms:a") == Binds(False, f"dispatcher 7: {'x' * LONGEST_DETAIL}")
    lapse()
    assert route_owners.told("sms:a") is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("was_held", [False, True], ids=["that nobody ever had", "whose owner is gone"])
def test_of_two_at_once_one_gets_a_route(*, was_held: bool) -> None:
    if was_held:
        take(THIRD)
        lapse()
    with transaction.atomic():
        assert take(ME).own == {"sms:a"}
        second = Racer(lambda: take(OTHER))
        second.wait_until_blocked()
    assert second.result() == Owners(others=frozenset({"sms:a"}))
    assert RouteOwner.objects.get().dispatcher == ME


@pytest.mark.django_db(transaction=True)
def test_one_that_renews_in_time_keeps_it_from_one_that_waits() -> None:
    take(ME)
    lapse()
    with transaction.atomic():
        assert take(ME).own == {"sms:a"}
        second = Racer(lambda: take(OTHER))
        second.wait_until_blocked()
    assert second.result().own == frozenset()
