"""Routes in the admin: their limits are edited, their names stay; what is wrong stands at its field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client as Browser
from django.urls import reverse
from structlog.testing import capture_logs

from otp_service.core.clock import utc_now
from otp_service.routes.models import Route, RouteDay
from otp_service.routes.providers import registry
from otp_service.routes.route_rules import RouteKind
from tests.factories import RouteFactory
from tests.staff_members import logged_in

pytestmark = pytest.mark.django_db

LIST, ADD = reverse("admin:routes_route_changelist"), reverse("admin:routes_route_add")
NEW: dict[str, Any] = {
    "name": "sms:one",
    "kind": "simulated",
    "enabled": "on",
    "priority": "0",
    "expected_ms": "150",
    "weight": "1",
    "delivery_s": "10",
}


def page_of(route: Route) -> str:
    return reverse("admin:routes_route_change", args=[route.pk])


def errors(answer: Any) -> dict[str, list[str]]:
    assert answer.status_code == 200
    return dict(answer.context["adminform"].form.errors)


def limits(route: Route, **changes: Any) -> dict[str, Any]:
    """The form of a route as a browser sends it, without what it had shown."""
    sent = {"enabled": "on", "lanes": route.lanes, "priority": route.priority, "expected_ms": route.expected_ms}
    sent |= {"weight": route.weight, "delivery_s": route.delivery_s, "has_receipts": "on" if route.has_receipts else ""}
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
        ({"kind": "telex"}, "kind", "not one of the available choices"),
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
        ({"weight": "0"}, "weight", "greater than or equal to 1"),
        ({"weight": "1001"}, "weight", "less than or equal to 1000"),
        ({"prefixes": "+34, 34"}, "prefixes", "as in +34"),
        ({"prefixes": "+34\0"}, "prefixes", "Null characters"),
        ({"sender_names": "ACME, ÁCME"}, "sender_names", "printable ASCII"),
        ({"sender_names": "A" * 21}, "sender_names", "at most 20"),
        ({"encodings": ["utf8"]}, "encodings", "utf8 is not one"),
        ({"max_parts": "0"}, "max_parts", "greater than or equal to 1"),
        ({"delivery_s": "86401"}, "delivery_s", "less than or equal to 86400"),
        ({"receipt_wait_s": "0"}, "receipt_wait_s", "greater than or equal to 1"),
        ({"opens_at": "25:00"}, "opens_at", "valid time"),
        ({"opens_at": "08:00"}, "__all__", "Give both hours"),
        ({"opens_at": "08:00", "closes_at": "08:00"}, "__all__", "different ones"),
        ({"cost_per_part": "-1", "currency": "EUR"}, "cost_per_part", "greater than or equal to 0"),
        ({"cost_per_part": "nan", "currency": "EUR"}, "cost_per_part", "Enter a number"),
        ({"cost_per_part": "0.0000001", "currency": "EUR"}, "cost_per_part", "6 decimal places"),
        ({"cost_per_part": "1"}, "__all__", "its currency"),
        ({"currency": "EUR"}, "__all__", "its currency"),
        ({"cost_per_part": "1", "currency": "eur"}, "currency", "as in EUR"),
        ({"settings": "{"}, "settings", "valid JSON"),
        ({"settings": "[]"}, "settings", "JSON object"),
        ({"settings": "0"}, "settings", "JSON object"),
        ({"settings": '"\\u0000"'}, "settings", "Null characters"),
        ({"settings": "[" * 100_000}, "settings", "at most 10000"),
        ({"settings": "[" * 9_999}, "settings", "valid JSON"),
        ({"settings": "[" * 4_999 + "]" * 4_999}, "settings", "valid JSON"),
        ({"settings": "[" * 11 + "]" * 11}, "settings", "at most 10 deep"),
        ({"settings": "9" * 9_999}, "settings", "valid JSON"),
        ({"settings": '{"latency_ms": "\\u0000"}'}, "settings", "Null characters"),
        ({"settings": '{"\\u0000": 1}'}, "settings", "Null characters"),
        ({"settings": '{"latency_ms": 1e999}'}, "settings", "must be finite"),
        ({"settings": '{"outcome": NaN}'}, "settings", "must be finite"),
        ({"settings": '{"speed": ["\\ud800"]}'}, "settings", "halves of surrogate pairs"),
        ({"settings": '{"latency_ms": -1}'}, "settings", "latency_ms must be"),
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


#: This module stands in for the provider of a kind, with what a provider's module has.
SETTINGS, CREDENTIALS = ("url",), ("token", "receipt_token")


def read_settings(settings: Mapping[str, Any], credentials: Mapping[str, str]) -> object:
    if "url" not in settings:
        raise ValueError("url is missing.")
    if not credentials.get("token"):
        raise ValueError("The credential token is not set.")
    return settings


@pytest.fixture
def telegraph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds are spoken to: one by this module, one by a module that is not there."""
    modules = {RouteKind.TWILIO: __name__, RouteKind.KANNEL: f"{__name__}_of_nobody"}
    monkeypatch.setattr(registry, "MODULES", modules)


