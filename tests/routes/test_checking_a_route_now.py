"""A person asks whether an outside route could be used, and is told on its page."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any, cast

import aiohttp
import pytest
from django.db import connection
from django.test import Client as Browser
from django.urls import reverse

from otp_service.routes import route_owners
from otp_service.routes.models import Route
from otp_service.routes.providers import checks
from otp_service.routes.providers.base import Health, OutsideProvider
from otp_service.routes.route_owners import Binds
from otp_service.routes.route_rules import RouteKind, RouteSpec
from tests.factories import DispatcherFactory, RouteFactory
from tests.staff_members import logged_in

pytestmark = pytest.mark.django_db


class Asked:
    """A provider that says what it is told to; None: it never answers."""

    def __init__(self, health: Health | None) -> None:
        self._health = health

    async def check(self, session: aiohttp.ClientSession, spec: RouteSpec) -> Health:
        assert (spec.name, spec.credentials) == ("sms:one", {"auth_token": "sesame"})
        return self._health or await asyncio.get_running_loop().create_future()


def says(monkeypatch: pytest.MonkeyPatch, health: Health | None) -> None:
    monkeypatch.setattr(checks, "_ASKED", {RouteKind.TWILIO: cast("OutsideProvider", Asked(health))})


def route(kind: str = "twilio") -> Route:
    made: Route = RouteFactory.create(name="sms:one", kind=kind, credentials='{"auth_token": "sesame"}')
    return made


def smsc(**changed: Any) -> Route:
    given = {"settings": {"host": "smsc.example", "system_id": "acme"}, "credentials": '{"password": "sesame"}'}
    made: Route = RouteFactory.create(name="sms:one", kind="smpp", **(given | changed))
    return made


def check_of(row: Route) -> str:
    return reverse("admin:routes_route_check_now", args=[row.pk])


def told(browser: Browser, row: Route) -> list[tuple[str, str]]:
    answer = browser.get(check_of(row), follow=True)
    assert answer.redirect_chain == [(reverse("admin:routes_route_change", args=[row.pk]), 302)]
    return [(message.level_tag, message.message) for message in answer.context["messages"]]


@pytest.mark.parametrize(
    ("health", "level"),
    [(Health(True, "The account is active."), "success"), (Health(False, "The provider answered 401."), "error")],
)
def test_what_the_provider_says_stands_on_the_page(
    admin_client: Browser, monkeypatch: pytest.MonkeyPatch, health: Health, level: str
) -> None:
    says(monkeypatch, health)
    assert told(admin_client, route()) == [(level, health.detail)]


def test_a_provider_that_does_not_answer_is_not_waited_for(
    admin_client: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, None)
    monkeypatch.setattr(checks, "TIMEOUT", dt.timedelta(milliseconds=10))
    assert told(admin_client, route()) == [("error", "No answer within 0.01 s.")]


@pytest.mark.parametrize("kind", ["twilio", "kannel", "http_json"])
def test_each_provider_says_what_is_wrong_with_settings_that_it_cannot_read(admin_client: Browser, kind: str) -> None:
    ((level, sentence),) = told(admin_client, route(kind))
    assert level == "error"
    assert sentence.endswith(".")
    assert "sesame" not in sentence


def test_of_smpp_its_owner_is_asked(admin_client: Browser) -> None:
    row = smsc()
    ((level, sentence),) = told(admin_client, row)
    assert (level, sentence[:24]) == ("error", "No dispatcher holds it: ")
    owner = DispatcherFactory.create(name="one")
    route_owners.take(owner.pk, {"sms:one": Binds(True, "1 of 1 binds are up.")}, dispatchers=1)
    assert told(admin_client, row) == [("success", "one: 1 of 1 binds are up.")]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        pytest.param({"settings": {"host": "smsc.example"}}, "system_id must be", id="settings"),
        pytest.param({"credentials": None}, "password must be", id="credentials"),
    ],
)
def test_of_smpp_what_cannot_be_read_is_said_before_anybody_is_asked(
    admin_client: Browser, changed: dict[str, Any], says: str
) -> None:
    ((level, sentence),) = told(admin_client, smsc(**changed))
    assert level == "error"
    assert sentence.startswith(says)


def test_credentials_that_cannot_be_opened_are_said_to_be_so(admin_client: Browser) -> None:
    row = route()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE routes_route SET credentials = %s WHERE id = %s", [b"not ours", row.pk])
    assert told(admin_client, row) == [("error", "Its credentials cannot be opened: give them again.")]


@pytest.mark.parametrize("own", [{"kind": "simulated"}, {"pool": "es"}])
def test_routes_of_our_own_have_nobody_to_ask(admin_client: Browser, own: dict[str, Any]) -> None:
    row = RouteFactory.create(**own)
    assert admin_client.get(check_of(row)).status_code == 403
    page = reverse("admin:routes_route_change", args=[row.pk])
    assert b"Check now" not in admin_client.get(page).content
    assert b"Check now" in admin_client.get(reverse("admin:routes_route_change", args=[route().pk])).content


def test_who_may_only_look_at_routes_does_not_ask(client: Browser) -> None:
    browser = logged_in(client, "routes.view_route")
    assert browser.get(check_of(route())).status_code == 403


def test_a_route_that_is_not_there(admin_client: Browser) -> None:
    assert admin_client.get(reverse("admin:routes_route_check_now", args=[10**6])).status_code == 404
