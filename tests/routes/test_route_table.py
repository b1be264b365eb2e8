"""The routes as dispatchers see them."""

from __future__ import annotations

from datetime import time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from structlog.testing import capture_logs

from otp_service.messages.rules import Channel, Lane
from otp_service.routes import table
from otp_service.routes.eligibility import Hours, Terms
from otp_service.routes.models import Route
from otp_service.routes.parts import Encoding
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


@pytest.mark.parametrize(
    "name", ["sms:one", "sms:sim", "sms:off", "imessage:es", "imessage:ua", "sms:nobody", "sms:\0"]
)
def test_one_route_is_as_it_stands_among_all(name: str) -> None:
    RouteFactory.create(name="sms:one", kind="kannel", credentials='{"password": "sesame"}')
    RouteFactory.create(name="sms:off", kind="twilio", enabled=False)
    RouteFactory.create(name="sms:sim")
    assert table.load_one(name) == table.load().get(name)


def test_of_one_route_no_others_credentials_are_read() -> None:
    RouteFactory.create(name="sms:one", kind="kannel", credentials='{"password": "sesame"}')
    broken = RouteFactory.create(name="sms:two", kind="twilio")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE routes_route SET credentials = %s WHERE id = %s", [b"not ours", broken.pk])
    with capture_logs() as logs:
        found = table.load_one("sms:one")
        assert found is not None
        assert found.credentials == {"password": "sesame"}
        assert not logs
        assert table.load_one("sms:two") is None
    assert [entry["route"] for entry in logs] == ["sms:two"]


def test_channels_are_unserved_that_no_enabled_route_of_the_lane_has(settings: Any) -> None:
    settings.SIMULATED_ROUTES = False
    RouteFactory.create(name="sms:one", kind="twilio", lanes=["otp"])
    RouteFactory.create(name="push:one", kind="http_json", enabled=False)
    RouteFactory.create(name="voice:one")  # simulated
    channels = ["imessage", "sms", "push", "voice"]
    assert table.unserved(channels, lane="otp", pools=["es"]) == ["push", "voice"]
    assert table.unserved(channels, lane="promo", pools=["ua"]) == channels


def test_rows_of_the_pools_are_made_once_and_change_nothing() -> None:
    RouteFactory.create(pool="es", tps=5)
    before = table.load()
    table.ensure_pools()
    table.ensure_pools()
    assert set(Route.objects.values_list("name", "tps")) == {("imessage:es", 5), ("imessage:pt", None)}
    assert table.load() == before


def test_an_account_has_its_credentials_and_sender_names() -> None:
    RouteFactory.create(
        name="sms:one", kind="twilio", credentials='{"auth_token": "open sesame"}', sender_names=["ACME", "Shop"]
    )
    spec = table.load()["sms:one"]
    assert (spec.credentials, spec.sender_names) == ({"auth_token": "open sesame"}, ("ACME", "Shop"))
    assert "sesame" not in repr(spec)


@pytest.mark.parametrize(
    ("public", "kind", "address"),
    [
        ("https://otp.example.org", "twilio", "https://otp.example.org/webhooks/providers/sms:one/"),
        ("", "twilio", ""),
        ("https://otp.example.org", "simulated", ""),
    ],
)
def test_receipts_are_posted_to_the_public_address(settings: Any, public: str, kind: str, address: str) -> None:
    settings.PUBLIC_URL, settings.SIMULATED_ROUTES = public, True
    RouteFactory.create(name="sms:one", kind=kind)
    assert table.load()["sms:one"].receipts_url == address


def test_a_route_whose_credentials_cannot_be_opened_is_left_out() -> None:
    route = RouteFactory.create(name="sms:one", kind="twilio", credentials="{}")
    RouteFactory.create(name="sms:two", kind="twilio", credentials="{}")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE routes_route SET credentials = %s WHERE id = %s", [b"not ours", route.pk])
    with capture_logs() as logs:
        assert {"sms:one", "sms:two"} & table.load().keys() == {"sms:two"}
    assert [(entry["event"], entry["route"]) for entry in logs] == [("route_unreadable", "sms:one")]


def test_a_row_says_what_it_may_carry() -> None:
    RouteFactory.create(
        name="sms:one",
        kind="twilio",
        prefixes=["+34", "+351"],
        encodings=["gsm7"],
        max_parts=3,
        delivery_s=7,
        has_receipts=False,
        receipt_wait_s=90,
        can_query=True,
        opens_at=time(22),
        closes_at=time(6, 30),
        cost_per_part="0.0071",
        currency="EUR",
        weight=5,
    )
    loaded = table.load_with_terms()
    assert loaded["sms:one"][0] == table.load()["sms:one"]
    assert loaded["sms:one"][1] == Terms(
        prefixes=("+34", "+351"),
        encodings=frozenset({Encoding.GSM7}),
        max_parts=3,
        delivery=timedelta(seconds=7),
        has_receipts=False,
        receipt_wait=timedelta(seconds=90),
        can_query=True,
        hours=Hours(time(22), time(6, 30)),
        cost_per_part=Decimal("0.0071"),
        currency="EUR",
        weight=5,
    )
    assert loaded["imessage:es"][1] == Terms()
