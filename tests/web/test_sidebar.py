"""The sidebar shows the pages that a person may see; the log-in's own pages look as the rest."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from unfold.admin import ModelAdmin

from otp_service.web.sidebar import SECTIONS

pytestmark = pytest.mark.django_db


def titles(browser: Browser) -> dict[str, list[str]]:
    sections = browser.get("/admin/").context["sidebar_navigation"]
    return {section["title"]: [item["title"] for item in section["items"]] for section in sections}


def staff(*codenames: str) -> Browser:
    user = User.objects.create_user("eve", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    browser = Browser()
    browser.force_login(user)
    return browser


def test_whoever_may_see_everything_has_every_page(admin_client: Browser) -> None:
    assert titles(admin_client) == {section: [page[0] for page in pages] for section, pages in SECTIONS.items()}


def test_every_page_opens(admin_client: Browser) -> None:
    for section in admin_client.get("/admin/").context["sidebar_navigation"]:
        for item in section["items"]:
            assert admin_client.get(item["link"]).status_code == 200, item


@pytest.mark.parametrize(
    ("codenames", "shown"),
    [
        pytest.param((), {}, id="nothing"),
        pytest.param(("view_event",), {"System": ["Events"]}, id="to see"),
        pytest.param(("change_host",), {"Fleet": ["Hosts"]}, id="to change"),
        pytest.param(("add_host", "delete_host"), {}, id="to add and to delete"),
        pytest.param(
            ("view_message", "view_client"), {"Traffic": ["Messages"], "Clients": ["Clients"]}, id="in two sections"
        ),
    ],
)
def test_others_have_the_pages_that_they_may_see(codenames: tuple[str, ...], shown: dict[str, list[str]]) -> None:
    assert titles(staff(*codenames)) == shown


def test_a_stranger_sees_no_page_at_the_log_in(client: Browser) -> None:
    page = client.get("/admin/login/").content.decode()
    assert "/admin/servers/" not in page


@pytest.mark.parametrize("pages", SECTIONS.values(), ids=SECTIONS)
def test_every_page_is_of_a_model_of_the_admin(pages: Any) -> None:
    for _, _, model in pages:
        assert admin.site.is_registered(apps.get_model(model))


@pytest.mark.parametrize("model", [User, Group])
def test_people_and_their_groups_look_as_the_rest(admin_client: Browser, model: Any) -> None:
    assert isinstance(admin.site._registry[model], ModelAdmin)
    name = model._meta.model_name
    row = User.objects.create_user("bob") if model is User else Group.objects.create(name="support")
    for page in ("", "add/", f"{row.pk}/change/"):
        assert admin_client.get(f"/admin/auth/{name}/{page}").status_code == 200


def test_the_list_of_users_takes_as_many_queries_for_many(admin_client: Browser) -> None:
    counts = []
    for names in (["bob"], [f"user {number}" for number in range(9)]):
        for user in names:
            User.objects.create_user(user)
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get("/admin/auth/user/").status_code == 200
        counts.append(len(captured))
    assert counts[0] == counts[1]


def test_a_user_is_made_with_a_password_of_twelve_characters(admin_client: Browser) -> None:
    form = {"username": "bob", "usable_password": "true"}
    for password, made in (("short-one-1", False), ("a long one of its own", True)):
        admin_client.post("/admin/auth/user/add/", form | {"password1": password, "password2": password})
        assert User.objects.filter(username="bob").exists() is made
