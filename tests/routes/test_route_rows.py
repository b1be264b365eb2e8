"""The database itself refuses routes that cannot be, whoever writes them."""

from __future__ import annotations

from datetime import time
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from otp_service.routes.models import Route
from tests.factories import RouteFactory

pytestmark = pytest.mark.django_db

NAMES = "route_name_kind_and_channel_agree"
POOL, ACCOUNT = {"pool": "es"}, {"name": "sms:one"}
TWILIO = {"name": "sms:one", "kind": "twilio"}
PUSH, EUR = {"name": "push:one", "channel": "push"}, {"currency": "EUR"}
NINE, TEN = time(9), time(10)

#: Constraint, a row, what may be written, what may not: they differ in one thing.
ROWS: list[tuple[str, dict[str, str], dict[str, Any], dict[str, Any]]] = [
    (NAMES, POOL, {"name": "imessage:pt"}, {"name": "sms:pt"}),
    (NAMES, POOL, {"name": "imessage:region01"}, {"name": "imessage:region012"}),
    (NAMES, POOL, {"name": "imessage:pt"}, {"name": "imessage:PT"}),
    (NAMES, POOL, {"name": "imessage:pt"}, {"name": "imessage:pt\n"}),
    (NAMES, POOL, {"kind": "imessage_pool"}, {"kind": "simulated"}),
    (NAMES, POOL, {"channel": "imessage"}, {"channel": "sms"}),
    (NAMES, ACCOUNT, {"name": "sms:two"}, {"name": "push:two"}),
    (NAMES, ACCOUNT, {"name": "push:one", "channel": "push"}, {"name": "fax:one", "channel": "fax"}),
    (NAMES, ACCOUNT, {"kind": "simulated"}, {"kind": "http"}),
    ("route_lanes_known", ACCOUNT, {"lanes": ["otp", "promo"]}, {"lanes": ["otp", "bulk"]}),
    ("route_expected_in_range", ACCOUNT, {"expected_ms": 1}, {"expected_ms": 0}),
    ("route_expected_in_range", ACCOUNT, {"expected_ms": 120_000}, {"expected_ms": 120_001}),
    ("route_in_flight_cap_positive", ACCOUNT, {"in_flight_cap": 1}, {"in_flight_cap": 0}),
    ("route_tps_in_range", ACCOUNT, {"tps": 0.001}, {"tps": 0.0009}),
    ("route_tps_in_range", ACCOUNT, {"tps": 100_000}, {"tps": float("nan")}),
    ("route_tps_in_range", ACCOUNT, {"tps": None}, {"tps": float("inf")}),
    ("route_daily_quota_positive", ACCOUNT, {"daily_quota": 1}, {"daily_quota": 0}),
    ("route_settings_only_where_read", POOL, {"settings": {}}, {"settings": {"latency_ms": 1}}),
    (NAMES, TWILIO, {"name": "sms:two"}, {"name": "voice:two", "channel": "voice"}),
    (NAMES, ACCOUNT, {"kind": "smpp"}, {"kind": "telex"}),
    (NAMES, ACCOUNT, {"kind": "http_json", "name": "push:one", "channel": "push"}, {"kind": "kannel", **PUSH}),
    ("route_credentials_only_where_read", TWILIO, {"credentials": "{}"}, {"credentials": "{}", "kind": "simulated"}),
    ("route_weight_in_range", ACCOUNT, {"weight": 1}, {"weight": 0}),
    ("route_weight_in_range", ACCOUNT, {"weight": 1_000}, {"weight": 1_001}),
    ("route_prefixes_begin_numbers", ACCOUNT, {"prefixes": ["+34", "+351912"]}, {"prefixes": ["+34", "351"]}),
    ("route_prefixes_begin_numbers", ACCOUNT, {"prefixes": ["+" + "1" * 15]}, {"prefixes": ["+0"]}),
    ("route_prefixes_begin_numbers", ACCOUNT, {"prefixes": []}, {"prefixes": [""]}),
    ("route_sender_names_printable", ACCOUNT, {"sender_names": ["AC-ME 2", "+34600"]}, {"sender_names": ["ÁCME"]}),
    ("route_sender_names_printable", ACCOUNT, {"sender_names": ["A"]}, {"sender_names": [" A"]}),
    ("route_encodings_known", ACCOUNT, {"encodings": ["gsm7", "ucs2"]}, {"encodings": ["gsm7", "utf8"]}),
    ("route_max_parts_in_range", ACCOUNT, {"max_parts": 1}, {"max_parts": 0}),
    ("route_max_parts_in_range", ACCOUNT, {"max_parts": 255}, {"max_parts": 256}),
    ("route_delivery_in_range", ACCOUNT, {"delivery_s": 86_400}, {"delivery_s": 86_401}),
    ("route_receipt_wait_in_range", ACCOUNT, {"receipt_wait_s": 1}, {"receipt_wait_s": 0}),
    ("route_hours_both_or_none", ACCOUNT, {"opens_at": NINE, "closes_at": TEN}, {"opens_at": NINE, "closes_at": NINE}),
    ("route_hours_both_or_none", ACCOUNT, {"opens_at": TEN, "closes_at": NINE}, {"opens_at": TEN, "closes_at": None}),
    ("route_hours_both_or_none", ACCOUNT, {"closes_at": None}, {"closes_at": NINE}),
    ("route_cost_in_range", ACCOUNT, {"cost_per_part": 0, **EUR}, {"cost_per_part": Decimal("-0.000001"), **EUR}),
    ("route_cost_in_range", ACCOUNT, {"cost_per_part": 1_000, **EUR}, {"cost_per_part": Decimal("1000.000001"), **EUR}),
    ("route_cost_has_its_currency", ACCOUNT, {"cost_per_part": 1, **EUR}, {"cost_per_part": 1, "currency": "eur"}),
    ("route_cost_has_its_currency", ACCOUNT, {"cost_per_part": 1, **EUR}, {"cost_per_part": 1}),
    ("route_cost_has_its_currency", ACCOUNT, {"cost_per_part": None}, {"cost_per_part": None, **EUR}),
]


@pytest.mark.parametrize(("constraint", "row", "may_be", "may_not"), ROWS)
def test_refuses(constraint: str, row: dict[str, str], may_be: dict[str, Any], may_not: dict[str, Any]) -> None:
    route = Route.objects.filter(pk=RouteFactory.create(**row).pk)
    with pytest.raises(IntegrityError, match=f'"{constraint}"'), transaction.atomic():
        route.update(**may_not)
    assert route.update(**may_be) == 1


def test_a_name_is_taken_once() -> None:
    RouteFactory.create(name="sms:one")
    with pytest.raises(IntegrityError, match="routes_route_name"):
        RouteFactory.create(name="sms:one")


def test_credentials_are_stored_so_that_nobody_reads_them() -> None:
    route = RouteFactory.create(name="sms:one", kind="twilio", credentials='{"auth_token": "open sesame"}')
    with connection.cursor() as cursor:
        cursor.execute("SELECT credentials FROM routes_route WHERE id = %s", [route.pk])
        (stored,) = cursor.fetchone()
    assert b"sesame" not in bytes(stored)
    assert Route.objects.get(pk=route.pk).given_credentials == {"auth_token": "open sesame"}


def test_without_credentials_there_are_none_by_name() -> None:
    assert RouteFactory.create(name="sms:one", kind="twilio").given_credentials == {}
