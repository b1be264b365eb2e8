"""Dispatchers in the admin: shown, and changed by nobody."""

from __future__ import annotations

import datetime as dt

import pytest
from django.test import Client as Browser
from django.urls import reverse

from otp_service.routes.models import Dispatcher
from tests.factories import DispatcherFactory

pytestmark = pytest.mark.django_db

LIST = reverse("admin:routes_dispatcher_changelist")


def test_shows_the_last_heard_of_first_with_its_slots(admin_client: Browser, now: dt.datetime) -> None:
    DispatcherFactory.create(name="old", last_seen_at=now - dt.timedelta(hours=1))
    DispatcherFactory.create(
        name="new", last_seen_at=now, stats={"slots": {"floor": 60, "shared": 9}, "in_flight": {"otp": 7}}
    )
    page = admin_client.get(LIST)
    assert [row.name for row in page.context["cl"].result_list] == ["new", "old"]
    assert "floor: 60, shared: 9" in page.content.decode()
    assert "otp: 7" in page.content.decode()
    assert "2026-09-01 12:00:00" in page.content.decode()


def test_nobody_changes_one(admin_client: Browser) -> None:
    row = DispatcherFactory.create(name="old")
    page = reverse("admin:routes_dispatcher_change", args=[row.pk])
    assert admin_client.get(page).status_code == 200
    assert admin_client.post(page, {"name": "new"}).status_code == 403
    assert Dispatcher.objects.get().name == "old"


def test_an_address_with_nonsense_in_it_is_no_error(admin_client: Browser) -> None:
    assert admin_client.get(LIST, {"q": "nonsense"}).status_code == 200
    assert admin_client.get("/admin/routes/dispatcher/nonsense/change/").status_code == 302
