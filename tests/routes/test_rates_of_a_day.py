"""The daily quota is exact, whoever takes from it at the same time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.db import transaction

from otp_service.messages.rules import Channel
from otp_service.routes.models import RouteDay
from otp_service.routes.rates import DAYS_KEPT, Rates, remove_old
from otp_service.routes.route_rules import RouteKind, RouteSpec
from tests.conftest import NOON
from tests.racing import Racer

pytestmark = pytest.mark.django_db

NAME = "sms:one"


@pytest.fixture
def rates() -> Iterator[Rates]:
    made = Rates(settings.REDIS_URL)
    yield made
    made.close()


def route(quota: int, tps: float | None = None) -> dict[str, RouteSpec]:
    return {NAME: RouteSpec(NAME, Channel.SMS, RouteKind.SIMULATED, daily_quota=quota, tps=tps)}


def take(rates: Rates, wanted: int, *, quota: int = 100, now: dt.datetime = NOON) -> int:
    return rates.take({NAME: wanted}, route(quota), now=now, at=0.0, dispatchers=3, for_otp=True)[NAME]


def used() -> int:
    return RouteDay.objects.get().used


def test_grants_what_is_left_of_the_day(rates: Rates) -> None:
    assert [take(rates, wanted) for wanted in (60, 30, 30, 1)] == [60, 30, 10, 0]
    assert used() == 100


def test_the_first_call_of_a_day_gets_no_more_than_the_quota(rates: Rates) -> None:
    assert take(rates, 500) == 100
    assert used() == 100


def test_wanting_nothing_takes_nothing(rates: Rates) -> None:
    assert take(rates, 0) == 0
    assert not RouteDay.objects.exists()


@pytest.mark.parametrize(
    ("later", "granted"),
    [
        (dt.datetime(2026, 9, 1, 23, 59, 59, tzinfo=dt.UTC), 0),
        (dt.datetime(2026, 9, 2, 0, 0, 0, tzinfo=dt.UTC), 100),
        (dt.datetime(2026, 9, 2, 1, 59, 59, tzinfo=dt.timezone(dt.timedelta(hours=2))), 0),
        (dt.datetime(2026, 9, 2, 2, 0, 0, tzinfo=dt.timezone(dt.timedelta(hours=2))), 100),
    ],
)
def test_a_day_is_one_of_utc(rates: Rates, later: dt.datetime, granted: int) -> None:
    take(rates, 100)
    assert take(rates, 500, now=later) == granted


def test_a_quota_that_was_lowered_below_what_is_used_grants_nothing_and_forgets_nothing(rates: Rates) -> None:
    take(rates, 80)
    assert take(rates, 5, quota=50) == 0
    assert used() == 80
    assert take(rates, 50, quota=100) == 20


def test_what_was_not_used_is_there_again(rates: Rates) -> None:
    take(rates, 100)
    rates.give_back({NAME: 30}, route(100), now=NOON)
    assert take(rates, 50) == 30


def test_giving_back_goes_to_the_day_that_it_was_taken_from(rates: Rates) -> None:
    take(rates, 100)
    tomorrow = NOON + dt.timedelta(days=1)
    take(rates, 100, now=tomorrow)
    rates.give_back({NAME: 30}, route(100), now=NOON)
    assert [take(rates, 50, now=tomorrow), take(rates, 50)] == [0, 30]


def test_giving_back_more_than_is_used_leaves_none_used(rates: Rates) -> None:
    take(rates, 10)
    rates.give_back({NAME: 30}, route(100), now=NOON)
    assert used() == 0


@pytest.mark.parametrize("unused", [0, -5])
def test_giving_nothing_back_changes_nothing(rates: Rates, unused: int) -> None:
    take(rates, 10)
    rates.give_back({NAME: unused}, route(100), now=NOON)
    assert used() == 10


def test_calls_that_the_rate_does_not_grant_are_not_taken_from_the_quota(rates: Rates) -> None:
    granted = rates.take({NAME: 9}, route(100, tps=0.001), now=NOON, at=0.0, dispatchers=1, for_otp=True)[NAME]
    assert granted <= 1
    assert sum(RouteDay.objects.values_list("used", flat=True)) == granted


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_the_first", [True, False])
def test_two_at_once_share_what_is_left(rates: Rates, is_the_first: bool) -> None:
    if not is_the_first:
        take(rates, 10)
    with transaction.atomic():
        mine = take(rates, 60)
        racer = Racer(lambda: take(rates, 60))
        racer.wait_until_blocked()
    assert mine == 60
    assert racer.result() == (40 if is_the_first else 30)
    assert used() == 100


def test_days_that_nobody_asks_about_are_forgotten() -> None:
    old, kept = (NOON - DAYS_KEPT - dt.timedelta(days=1)).date(), (NOON - DAYS_KEPT).date()
    RouteDay.objects.bulk_create(RouteDay(route="sms:old", day=day, used=1) for day in (old, kept))
    assert remove_old(now=NOON) == 1
    assert [row.day for row in RouteDay.objects.filter(route="sms:old")] == [kept]


def test_other_lanes_leave_otp_a_part_of_the_day(rates: Rates) -> None:
    def granted(*, for_otp: bool) -> int:
        return rates.take({NAME: 100}, route(10), now=NOON, at=0.0, dispatchers=1, for_otp=for_otp)[NAME]

    assert [granted(for_otp=False), granted(for_otp=False), granted(for_otp=True), granted(for_otp=True)] == [
        7,
        0,
        3,
        0,
    ]
