"""Every page of the admin loads, and costs as many queries on a fleet of the size of production as on a small one."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.db.models import Model
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from otp_service.core.clock import utc_now
from servers.models import Server
from tests import big_fleet
from tests.factories import GroupFactory
from tests.web.admin_rows import a_row_of_everything

pytestmark = pytest.mark.django_db

MODELS = sorted(admin.site._registry, key=lambda model: model._meta.label)


def page(model: type[Model], kind: str, *args: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{kind}", args=args)


def queries_of(browser: Browser, address: str) -> int:
    with CaptureQueriesContext(connection) as captured:
        assert browser.get(address).status_code == 200
    return len(captured)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label)
def test_costs_the_same_queries_on_a_big_fleet(admin_client: Browser, model: type[Model]) -> None:
    row = a_row_of_everything(utc_now())[model]
    addresses = [page(model, "changelist"), page(model, "change", row.pk), page(model, "history", row.pk)]
    for address in addresses:
        queries_of(admin_client, address)  # fills caches
    few = [queries_of(admin_client, address) for address in addresses]
    big_fleet.build(now=utc_now())
    assert [queries_of(admin_client, address) for address in addresses] == few


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label)
def test_the_form_for_a_new_row_loads_where_there_is_one(
    admin_client: Browser, rf: Any, admin_user: Any, model: type[Model]
) -> None:
    request = rf.get("/admin/")
    request.user = admin_user
    allowed = admin.site._registry[model].has_add_permission(request)
    assert admin_client.get(page(model, "add")).status_code == (200 if allowed else 403)


@pytest.mark.parametrize("kind", ["server_verdict", "server_memberships", "group_change", "group_delete"])
def test_a_page_about_many_servers_costs_the_same_queries_for_all_of_them(admin_client: Browser, kind: str) -> None:
    def address(servers: int) -> str:
        ids = list(Server.objects.order_by("pk").values_list("pk", flat=True)[:servers])
        group.servers.set(ids)
        if kind.startswith("group"):
            return reverse(f"admin:servers_{kind}", args=[group.pk])
        arguments = ["lost"] if kind == "server_verdict" else []
        return f"{reverse(f'admin:servers_{kind}', args=arguments)}?ids={','.join(map(str, ids))}"

    big_fleet.build(now=utc_now(), history_rows=1_000)
    group = GroupFactory.create(priority=1_000)
    few, all_of_them = address(2), big_fleet.SERVERS
    queries_of(admin_client, few)
    counted = queries_of(admin_client, few)
    assert queries_of(admin_client, address(all_of_them)) == counted <= 20
