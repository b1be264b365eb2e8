"""Routes in the admin: their limits are edited, their names stay; what is wrong stands at its field."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client as Browser
from django.urls import reverse

from otp_service.core.clock import utc_now
from otp_service.routes.models import Route, RouteDay
from tests.factories import RouteFactory

pytestmark = pytest.mark.django_db

LIST, ADD = reverse("admin:routes_route_changelist"), reverse("admin:routes_route_add")
NEW: dict[str, Any] = {"name": "sms:one", "kind": "simulated", "enabled": "on", "priority": "0", "expected_ms": "150"}


def page_of(route: Route) -> str:
    return reverse("admin:routes_route_change", args=[route.pk])


def errors(answer: Any) -> dict[str, list[str]]:
    assert answer.status_code == 200
    return dict(answer.context["adminform"].form.errors)


def limits(route: Route, **changes: Any) -> dict[str, Any]:
    """The form of a route as a browser sends it, without what it had shown."""
    sent = {"enabled": "on", "lanes": route.lanes, "priority": route.priority, "expected_ms": route.expected_ms}
    for name in ("in_flight_cap", "tps", "daily_quota"):
        value = getattr(route, name)
        sent[name] = "" if value is None else value
    return sent | {"settings": "{}"} | changes


def test_a_simulated_route_is_made_with_its_channel(admin_client: Browser) -> None:
    given = NEW | {"lanes": ["otp", "promo"], "tps": "2.5", "settings": '{"latency_ms": 150, "outcome": "unknown"}'}
    assert admin_client.post(ADD, given).status_code == 302
    made = Route.objects.get()
    assert (made.name, made.channel, made.kind, made.enabled) == ("sms:one", "sms", "simulated", True)
    assert (made.lanes, made.tps, made.in_flight_cap, made.daily_quota) == (["otp", "promo"], 2.5, None, None)
    assert made.settings == {"latency_ms": 150, "outcome": "unknown"}


@pytest.mark.parametrize("settings", ["", "{}", "null"])
def test_settings_that_are_left_out_are_none(admin_client: Browser, settings: str) -> None:
    assert admin_client.post(ADD, NEW | {"settings": settings}).status_code == 302
    assert Route.objects.get().settings == {}


def test_a_pool_is_made_by_its_name(admin_client: Browser) -> None:
    assert admin_client.post(ADD, NEW | {"name": "imessage:es", "kind": "imessage_pool"}).status_code == 302
    assert Route.objects.get().channel == "imessage"


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"name": "SMS:one"}, "name", "as in sms:one"),
        ({"name": "imessage:es"}, "name", "as in sms:one"),
        ({"name": ""}, "name", "required"),
        ({"name": "sms:\0"}, "name", "Null characters"),
        ({"name": "sms:" + "x" * 61}, "name", "at most 64"),
        ({"kind": "imessage_pool"}, "name", "imessage: and its region"),
        ({"kind": "smpp"}, "kind", "not one of the available choices"),
        ({"lanes": ["bulk"]}, "lanes", "bulk is not one"),
        ({"priority": "40000"}, "priority", "less than or equal to 32767"),
        ({"expected_ms": "0"}, "expected_ms", "greater than or equal to 1"),
        ({"expected_ms": "120001"}, "expected_ms", "less than or equal to 120000"),
        ({"in_flight_cap": "0"}, "in_flight_cap", "greater than or equal to 1"),
        ({"in_flight_cap": "9" * 30}, "in_flight_cap", "less than or equal to 2147483647"),
        ({"tps": "0"}, "tps", "greater than or equal to 0.001"),
        ({"tps": "nan"}, "tps", "Enter a number"),
        ({"tps": "1e6"}, "tps", "less than or equal to 100000"),
        ({"daily_quota": "-1"}, "daily_quota", "greater than or equal to"),
        ({"settings": "{"}, "settings", "valid JSON"),
        ({"settings": "[]"}, "settings", "JSON object"),
        ({"settings": "0"}, "settings", "JSON object"),
        ({"settings": '"\\u0000"'}, "settings", "Null characters"),
        ({"settings": "[" * 100_000}, "settings", "at most 300"),
        ({"settings": "[" * 300}, "settings", "valid JSON"),
        ({"settings": '{"latency_ms": "\\u0000"}'}, "settings", "latency_ms must be"),
        ({"settings": '{"latency_ms": 1e999}'}, "settings", "latency_ms must be"),
        ({"settings": '{"outcome": NaN}'}, "settings", "outcome must be"),
        ({"settings": '{"speed": "\\ud800"}'}, "settings", "Only latency_ms, timeout_ms and outcome"),
        ({"settings": '{"speed": 1}'}, "settings", "Only latency_ms, timeout_ms and outcome"),
    ],
)
def test_says_at_the_field_what_is_wrong(
    admin_client: Browser, changes: dict[str, Any], field: str, sentence: str
) -> None:
    found = errors(admin_client.post(ADD, NEW | changes))
    assert sentence in " ".join(found.pop(field))
    assert not found
    assert not Route.objects.exists()


def test_a_name_that_is_taken_is_refused(admin_client: Browser) -> None:
    RouteFactory.create(name="sms:one")
    assert "already exists" in errors(admin_client.post(ADD, NEW))["name"][0]


def test_settings_of_a_pool_are_refused(admin_client: Browser) -> None:
    pool = NEW | {"name": "imessage:es", "kind": "imessage_pool", "settings": '{"latency_ms": 1}'}
    assert errors(admin_client.post(ADD, pool)) == {"settings": ["A pool has no settings."]}


def test_every_field_says_what_it_is_for(admin_client: Browser) -> None:
    form = admin_client.get(ADD).context["adminform"].form
    assert [name for name, field in form.fields.items() if not field.help_text] == []


def test_limits_are_edited_and_name_and_kind_stay(admin_client: Browser) -> None:
    route = RouteFactory.create(name="sms:one", priority=1)
    sent = limits(route, tps="3", daily_quota="500", lanes=["otp"], name="push:two", kind="imessage_pool")
    assert admin_client.post(page_of(route), sent).status_code == 302
    route.refresh_from_db()
    assert (route.name, route.kind, route.channel) == ("sms:one", "simulated", "sms")
    assert (route.tps, route.daily_quota, route.lanes, route.priority) == (3.0, 500, ["otp"], 1)


def test_a_limit_is_taken_away(admin_client: Browser) -> None:
    route = RouteFactory.create(name="sms:one", tps=3, lanes=["otp"])
    sent = limits(route, tps="", lanes=[]) | {"initial-lanes": ["otp"]}
    assert admin_client.post(page_of(route), sent).status_code == 302
    route.refresh_from_db()
    assert (route.tps, route.lanes) == (None, [])


def test_a_pool_has_neither_settings_nor_priority_to_edit(admin_client: Browser) -> None:
    pool = RouteFactory.create(pool="es")
    fields = admin_client.get(page_of(pool)).context["adminform"].form.fields
    assert {"settings", "priority", "name", "kind", "channel"}.isdisjoint(fields)
    assert admin_client.post(page_of(pool), limits(pool, enabled="", settings='{"latency_ms": 1}')).status_code == 302
    pool.refresh_from_db()
    assert (pool.enabled, pool.settings) == (False, {})


def test_what_somebody_else_changed_meanwhile_is_left(admin_client: Browser) -> None:
    route = RouteFactory.create(name="sms:one", tps=3, daily_quota=5, settings={"latency_ms": 1})
    page = admin_client.get(page_of(route)).content.decode()
    hidden = re.findall(r'<input type="hidden" name="(initial-[^"]*)" value="([^"]*)"', page)
    shown = {name: unescape(value) for name, value in hidden}
    assert {"initial-tps", "initial-daily_quota", "initial-settings"} <= shown.keys()
    Route.objects.update(settings={"latency_ms": 2}, daily_quota=7)
    sent = limits(route, tps="4", settings=shown["initial-settings"]) | shown
    assert admin_client.post(page_of(route), sent).status_code == 302
    route.refresh_from_db()
    assert (route.tps, route.settings, route.daily_quota) == (4.0, {"latency_ms": 2}, 7)


@pytest.mark.parametrize(
    ("quota", "taken", "shown"), [(None, None, ""), (None, 5, ""), (100, None, "0"), (100, 42, "42")]
)
def test_shows_how_much_of_todays_quota_is_used(
    admin_client: Browser, quota: int | None, taken: int | None, shown: str
) -> None:
    route = RouteFactory.create(name="sms:one", daily_quota=quota)
    if taken is not None:
        RouteDay.objects.create(route="sms:one", day=utc_now().date(), used=taken)
        RouteDay.objects.create(route="sms:two", day=utc_now().date(), used=1_000)
    listed = admin_client.get(LIST).context["cl"].result_list.get()
    model_admin = admin_client.get(page_of(route)).context["adminform"].model_admin
    assert model_admin.used_today(listed) == shown


@pytest.mark.parametrize(
    ("row", "is_on", "used"),
    [
        ({"pool": "es"}, False, True),
        ({"pool": "es", "enabled": False}, True, False),
        ({"name": "sms:one"}, False, False),
        ({"name": "sms:one"}, True, True),
    ],
)
def test_shows_whether_dispatchers_see_it(
    admin_client: Browser, settings: Any, row: dict[str, Any], is_on: bool, used: bool
) -> None:
    settings.SIMULATED_ROUTES = is_on
    RouteFactory.create(**row)
    page = admin_client.get(LIST)
    (route,) = page.context["cl"].result_list
    assert page.context["cl"].model_admin.is_used(route) is used


def test_a_route_is_never_deleted(admin_client: Browser) -> None:
    route = RouteFactory.create()
    assert admin_client.post(reverse("admin:routes_route_delete", args=[route.pk]), {"post": "yes"}).status_code == 403
    assert Route.objects.filter(pk=route.pk).exists()
