"""Calls a second are shared by all dispatchers through Redis."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
import redis
from django.conf import settings

from otp_service.messages.rules import Channel, Lane
from otp_service.routes.rates import Rates
from otp_service.routes.route_rules import RouteKind, RouteSpec
from tests.conftest import NOON

#: One token in a thousand seconds: none comes in while a test runs.
SLOW = 0.001
HOUR_US = 3_600 * 1_000_000

Take = Callable[..., int]


@pytest.fixture
def store() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A route that no other test has: all of them share one server."""
    return f"sms:{uuid4().hex}"


@pytest.fixture
def key(name: str) -> str:
    return f"otp:rate:{name}"


@pytest.fixture
def rates() -> Iterator[Rates]:
    made = Rates(settings.REDIS_URL)
    yield made
    made.close()


def route(name: str, tps: float | None) -> dict[str, RouteSpec]:
    return {name: RouteSpec(name, Channel.SMS, RouteKind.SIMULATED, tps=tps)}


def take(rates: Rates, specs: dict[str, RouteSpec], wanted: int) -> int:
    (name,) = specs
    return rates.take({name: wanted}, specs, now=NOON, at=0.0, dispatchers=1, for_otp=True)[name]


def test_a_route_without_limits_grants_everything(rates: Rates, name: str) -> None:
    assert take(rates, route(name, None), 1_000) == 1_000


@pytest.mark.parametrize("wanted", [0, -3])
def test_nothing_is_granted_where_nothing_is_wanted(
    rates: Rates, store: redis.Redis, name: str, key: str, wanted: int
) -> None:
    assert take(rates, route(name, 5), wanted) == 0
    assert not store.exists(key)


@pytest.mark.parametrize(("tps", "at_once"), [(30, 30), (1.5, 1), (SLOW, 1)])
def test_grants_those_of_a_second_at_once_and_one_at_least(rates: Rates, name: str, tps: float, at_once: int) -> None:
    assert take(rates, route(name, tps), 100) == at_once


def test_routes_have_buckets_of_their_own(rates: Rates, name: str) -> None:
    specs = route(name, 2) | route(name + "-b", 3) | route(name + "-c", None)
    wanted = dict.fromkeys(specs, 9)
    assert list(rates.take(wanted, specs, now=NOON, at=0.0, dispatchers=4, for_otp=True).values()) == [2, 3, 9]


def test_what_one_dispatcher_took_another_does_not_get(rates: Rates, name: str) -> None:
    other = Rates(settings.REDIS_URL)
    assert [take(each, route(name, SLOW), 1) for each in (rates, other, rates)] == [1, 0, 0]
    other.close()


def test_two_at_once_never_exceed_the_rate(name: str) -> None:
    """Real time: as much as passes, so much may be granted, and one burst."""
    specs, granted = route(name, 40), [0, 0]
    start = threading.Barrier(2)

    def use(place: int) -> None:
        mine = Rates(settings.REDIS_URL)
        start.wait()
        for _ in range(300):
            granted[place] += take(mine, specs, 3)
        mine.close()

    threads = [threading.Thread(target=use, args=[place]) for place in range(2)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 40 <= sum(granted) <= 40 * (time.monotonic() - began) + 40


def test_tokens_come_in_with_time(rates: Rates, store: redis.Redis, name: str, key: str) -> None:
    specs = route(name, SLOW)
    assert [take(rates, specs, 1), take(rates, specs, 1)] == [1, 0]
    store.hincrby(key, "at", -1_000 * 1_000_000)
    assert [take(rates, specs, 1), take(rates, specs, 1)] == [1, 0]


def test_a_clock_that_was_set_back_stops_nothing(rates: Rates, store: redis.Redis, name: str, key: str) -> None:
    specs = route(name, SLOW)
    take(rates, specs, 1)
    store.hincrby(key, "at", HOUR_US)
    assert take(rates, specs, 1) == 0
    store.hincrby(key, "at", -1_000 * 1_000_000)
    assert take(rates, specs, 1) == 1


def test_tokens_that_were_not_used_are_there_again(rates: Rates, name: str) -> None:
    specs = route(name, SLOW)
    assert [take(rates, specs, 1), take(rates, specs, 1)] == [1, 0]
    rates.give_back({name: 1}, specs, now=NOON)
    assert take(rates, specs, 1) == 1


def test_giving_back_fills_no_bucket_over_its_brim(rates: Rates, name: str) -> None:
    specs = route(name, SLOW)
    take(rates, specs, 1)
    rates.give_back({name: 500}, specs, now=NOON)
    assert take(rates, specs, 500) == 1


def test_a_bucket_expires_when_it_is_full_again(rates: Rates, store: redis.Redis, name: str, key: str) -> None:
    take(rates, route(name, 0.1), 1)
    assert 5_000 < store.pttl(key) <= 11_000


def test_an_emptied_redis_costs_one_burst_and_freezes_nothing(
    rates: Rates, store: redis.Redis, name: str, key: str
) -> None:
    specs = route(name, SLOW)
    take(rates, specs, 1)
    store.delete(key)
    store.script_flush()
    assert [take(rates, specs, 1), take(rates, specs, 1)] == [1, 0]


def test_a_new_limit_is_kept_at_once(rates: Rates, name: str) -> None:
    take(rates, route(name, 100), 1)
    assert take(rates, route(name, SLOW), 100) == 1


def test_other_lanes_leave_otp_a_part_of_a_second(rates: Rates, name: str) -> None:
    specs = route(name, 10)

    def granted(*, for_otp: bool) -> int:
        return rates.take({name: 100}, specs, now=NOON, at=0.0, dispatchers=1, for_otp=for_otp)[name]

    taken = granted(for_otp=False)
    assert taken == 7
    assert granted(for_otp=False) == 0
    assert granted(for_otp=True) == 3
    assert granted(for_otp=False) == 0  # and what comes in is otp's first, as long as less than its part is there


def test_nothing_is_left_to_otp_on_a_route_of_other_lanes(rates: Rates, name: str) -> None:
    specs = {name: RouteSpec(name, Channel.SMS, RouteKind.SIMULATED, tps=10, lanes=frozenset({Lane.PROMO}))}
    assert rates.take({name: 100}, specs, now=NOON, at=0.0, dispatchers=1, for_otp=False) == {name: 10}
