"""The admin of hosts, groups, servers and history."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from otp_service.events.models import Event as LogEvent
from servers.models import Server, ServerStatusHistory, StormBrake
from servers.moving import may_move
from servers.rules import Event
from tests.factories import GroupFactory, HostFactory, InternalSendFactory, ServerFactory

pytestmark = pytest.mark.django_db
SECRET = "whsec_" + "B" * 42 + "E="


@pytest.fixture
def people(admin_client: Client) -> Client:
    return admin_client


@pytest.mark.parametrize("page", ["host", "group", "server", "serverstatushistory", "internalsend", "stormbrake"])
def test_a_list_takes_the_same_queries_however_many_rows_it_shows(people: Client, now: dt.datetime, page: str) -> None:
    def fill() -> None:
        server = ServerFactory.create(in_cooldown=True)
        GroupFactory.create().servers.add(server)
        ServerStatusHistory.objects.create(server=server, event=Event.SEND_FAILED, at=now)
        InternalSendFactory.create(sender=server)
        StormBrake.objects.create(scope="host", name=str(server.host.number), mode="shadow", share=0.5, on_at=now)

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


@pytest.mark.parametrize("page", ["host/add", "serverstatushistory/add", "internalsend/add", "stormbrake/add"])
def test_what_has_no_form_cannot_be_added(people: Client, page: str) -> None:
    assert people.get(f"/admin/servers/{page}/").status_code == 403


SHOWN = (
    "signed_out_at",
    "last_sent_at",
    "sends_today",
    "new_recipients_today",
    "preheat_repeats",
    "preheat_asked_at",
    "is_boomerang",
)


@pytest.mark.parametrize("name", SHOWN)
def test_how_a_server_is_can_be_read_on_its_page_and_not_edited(people: Client, name: str) -> None:
    page = people.get(f"/admin/servers/server/{ServerFactory.create().pk}/change/")
    form = page.context["adminform"]
    assert name in form.readonly_fields
    assert name in [field for _, options in form.fieldsets for row in options["fields"] for field in _names(row)]
    assert name not in form.form.fields


def _names(row: str | tuple[str, ...]) -> tuple[str, ...]:
    return (row,) if isinstance(row, str) else row


def test_the_page_that_adds_a_server_can_be_opened(people: Client) -> None:
    assert people.get("/admin/servers/server/add/").status_code == 200


def test_messages_between_our_servers_and_storms_can_only_be_read(people: Client, now: dt.datetime) -> None:
    send = InternalSendFactory.create()
    storm = StormBrake.objects.create(scope="host", name="1", mode="shadow", share=0.5, on_at=now)
    for page in (f"internalsend/{send.pk}", f"stormbrake/{storm.pk}"):
        assert people.get(f"/admin/servers/{page}/change/").status_code == 200
        assert people.post(f"/admin/servers/{page}/change/", {"state": "sent"}).status_code == 403
        assert people.post(f"/admin/servers/{page}/delete/", {"post": "yes"}).status_code == 403


def test_history_is_read_only_and_nothing_is_deleted(people: Client, now: dt.datetime) -> None:
    server = ServerFactory.create()
    row = ServerStatusHistory.objects.create(server=server, event=Event.SEND_FAILED, at=now)
    assert people.post(f"/admin/servers/serverstatushistory/{row.pk}/change/", {"note": "x"}).status_code == 403
    assert people.post(f"/admin/servers/server/{server.pk}/delete/", {"post": "yes"}).status_code == 403
    assert people.post(f"/admin/servers/serverstatushistory/{row.pk}/delete/", {"post": "yes"}).status_code == 403


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        pytest.param({"status": "active", "last_sent_at": None}, True, id="never used"),
        pytest.param({"status": "active", "last_sent_at": dt.timedelta(hours=2)}, False, id="in rotation"),
        pytest.param({"status": "disabled", "last_sent_at": dt.timedelta(minutes=60)}, False, id="just taken out"),
        pytest.param({"status": "disabled", "last_sent_at": dt.timedelta(minutes=61)}, True, id="nothing in flight"),
    ],
)
def test_a_server_is_moved_only_when_nothing_of_it_is_in_flight(
    now: dt.datetime, fields: dict[str, Any], may: bool
) -> None:
    values = {name: now - value if isinstance(value, dt.timedelta) else value for name, value in fields.items()}
    assert may_move(ServerFactory.create(**values), now=now) is may


@pytest.mark.parametrize("last_sent_at", [None, dt.datetime(2026, 9, 1, tzinfo=dt.UTC)])
def test_where_a_server_is_can_be_edited_accordingly(people: Client, last_sent_at: dt.datetime | None) -> None:
    server = ServerFactory.create(last_sent_at=last_sent_at)
    form = people.get(f"/admin/servers/server/{server.pk}/change/").context["adminform"].form
    assert ("host" in form.fields) is (last_sent_at is None)
    assert "handle" in form.fields


@pytest.mark.parametrize(
    ("typed", "kept"),
    [("Unit228@Example.com", "unit228@example.com"), ("+34 600 00 00 07", "+34600000007"), ("+34 600 x", None)],
)
def test_an_address_is_kept_in_the_form_in_which_it_is_compared(people: Client, typed: str, kept: str | None) -> None:
    server = ServerFactory.create()
    form = {"region": server.region, "unit": server.unit, "host": server.host_id, "name": "", "handle": typed}
    answer = people.post(f"/admin/servers/server/{server.pk}/change/", form)
    before = server.handle
    server.refresh_from_db()
    assert server.handle == (kept or before)
    assert (answer.status_code == 302) is (kept is not None)
