"""How much more each route may be given: its caps, its rates, a pool's free servers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import pytest

from otp_service.messages.rules import Channel, Lane
from otp_service.routes.bulkheads import Bulkheads, Pools, ceiling, expected_in_flight
from otp_service.routes.route_rules import RouteKind, RouteSpec

SMS = RouteSpec("sms:one", Channel.SMS, RouteKind.SIMULATED, expected=dt.timedelta(milliseconds=500))
POOL = RouteSpec("imessage:es", Channel.IMESSAGE, RouteKind.IMESSAGE_POOL)


def spec(*, in_flight_cap: int | None = None, tps: float | None = None) -> RouteSpec:
    return RouteSpec(SMS.name, SMS.channel, SMS.kind, expected=SMS.expected, in_flight_cap=in_flight_cap, tps=tps)


@pytest.mark.parametrize(
    ("route", "dispatchers", "expected"),
    [
        pytest.param(spec(), 1, 100, id="no bounds: the slots"),
        pytest.param(spec(in_flight_cap=30), 1, 30, id="its own cap"),
        pytest.param(spec(in_flight_cap=30), 4, 8, id="shared, rounded up"),
        pytest.param(spec(in_flight_cap=500), 1, 100, id="never over the slots"),
        pytest.param(spec(in_flight_cap=1), 8, 1, id="one call is always possible"),
        pytest.param(spec(tps=20), 1, 100, id="a rate bounds by itself"),
    ],
)
def test_the_hard_ceiling(route: RouteSpec, dispatchers: int, expected: int) -> None:
    assert ceiling(route, dispatchers=dispatchers, slots=100) == expected


@pytest.mark.parametrize(
    ("route", "dispatchers", "expected"),
    [
        pytest.param(spec(), 1, 100, id="no rate: the slots"),
        pytest.param(spec(tps=20), 1, 20, id="rate x latency x 2"),
        pytest.param(spec(tps=20), 3, 7, id="of several dispatchers"),
        pytest.param(spec(tps=0.1), 8, 1, id="one call is always possible"),
    ],
)
def test_calls_that_a_rate_needs(route: RouteSpec, dispatchers: int, expected: int) -> None:
    assert expected_in_flight(route, dispatchers=dispatchers, slots=100) == expected


def test_otp_may_use_its_rate_up_when_the_route_is_slow() -> None:
    slow = spec(tps=10)
    made = bulkheads(slow)
    for call in range(12):
        made.started(call, slow.name, 0.0)
    assert rooms(made, slow) == (88, 0, 0)


def bulkheads(*specs: RouteSpec, adaptive: bool = True) -> Bulkheads:
    made = Bulkheads(slots=100, adaptive=adaptive)
    made.set_up({spec.name: spec for spec in specs}, dispatchers=1)
    return made


def rooms(
    made: Bulkheads,
    spec: RouteSpec,
    *,
    at: float = 0.0,
    granted: int | None = None,
    free: Mapping[str, int] | None = None,
    size: Mapping[str, int] | None = None,
) -> tuple[int, int, int]:
    found = made.rooms(spec, at=at, granted=granted, pools=Pools(free or {}, size or {}))
    return found[Lane.OTP], found[Lane.TRANSACTIONAL], found[Lane.PROMO]


def test_otp_is_bounded_by_the_ceiling_and_the_others_by_what_the_route_has_proved() -> None:
    assert rooms(bulkheads(SMS), SMS) == (100, 16, 16)


def test_calls_in_flight_lower_the_room_of_all_until_they_end() -> None:
    made = bulkheads(SMS)
    for call in range(10):
        made.started(call, SMS.name, 0.0)
    assert rooms(made, SMS) == (90, 6, 6)
    made.ended(3, 0.1, ok=True)
    otp, others, _ = rooms(made, SMS, at=0.1)
    assert (otp, others) == (91, 8)  # one more is free, and one well-ended call widened the cap


def test_a_route_that_hangs_is_left_to_otp_before_any_call_times_out() -> None:
    made = bulkheads(SMS)
    for call in range(10):
        made.started(call, SMS.name, 0.0)
    at = 0.0
    while at < 8.0:
        at += 0.5
        otp, others, promo = rooms(made, SMS, at=at)
    assert (otp, others, promo) == (90, 0, 0)


def test_a_hang_is_seen_while_no_slot_is_free_to_ask_for() -> None:
    made = bulkheads(SMS)
    for call in range(16):
        made.started(call, SMS.name, 0.0)
    for tick in range(1, 100):
        made.look(tick * 0.05)
    assert made.figures()[SMS.name] == {"in_flight": 16, "limit": 2}


def test_without_adapting_only_the_ceiling_counts_and_what_is_left_to_otp() -> None:
    assert rooms(bulkheads(SMS, adaptive=False), SMS) == (100, 70, 70)


def test_otp_finds_room_on_a_route_that_a_promotion_fills() -> None:
    capped = spec(in_flight_cap=10)
    made = bulkheads(capped)
    for call in range(7):
        made.started(call, capped.name, 0.0)
    assert rooms(made, capped) == (3, 0, 0)


def test_nothing_is_left_to_otp_on_a_route_that_it_may_not_take() -> None:
    only_promo = RouteSpec("push:one", Channel.PUSH, RouteKind.SIMULATED, lanes=frozenset({Lane.PROMO}))
    assert rooms(bulkheads(only_promo, adaptive=False), only_promo)[2] == 100


def test_a_ceiling_of_one_is_for_all() -> None:
    assert rooms(bulkheads(spec(in_flight_cap=1)), spec(in_flight_cap=1)) == (1, 1, 1)


def test_rates_bound_every_lane() -> None:
    assert rooms(bulkheads(SMS), SMS, granted=3) == (3, 3, 3)
    assert rooms(bulkheads(SMS), SMS, granted=0) == (0, 0, 0)


@pytest.mark.parametrize(
    ("free", "size", "expected"),
    [
        pytest.param(0, 100, (0, 0, 0), id="no server is free"),
        pytest.param(1, 1, (1, 1, 1), id="a pool of one serves promo too"),
        pytest.param(1, 3, (1, 1, 1), id="a pool of less than four"),
        pytest.param(1, 4, (1, 1, 0), id="of four, promo leaves the only free one"),
        pytest.param(1, 10, (1, 0, 0), id="of ten, transactional does too"),
        pytest.param(35, 100, (35, 16, 5), id="of a hundred, thirty and ten"),
        pytest.param(11, 100, (11, 1, 0), id="one more than transactional leaves"),
        pytest.param(90, 100, (90, 16, 16), id="no more than the cap"),
    ],
)
def test_a_pool_carries_no_more_than_its_free_servers(free: int, size: int, expected: tuple[int, int, int]) -> None:
    assert rooms(bulkheads(POOL), POOL, free={"es": free}, size={"es": size}) == expected


def test_another_pools_servers_do_not_count() -> None:
    assert rooms(bulkheads(POOL), POOL, free={"pt": 9}, size={"pt": 9}) == (0, 0, 0)


def test_what_is_about_to_be_claimed_counts_already() -> None:
    capped = spec(in_flight_cap=10)
    made = bulkheads(capped)
    with made.held({capped.name: 7}):
        assert rooms(made, capped) == (3, 0, 0)
    assert rooms(made, capped) == (10, 7, 7)


def test_servers_that_are_about_to_be_taken_are_not_free() -> None:
    made = bulkheads(POOL)
    with made.held({POOL.name: 2}):
        assert rooms(made, POOL, free={"es": 3}) == (1, 1, 1)


def test_one_of_several_routes_for_otp_does_not_get_every_slot() -> None:
    assert rooms(bulkheads(SMS, POOL), SMS)[0] == 85
    assert rooms(bulkheads(SMS, POOL, adaptive=False), SMS)[0] == 100


def test_a_route_that_carries_no_otp_gets_every_slot() -> None:
    only_promo = RouteSpec("push:one", Channel.PUSH, RouteKind.SIMULATED, lanes=frozenset({Lane.PROMO}))
    assert rooms(bulkheads(SMS, only_promo), SMS)[0] == 100
    assert rooms(bulkheads(SMS, POOL, only_promo, adaptive=False), only_promo)[2] == 100
    of_otp = bulkheads(SMS, POOL, only_promo)
    assert [rooms(of_otp, route)[0] for route in (SMS, only_promo)] == [85, 100]


def test_new_bounds_keep_what_is_in_flight() -> None:
    made = bulkheads(SMS)
    made.started("call", SMS.name, 0.0)
    made.set_up({SMS.name: spec(in_flight_cap=6)}, dispatchers=2)
    assert rooms(made, SMS) == (2, 1, 1)
    made.ended("call", 0.1, ok=True)
    assert rooms(made, SMS, at=0.1) == (3, 2, 2)
