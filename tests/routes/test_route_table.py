"""The routes as dispatchers see them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from otp_service.messages.rules import Channel, Lane
from otp_service.routes import table
from otp_service.routes.models import Route
from otp_service.routes.route_rules import RouteKind, RouteSpec
from tests.factories import RouteFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def two_pools(settings: Any) -> None:
    settings.POOLS_BY_PREFIX = {"+34": ["es"], "": ["pt", "es"]}


def test_pools_that_numbers_go_to_are_there_without_a_row() -> None:
    assert table.load() == {
        f"imessage:{region}": RouteSpec(f"imessage:{region}", Channel.IMESSAGE, RouteKind.IMESSAGE_POOL)
        for region in ("es", "pt")
    }


def test_a_row_says_how_its_pool_is() -> None:
    RouteFactory.create(pool="es", enabled=False, lanes=["otp"], in_flight_cap=7, tps=2.5, daily_quota=9)
    loaded = table.load()
    assert loaded["imessage:es"] == RouteSpec(
        "imessage:es",
        Channel.IMESSAGE,
        RouteKind.IMESSAGE_POOL,
        enabled=False,
        lanes=frozenset({Lane.OTP}),
        in_flight_cap=7,
        tps=2.5,
        daily_quota=9,
    )
    assert loaded["imessage:pt"].enabled


def test_a_pool_that_no_number_goes_to_any_more_is_still_there() -> None:
    RouteFactory.create(pool="ua")
    assert "imessage:ua" in table.load()


def test_simulated_routes_are_left_out_unless_they_are_asked_for(settings: Any) -> None:
    RouteFactory.create(name="sms:one", priority=3, expected_ms=150, settings={"latency_ms": 150})
    assert "sms:one" not in table.load()
    settings.SIMULATED_ROUTES = True
    assert table.load()["sms:one"] == RouteSpec(
        "sms:one",
        Channel.SMS,
        RouteKind.SIMULATED,
        expected=timedelta(milliseconds=150),
        priority=3,
        settings={"latency_ms": 150},
    )


def test_rows_of_the_pools_are_made_once_and_change_nothing() -> None:
    RouteFactory.create(pool="es", tps=5)
    before = table.load()
    table.ensure_pools()
    table.ensure_pools()
    assert set(Route.objects.values_list("name", "tps")) == {("imessage:es", 5), ("imessage:pt", None)}
    assert table.load() == before
