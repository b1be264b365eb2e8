"""People shut routes off and let them be used again, with a reason: in the admin, and through the manage API."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any, cast

import pytest
import time_machine
from django.conf import settings as django_settings
from django.http import HttpResponse
from django.test import Client as Browser
from django.urls import reverse

from otp_service.events.models import Event
from otp_service.messages import api_keys
from otp_service.messages.api_keys import Scope
from otp_service.routes import breakers
from otp_service.routes.breaker_models import Breaker
from otp_service.routes.breaker_rules import BreakerState
from otp_service.routes.models import Route
from tests.factories import NOON, ClientFactory, RouteFactory
from tests.servers.manage_api import KEY, PREVIOUS, body, fields, problem
from tests.staff_members import logged_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("_noon")]

LIST = reverse("admin:routes_route_changelist")
REASON = {"reason": "the account has no balance"}


@pytest.fixture
def _noon() -> Any:
    with time_machine.travel(NOON, tick=False):
        yield


@pytest.fixture(autouse=True)
def _keys(settings: Any) -> None:
    settings.MANAGE_SERVERS_API_AUTH_KEY = KEY
    settings.MANAGE_SERVERS_API_AUTH_KEY_PREVIOUS = PREVIOUS


def call(name: str, verb: str, sent: Any = REASON, *, key: str = KEY, method: str = "POST") -> HttpResponse:
    address = f"/api/v1/manage/routes/{name}/{verb}/"
    headers = {"Authorization": key} if key else {}
    browser = Browser(raise_request_exception=False)
    answer = browser.generic(method, address, json.dumps(sent), "application/json", headers=headers)
    return cast("HttpResponse", answer)


def told() -> list[tuple[str, str, str]]:
    """What happened, who did it, and why."""
    events = Event.objects.order_by("id").values_list("type", "data__by", "data__reason")
    return list(events)


# --- the manage API ------------------------------------------------------------------------------------


def test_a_route_is_isolated_once_and_enabled_once() -> None:
    RouteFactory.create(name="sms:one")
    for changed in (True, False):
        assert body(call("sms:one", "isolate")) == {"route": "sms:one", "state": "isolated", "changed": changed}
    row = Breaker.objects.get()
    assert (row.route, row.state, row.isolated_by, row.since) == ("sms:one", "isolated", "manage API", NOON)
    for changed in (True, False):
        assert body(call("sms:one", "enable", {"reason": "paid"})) == {
            "route": "sms:one",
            "state": "closed",
            "changed": changed,
        }
    assert told() == [("route.isolated", "manage API", REASON["reason"]), ("route.enabled", "manage API", "paid")]


def test_a_pool_that_has_no_row_can_be_isolated() -> None:
    assert body(call("imessage:es", "isolate"))["changed"] is True


def test_an_open_route_can_be_enabled_before_its_pause_is_over() -> None:
    RouteFactory.create(name="sms:one")
    until = NOON + dt.timedelta(seconds=30)
    shut = {"opened_at": NOON, "pause": dt.timedelta(seconds=30), "until": until}
    Breaker.objects.create(route="sms:one", state=BreakerState.OPEN, generation=1, since=NOON, **shut)
    assert body(call("sms:one", "enable"))["changed"] is True
    assert Breaker.objects.get().state == "closed"


@pytest.mark.parametrize("verb", ["isolate", "enable"])
@pytest.mark.parametrize("name", ["sms:other", "sms", "SMS:ONE", "x" * 300, "sms:one%00", "%D1%97"])
def test_a_route_that_there_is_not_is_named_as_such(name: str, verb: str) -> None:
    RouteFactory.create(name="sms:one")
    assert problem(call(name, verb), 404)["code"] == "unknown_route"
    assert not Breaker.objects.exists()


@pytest.mark.parametrize("verb", ["isolate", "enable"])
@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({}, {"reason": "required"}),
        ({"reason": None}, {"reason": "null"}),
        ({"reason": " \n"}, {"reason": "blank"}),
        ({"reason": "x" * 501}, {"reason": "max_length"}),
        ({"reason": 5}, {"reason": "invalid"}),
        (REASON | {"by": "me"}, {"by": "unknown_field"}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_body_that_is_wrong_is_refused(sent: Any, expected: dict[str, str], verb: str) -> None:
    RouteFactory.create(name="sms:one")
    assert fields(call("sms:one", verb, sent)) == expected
    assert not Breaker.objects.exists()


@pytest.mark.parametrize("verb", ["isolate", "enable"])
def test_who_has_no_key_of_the_manage_api_changes_nothing(verb: str) -> None:
    RouteFactory.create(name="sms:one")
    _, of_a_client = api_keys.create(ClientFactory.create(), tuple(Scope), NOON)
    for key, code in (("", "not_authenticated"), (KEY.upper(), "key_not_valid"), (of_a_client, "key_not_valid")):
        assert problem(call("sms:one", verb, key=key), 401)["code"] == code
    assert not Breaker.objects.exists()
    assert call("sms:one", verb, key=PREVIOUS).status_code == 200


def test_without_a_key_it_is_off(settings: Any) -> None:
    settings.MANAGE_SERVERS_API_AUTH_KEY = ""
    assert problem(call("sms:one", "isolate"), 503)["code"] == "manage_api_off"


def test_it_is_only_posted_to() -> None:
    RouteFactory.create(name="sms:one")
    assert problem(call("sms:one", "isolate", method="GET"), 405)["code"] == "method_not_allowed"


@pytest.mark.parametrize("operation", ["isolate_route", "enable_route"])
def test_the_document_tells_of_it(operation: str) -> None:
    document = json.loads(Browser().get("/api/schema/").content)
    operations = {each.get("operationId"): each for path in document["paths"].values() for each in path.values()}
    found = operations[operation]
    assert found["security"] == [{"manageKey": []}]
    assert found["responses"].keys() == {"200", "400", "401", "404", "413", "415", "503"}


# --- the admin -----------------------------------------------------------------------------------------


def choose(browser: Browser, action: str, *routes: Route, **more: str) -> Any:
    """Tick routes on the list and run an action; returns the page."""
    chosen = {"action": action, "_selected_action": [str(route.pk) for route in routes]}
    return browser.post(LIST, chosen | more, follow=True)


def say_yes(browser: Browser, asked: Any, reason: str) -> Any:
    """Send the form of the page that asks, as a browser does."""
    hidden = re.findall(
        r'<input type="hidden" name="(action|_selected_action)" value="([^"]*)"', asked.content.decode()
    )
    sent = {"_selected_action": [value for name, value in hidden if name == "_selected_action"]}
    (action,) = [value for name, value in hidden if name == "action"]
    return browser.post(LIST, sent | {"action": action, "reason": reason}, follow=True)


def test_the_list_isolates_what_is_ticked_and_says_who_and_why(admin_client: Browser) -> None:
    one, two, other = (RouteFactory.create(name=f"sms:{name}") for name in ("one", "two", "other"))
    asked = choose(admin_client, "isolate", one, two)
    assert "until somebody enables them" in asked.content.decode()
    assert not Breaker.objects.exists()
    answer = say_yes(admin_client, asked, "  no balance  ").content.decode()
    assert "Isolated: sms:one, sms:two." in answer
    rows = Breaker.objects.order_by("route").values_list("route", "state", "isolated_by", "reason")
    assert list(rows) == [(name, "isolated", "admin", "no balance") for name in ("sms:one", "sms:two")]
    assert other.name not in dict(rows.values_list("route", "state"))


def test_the_list_enables_what_is_shut_off_and_names_what_was_not(admin_client: Browser) -> None:
    one, two = RouteFactory.create(name="sms:one"), RouteFactory.create(name="sms:two")
    breakers.isolate("sms:one", by="ada", reason="no balance", now=NOON)
    answer = say_yes(admin_client, choose(admin_client, "enable_again", one, two), "paid").content.decode()
    assert "Enabled: sms:one." in answer
    assert "nothing was to be done: sms:two." in answer
    assert Breaker.objects.get(route="sms:one").state == "closed"
    assert told()[-1] == ("route.enabled", "admin", "paid")


@pytest.mark.parametrize("reason", ["", "  ", "x" * 501, "a\0"], ids=["none", "blank", "too long", "a NUL"])
def test_without_a_good_reason_the_page_asks_again(admin_client: Browser, reason: str) -> None:
    route = RouteFactory.create(name="sms:one")
    answer = choose(admin_client, "isolate", route, reason=reason)
    assert answer.context["form"].errors["reason"]
    assert not Breaker.objects.exists()


def test_who_may_only_look_is_offered_nothing_and_changes_nothing(client: Browser) -> None:
    route = RouteFactory.create(name="sms:one")
    onlooker = logged_in(client, "routes.view_route")
    assert 'value="isolate"' not in onlooker.get(LIST).content.decode()
    choose(onlooker, "isolate", route, **REASON)
    assert not Breaker.objects.exists()


def test_the_list_and_the_page_tell_how_a_route_stands(admin_client: Browser) -> None:
    route = RouteFactory.create(name="sms:one")
    page = reverse("admin:routes_route_change", args=[route.pk])
    assert "closed: it carries everything" in admin_client.get(page).content.decode()
    breakers.isolate("sms:one", by="ada", reason="no <b>balance", now=NOON)
    assert "isolated" in admin_client.get(LIST).content.decode()
    text = admin_client.get(page).content.decode()
    assert "isolated since 12:00" in text
    assert "by ada: no &lt;b&gt;balance" in text


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (BreakerState.OPEN, "open since 12:00: it is left alone, probes from 12:00"),
        (BreakerState.HALF_OPEN, "half open since 12:00: a few probes say whether it works again"),
    ],
)
def test_the_page_tells_what_happens_next(admin_client: Browser, state: BreakerState, sentence: str) -> None:
    route = RouteFactory.create(name="sms:one")
    until = NOON + dt.timedelta(seconds=30) if state is BreakerState.OPEN else None
    shut = {"opened_at": NOON, "pause": dt.timedelta(seconds=30), "until": until}
    Breaker.objects.create(route="sms:one", state=state, generation=1, since=NOON, **shut)
    assert sentence in admin_client.get(reverse("admin:routes_route_change", args=[route.pk])).content.decode()


def test_the_manage_apis_own_prefix_leaves_room_for_it() -> None:
    assert not "api/v1/manage/routes/".startswith(django_settings.MANAGE_API_PREFIX)
