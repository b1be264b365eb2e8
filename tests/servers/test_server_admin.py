"""The admin of hosts, groups, servers and history."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from otp_service.events.models import Event as LogEvent
from servers.models import Server, ServerStatusHistory
from servers.rules import Event
from tests.factories import GroupFactory, HostFactory, ServerFactory

pytestmark = pytest.mark.django_db
SECRET = "whsec_" + "B" * 42 + "E="


@pytest.fixture
def people(admin_client: Client) -> Client:
    return admin_client


@pytest.mark.parametrize("page", ["host", "group", "server", "serverstatushistory"])
def test_a_list_takes_the_same_queries_however_many_rows_it_shows(people: Client, now: dt.datetime, page: str) -> None:
    def fill() -> None:
        server = ServerFactory.create(in_cooldown=True)
        GroupFactory.create().servers.add(server)
        ServerStatusHistory.objects.create(server=server, event=Event.SEND_FAILED, at=now)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert people.get(f"/admin/servers/{page}/").status_code == 200
        return len(captured)

    fill()
    queries()
    before = queries()
    for _ in range(10):
        fill()
    assert queries() == before


@pytest.mark.parametrize("by", ["unit", "handle", "uuid"])
def test_a_server_is_found_by_what_people_know_of_it(people: Client, by: str) -> None:
    wanted, other = ServerFactory.create(unit=228), ServerFactory.create(unit=1228)
    page = people.get("/admin/servers/server/", {"q": str(getattr(wanted, by))}).content.decode()
    assert f"/admin/servers/server/{wanted.pk}/" in page
    assert f"/admin/servers/server/{other.pk}/" not in page


def test_a_page_of_a_host_shows_no_secret(people: Client, now: dt.datetime) -> None:
    host = HostFactory.create(secret=SECRET, previous_secret=SECRET, previous_secret_until=now)
    for address in ("/admin/servers/host/", f"/admin/servers/host/{host.pk}/change/"):
        page = people.get(address).content.decode()
        assert "whsec" not in page
        assert "secret" not in page.lower()


def test_editing_a_server_writes_only_what_was_edited(people: Client) -> None:
    server = ServerFactory.create(name="old", failed_in_row=0)
    form = {"region": server.region, "unit": server.unit, "host": server.host_id, "handle": server.handle}
    original = Server.save

    def save_after_a_failure(self: Server, *args: Any, **kwargs: Any) -> None:
        Server.objects.filter(pk=self.pk).update(failed_in_row=1)
        original(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Server, "save", save_after_a_failure)
        answer = people.post(
            f"/admin/servers/server/{server.pk}/change/", form | {"name": "new", "failed_in_row": 9, "status": "lost"}
        )
    assert answer.status_code == 302
    server.refresh_from_db()
    assert (server.name, server.failed_in_row, server.status) == ("new", 1, "active")


def test_a_server_can_be_added_and_is_new(people: Client) -> None:
    form = {"region": "es", "unit": 7, "host": HostFactory.create().pk, "handle": "+34600000007", "name": ""}
    assert people.post("/admin/servers/server/add/", form).status_code == 302
    server = Server.objects.get()
    assert (server.region, server.unit, server.status) == ("es", 7, "new")


def test_a_change_of_a_group_is_an_event_with_who_did_it(people: Client) -> None:
    group = GroupFactory.create(name="Quick", priority=5, failed_in_row=2)
    form = {
        "name": "Quick",
        "priority": 5,
        "failed_in_row": 1,
        "cooldown_delay_from": 0,
        "cooldown_delay_to": 0,
        "send_from_message_interval": 0,
        "send_to_message_interval": 0,
        "from_time": "00:00:00",
        "to_time": "08:00:00",
        "reset_rule": "",
    }
    address = f"/admin/servers/group/{group.pk}/change/"
    assert people.post(address, form).status_code == 302
    assert people.post(address, form).status_code == 302
    told = LogEvent.objects.get()
    assert (told.type, told.subject_uuid, told.client_id) == ("group.changed", group.uuid, None)
    assert told.data == {
        "old": {"failed_in_row": 2, "to_time": "23:59:59"},
        "new": {"failed_in_row": 1, "to_time": "08:00:00"},
        "by": "admin",
    }


@pytest.mark.parametrize("page", ["host/add", "serverstatushistory/add"])
def test_what_has_no_form_cannot_be_added(people: Client, page: str) -> None:
    assert people.get(f"/admin/servers/{page}/").status_code == 403


def test_history_is_read_only_and_nothing_is_deleted(people: Client, now: dt.datetime) -> None:
    server = ServerFactory.create()
    row = ServerStatusHistory.objects.create(server=server, event=Event.SEND_FAILED, at=now)
    assert people.post(f"/admin/servers/serverstatushistory/{row.pk}/change/", {"note": "x"}).status_code == 403
    assert people.post(f"/admin/servers/server/{server.pk}/delete/", {"post": "yes"}).status_code == 403
    assert people.post(f"/admin/servers/serverstatushistory/{row.pk}/delete/", {"post": "yes"}).status_code == 403
