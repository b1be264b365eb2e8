"""Addresses of the admin that nobody's link leads to: a clear 400, never a 500, and no way to guess at a column."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.db.models import Model
from django.test import Client as Browser
from django.urls import reverse

from otp_service.core.clock import utc_now
from servers.models import Group, Host
from tests.factories import ClientFactory, GroupFactory, HostFactory
from tests.web.admin_rows import a_row_of_everything

pytestmark = pytest.mark.django_db

MODELS = sorted(admin.site._registry, key=lambda model: model._meta.label)
NUL_QUERIES = [
    {"q": "\0"},
    {"status": "\0"},
    {"type": "\0"},
    {"name__contains": "\0"},
    {"lane__exact": "\0"},
    {"o": "\0"},
    {"p": "\0"},
    {"\0": "x"},
]


def listing(model: type[Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label)
def test_a_nul_in_the_address_of_a_page_is_refused(admin_client: Browser, model: type[Model]) -> None:
    row = a_row_of_everything(utc_now())[model]
    address = listing(model)
    for query in NUL_QUERIES:
        answer = admin_client.get(address, query)
        assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
        assert "NUL" in answer.json()["detail"]
    for way in ("%00/change/", f"{row.pk}%00/change/", "%00/delete/", "%00/history/"):
        assert admin_client.get(address + way).status_code == 400
        assert admin_client.post(address + way).status_code == 400
    assert admin_client.get(f"{address}{row.pk}/change/", {"_changelist_filters": "\0"}).status_code == 400


def test_a_nul_that_is_written_out_is_text(admin_client: Browser) -> None:
    for text in ("%00", "\\0"):
        assert admin_client.get(listing(Group), {"q": text}).status_code == 200


@pytest.mark.parametrize("name", ["", "status__exact", "q"])
def test_strangers_are_refused_too(client: Browser, name: str) -> None:
    assert client.get("/admin/login/", {name or "next": "\0"}).status_code == 400


@pytest.mark.parametrize("key", ["x", "\0", "1,2", ""])
@pytest.mark.parametrize(
    ("page", "action"),
    [
        ("servers_server", "recover"),
        ("servers_server", "choose_groups"),
        ("servers_group", "delete_selected"),
        ("servers_host", "choose_new_secret"),
        ("otp_messages_apikey", "revoke_selected"),
        ("auth_user", "delete_selected"),
        ("django_celery_beat_periodictask", "disable_tasks"),
    ],
)
def test_an_action_on_what_is_no_key_is_refused(admin_client: Browser, page: str, action: str, key: str) -> None:
    answer = admin_client.post(reverse(f"admin:{page}_changelist"), {"action": action, "_selected_action": key})
    assert answer.status_code == 400


@pytest.mark.parametrize("lookup", ["name__regex", "name__iregex"])
@pytest.mark.parametrize("page", ["servers_server", "django_celery_beat_periodictask", "auth_group"])
def test_a_pattern_is_refused(admin_client: Browser, page: str, lookup: str) -> None:
    assert admin_client.get(reverse(f"admin:{page}_changelist"), {lookup: "("}).status_code == 400


# --- what an address may ask about ---------------------------------------------------------------------


def secretive() -> Any:
    """The lists of rows that people write, each with a lookup of something that is no filter of it."""
    return [
        ("servers_host", "secret__contains"),
        ("servers_host", "previous_secret"),
        ("servers_host", "name__contains"),
        ("servers_server", "host__secret__contains"),
        ("servers_server", "handle__startswith"),
        ("servers_group", "servers__host__secret__contains"),
        ("otp_messages_client", "name__contains"),
        ("otp_messages_client", "api_keys__digest__contains"),
        ("auth_user", "password__startswith"),
    ]


@pytest.mark.parametrize(("page", "lookup"), secretive())
def test_an_address_asks_about_nothing_but_the_filters(admin_client: Browser, page: str, lookup: str) -> None:
    HostFactory.create()
    ClientFactory.create()
    GroupFactory.create()
    assert admin_client.get(reverse(f"admin:{page}_changelist"), {lookup: "x"}).status_code == 400


@pytest.mark.parametrize(("lookup", "value"), [("enabled__exact", "1"), ("protocol__exact", "simple")])
def test_a_list_is_still_filtered(admin_client: Browser, lookup: str, value: str) -> None:
    HostFactory.create(enabled=True)
    assert admin_client.get(listing(Host), {lookup: value}).status_code == 200