def account(**stored: Any) -> Route:
    return RouteFactory.create(name="sms:one", kind="twilio", settings={"url": "https://a.example"}, **stored)


def written(route: Route, **changes: Any) -> dict[str, Any]:
    return limits(route, settings='{"url": "https://a.example"}') | changes


def credentials_of(route: Route) -> dict[str, str]:
    return Route.objects.get(pk=route.pk).given_credentials


@pytest.mark.usefixtures("telegraph")
def test_an_account_is_made_first_and_gets_its_credentials_then(admin_client: Browser) -> None:
    new = NEW | {"kind": "twilio", "settings": '{"url": "https://a.example"}'}
    (fault,) = errors(admin_client.post(ADD, new))["settings"]
    assert fault.startswith("The credential token is not set. Save it without")
    assert admin_client.post(ADD, new | {"enabled": ""}).status_code == 302
    made = Route.objects.get()
    assert admin_client.post(page_of(made), written(made)).status_code == 200
    assert admin_client.post(page_of(made), written(made, credential_token=" open sesame ")).status_code == 302
    made.refresh_from_db()
    assert (made.enabled, made.given_credentials) == (True, {"token": " open sesame "})


@pytest.mark.usefixtures("telegraph")
def test_settings_of_an_enabled_account_are_read_by_its_provider(admin_client: Browser) -> None:
    route = account(credentials='{"token": "open sesame"}')
    assert errors(admin_client.post(page_of(route), written(route, settings="{}"))) == {"settings": ["url is missing."]}


@pytest.mark.usefixtures("telegraph")
def test_settings_are_read_of_an_account_that_is_not_enabled_too(admin_client: Browser) -> None:
    new = NEW | {"kind": "twilio", "enabled": "", "settings": "{}"}
    assert errors(admin_client.post(ADD, new)) == {"settings": ["url is missing."]}
    route = account(enabled=False)
    assert errors(admin_client.post(page_of(route), written(route, enabled="", settings="{}"))) == {
        "settings": ["url is missing."]
    }


@pytest.mark.usefixtures("telegraph")
def test_an_account_is_switched_off_whatever_its_settings_are(admin_client: Browser) -> None:
    route = account()
    Route.objects.update(settings={})
    assert admin_client.post(page_of(route), limits(route, enabled="")).status_code == 302
    assert not Route.objects.get().enabled


@pytest.mark.parametrize("kind", [kind for kind in RouteKind if registry.is_outside(kind)])
def test_settings_that_there_are_not_are_refused_before_credentials_are_given(
    admin_client: Browser, kind: RouteKind
) -> None:
    found = errors(admin_client.post(ADD, NEW | {"kind": kind.value, "enabled": "", "settings": '{"speed": 1}'}))
    assert re.search("settings of a|no setting of", found.pop("settings")[0])
    assert not found


def test_a_new_route_is_not_enabled_and_says_what_can_be_given_when(admin_client: Browser) -> None:
    form = admin_client.get(ADD).context["adminform"].form
    assert form.initial["enabled"] is False
    for kind in RouteKind:
        if (module := registry.module_of(kind)) is not None:
            told = f"{kind}: {', '.join(module.SETTINGS)} (credentials: {', '.join(module.CREDENTIALS)})"
            assert told in form.fields["settings"].help_text
    assert "once the route is saved" in form.fields["settings"].help_text
    for name in ("name", "kind"):
        assert form.fields[name].help_text.endswith("It cannot be changed later")


@pytest.mark.parametrize(
    ("made", "headings"),
    [
        pytest.param(
            {"name": "sms:one", "kind": "twilio"},
            [None, "What it may carry", "Limits", "Reports", "Price", "Provider"],
            id="of a provider",
        ),
        pytest.param({"pool": "es"}, [None, "What it may carry", "Limits"], id="a pool"),
    ],
)
def test_its_page_has_a_heading_for_each_kind_of_thing(
    admin_client: Browser, made: dict[str, Any], headings: list[str | None]
) -> None:
    page = admin_client.get(page_of(RouteFactory.create(**made)))
    assert [fieldset.name for fieldset in page.context["adminform"]] == headings


