"""The database itself refuses routes that cannot be, whoever writes them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from otp_service.routes.models import Route
from tests.factories import RouteFactory

pytestmark = pytest.mark.django_db

NAMES = "route_name_kind_and_channel_agree"
POOL, ACCOUNT = {"pool": "es"}, {"name": "sms:one"}

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