@pytest.mark.usefixtures("telegraph")
def test_credentials_are_never_shown(admin_client: Browser) -> None:
    route = account(credentials='{"token": "open sesame"}')
    page = admin_client.get(page_of(route))
    fields = page.context["adminform"].form.fields
    assert fields["credential_token"].help_text.startswith("set;")
    assert fields["credential_receipt_token"].help_text.startswith("not set;")
    assert "token: set" in page.content.decode()
    again = admin_client.post(page_of(route), written(route, credential_token="abracadabra", weight="0"))
    assert errors(again).keys() == {"weight"}
    for shown in (page, again, admin_client.get(LIST)):
        assert "sesame" not in shown.content.decode()
        assert "abracadabra" not in shown.content.decode()


@pytest.mark.usefixtures("telegraph")
def test_who_changed_which_credentials_is_logged_without_them(admin_client: Browser, admin_user: Any) -> None:
    route = account(credentials='{"token": "open sesame", "receipt_token": "old"}')
    sent = written(route, credential_token="abracadabra", forget=["receipt_token"])
    with capture_logs() as logs:
        assert admin_client.post(page_of(route), sent).status_code == 302
    assert credentials_of(route) == {"token": "abracadabra"}
    (entry,) = [entry for entry in logs if entry["event"] == "route_credentials_changed"]
    assert (entry["route"], entry["credentials"], entry["user"]) == ("sms:one", "receipt_token, token", admin_user.pk)
    history = LogEntry.objects.get()
    assert "token (credential)" in history.change_message
    assert not re.search("sesame|abracadabra|old", f"{logs} {history.change_message}")


@pytest.mark.usefixtures("telegraph")
def test_credentials_that_are_left_out_stay(admin_client: Browser) -> None:
    route = account(credentials='{"token": "open sesame", "receipt_token": "old"}')
    sent = written(route, credential_token="", credential_receipt_token="new", **{"initial-credential_token": "x"})
    assert admin_client.post(page_of(route), sent).status_code == 302
    assert credentials_of(route) == {"token": "open sesame", "receipt_token": "new"}


@pytest.mark.usefixtures("telegraph")
def test_credentials_that_settings_name_are_asked_for(admin_client: Browser) -> None:
    route = account(credentials='{"token": "open sesame"}')
    Route.objects.update(settings={"url": "https://a.example/?key={credentials.api_key}"})
    assert "credential_api_key" in admin_client.get(page_of(route)).context["adminform"].form.fields
    sent = limits(route, settings='{"url": "https://a.example"}', credential_api_key="abracadabra")
    assert admin_client.post(page_of(route), sent).status_code == 302
    assert credentials_of(route) == {"token": "open sesame", "api_key": "abracadabra"}


@pytest.mark.usefixtures("telegraph")
def test_credentials_that_cannot_be_opened_are_given_again(admin_client: Browser) -> None:
    route = account(credentials='{"token": "open sesame"}')
    with connection.cursor() as cursor:
        cursor.execute("UPDATE routes_route SET credentials = %s", [b"not ours"])
    assert "cannot be opened" in admin_client.get(page_of(route)).content.decode()
    assert admin_client.post(page_of(route), written(route, credential_token="abracadabra")).status_code == 302
    assert credentials_of(route) == {"token": "abracadabra"}


@pytest.mark.usefixtures("telegraph")
def test_a_kind_whose_module_is_not_there_is_not_available(admin_client: Browser) -> None:
    assert "kind" in errors(admin_client.post(ADD, NEW | {"kind": "kannel"}))
    assert "not available" in registry.fault(RouteKind.KANNEL, {}, {})
    route = RouteFactory.create(name="sms:one", kind="kannel")
    assert "not available" in errors(admin_client.post(page_of(route), limits(route)))["settings"][0]


@pytest.mark.usefixtures("telegraph")
def test_whoever_may_only_look_sees_which_credentials_there_are(client: Browser) -> None:
    route = account(credentials='{"token": "open sesame"}')
    logged_in(client, "routes.view_route")
    page = client.get(page_of(route))
    assert page.status_code == 200
    assert "token: set" in page.content.decode()
    assert "credential_token" not in page.content.decode()
    assert client.post(page_of(route), written(route, credential_token="abracadabra")).status_code == 403
    assert credentials_of(route) == {"token": "open sesame"}


def test_simulated_routes_and_pools_have_no_credentials(admin_client: Browser) -> None:
    route = RouteFactory.create(name="sms:one")
    assert not [
        name for name in admin_client.get(page_of(route)).context["adminform"].form.fields if "credential" in name
    ]
