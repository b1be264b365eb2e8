"""Lists in the admin, and the form of a server."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from otp_service.core.clock import utc_now
from servers import creation, history, memberships
from servers.models import Server, ServerStatusHistory, StormBrake
from servers.rules import Event
from tests.factories import NOON, GroupFactory, HostFactory, InternalSendFactory, ServerFactory

pytestmark = pytest.mark.django_db

PAGE = "/admin/servers/server/"
LISTS = ["host", "group", "server", "serverstatushistory", "internalsend", "stormbrake"]


@pytest.fixture
def people(admin_client: Client) -> Client:
    return admin_client


@pytest.fixture
def onlooker(client: Client) -> Client:
    """Staff who may look at everything here, and change nothing."""
    user = User.objects.create_user("eve", password="a long enough password", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(codename__startswith="view_", content_type__app_label="servers")
    )
    client.force_login(user)
    return client


def edit(server: Server, **changes: Any) -> dict[str, Any]:
    """What the form of a server sends."""
    names = ("region", "unit", "host_id", "handle", "name")
    form = {name.removesuffix("_id"): getattr(server, name) for name in names}
    held = [group.pk for group in server.groups.all()]
    return form | {"groups": held, "initial-groups": held} | changes


# --- lists ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", LISTS)
def test_a_list_takes_the_same_queries_however_many_rows_it_shows(people: Client, now: dt.datetime, page: str) -> None:
    def fill() -> None:
        server = ServerFactory.create(in_cooldown=True)
        GroupFactory.create().servers.add(server)
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


@pytest.mark.parametrize("page", LISTS)
def test_a_list_is_shown_to_those_who_may_look_and_to_nobody_else(onlooker: Client, page: str) -> None:
    ServerFactory.create()
    shown = onlooker.get(f"/admin/servers/{page}/")
    assert shown.status_code == 200
    assert 'name="_selected_action"' not in shown.content.decode()
    assert shown.context["action_form"] is None
    User.objects.get().user_permissions.clear()
    assert onlooker.get(f"/admin/servers/{page}/").status_code == 403
    onlooker.logout()
    assert onlooker.get(f"/admin/servers/{page}/").headers["Location"].startswith("/admin/login/")


@time_machine.travel(NOON, tick=False)
def test_the_list_says_how_each_server_is(people: Client, now: dt.datetime) -> None:
    end = now + dt.timedelta(hours=2, minutes=5)
    server = ServerFactory.create(
        in_cooldown=True, cooldown_times=2, cooldown_end_date=end, failed_in_row=7, signed_in=False
    )
    for name, priority in (("Day", 1), ("Quick", 2)):
        GroupFactory.create(name=name, priority=priority).servers.add(server)
    for event, minutes in ((Event.SEND_FAILED, 40), (Event.COOLDOWN_STARTED, 30), (Event.NEED_CHECK, 3_000)):
        ServerStatusHistory.objects.create(server=server, event=event, at=now - dt.timedelta(minutes=minutes))
    other = ServerFactory.create()
    page = people.get(PAGE)
    model_admin, listed = page.context["cl"].model_admin, {row.pk: row for row in page.context["cl"].result_list}
    shown = listed[server.pk]
    assert model_admin.cooldown_state(shown) == "#2 until 14:05, verdict by 14:12"
    assert (
        model_admin.last_events(shown)
        == "Cooldown started 🧊 11:30<br>Send failed 📉 11:20<br>Need Check 🚨 2026-08-30 10:00"
    )
    assert model_admin.in_groups(shown) == "Quick, Day"
    assert [model_admin.cooldown_state(listed[other.pk]), model_admin.last_events(listed[other.pk])] == ["", ""]
    for text in ("#2 until 14:05, verdict by 14:12", "Cooldown started 🧊 11:30", "Quick, Day", "bg-green-100"):
        assert text in page.content.decode()


@time_machine.travel(NOON, tick=False)
def test_what_is_not_today_is_shown_with_its_date(people: Client) -> None:
    end = NOON + dt.timedelta(hours=12)
    server = ServerFactory.create(in_cooldown=True, cooldown_end_date=end)
    model_admin = people.get(PAGE).context["cl"].model_admin
    assert model_admin.cooldown_state(server) == "#1 until 2026-09-02 00:00, verdict by 2026-09-02 00:07"


def test_of_rows_of_one_moment_the_last_event_is_the_one_that_was_written_last(
    people: Client, now: dt.datetime
) -> None:
    server = ServerFactory.create()
    for event in (Event.SEND_FAILED, Event.COOLDOWN_STARTED):
        ServerStatusHistory.objects.create(server=server, event=event, at=now)
    page = people.get(PAGE)
    (listed,) = page.context["cl"].result_list
    assert page.context["cl"].model_admin.last_events(listed).startswith("Cooldown started")


@pytest.mark.parametrize("by", ["unit", "handle", "uuid"])
def test_a_server_is_found_by_what_people_know_of_it(people: Client, by: str) -> None:
    wanted, other = ServerFactory.create(unit=228), ServerFactory.create(unit=1228)
    page = people.get(PAGE, {"q": str(getattr(wanted, by))}).content.decode()
    assert f"{PAGE}{wanted.pk}/" in page
    assert f"{PAGE}{other.pk}/" not in page


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("status__exact", "need_check"),
        ("region", "pt"),
        ("cooldown__exact", "1"),
        ("preheating__exact", "1"),
        ("signed_in__exact", "0"),
        ("host__id__exact", None),
        ("groups__id__exact", None),
    ],
)
def test_the_list_is_filtered_by(people: Client, now: dt.datetime, name: str, value: str | None) -> None:
    fields: dict[str, dict[str, Any]] = {
        "status__exact": {"status": "need_check"},
        "region": {"region": "pt"},
        "cooldown__exact": {"in_cooldown": True},
        "preheating__exact": {"preheating": True, "preheat_started_at": now},
        "signed_in__exact": {"signed_in": False},
    }
    wanted, _other = ServerFactory.create(**fields.get(name, {})), ServerFactory.create()
    group = GroupFactory.create()
    group.servers.add(wanted)
    ids = {"host__id__exact": wanted.host_id, "groups__id__exact": group.pk}
    found = people.get(PAGE, {name: value or ids[name]}).context["cl"].result_list
    assert list(found) == [wanted]


# --- the form ------------------------------------------------------------------------------------------


def test_editing_a_server_writes_only_what_was_edited(people: Client) -> None:
    server = ServerFactory.create(name="old", failed_in_row=0)
    original = Server.save

    def save_after_a_failure(self: Server, *args: Any, **kwargs: Any) -> None:
        Server.objects.filter(pk=self.pk).update(failed_in_row=1)
        original(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Server, "save", save_after_a_failure)
        answer = people.post(f"{PAGE}{server.pk}/change/", edit(server, name="new", failed_in_row=9, status="lost"))
    assert answer.status_code == 302
    server.refresh_from_db()
    assert (server.name, server.failed_in_row, server.status) == ("new", 1, "active")


def test_the_groups_of_a_server_are_edited_with_one_row_that_says_who(people: Client) -> None:
    server, before, after = ServerFactory.create(), GroupFactory.create(), GroupFactory.create()
    before.servers.add(server)
    form = edit(server, groups=[after.pk])
    assert people.post(f"{PAGE}{server.pk}/change/", form).status_code == 302
    assert list(server.groups.all()) == [after]
    row = server.history.get()
    assert (row.event, row.data["by"]) == (Event.GROUPS_CHANGED, "admin")
    assert people.post(f"{PAGE}{server.pk}/change/", edit(server)).status_code == 302
    assert server.history.count() == 1


def test_groups_that_somebody_changed_meanwhile_are_not_put_back_by_another_edit(people: Client) -> None:
    server, group = ServerFactory.create(), GroupFactory.create()
    shown = edit(server, name="new")
    group.servers.add(server)
    assert people.post(f"{PAGE}{server.pk}/change/", shown).status_code == 302
    server.refresh_from_db()
    assert (server.name, list(server.groups.all())) == ("new", [group])


def test_what_the_form_showed_of_the_groups_is_sent_with_it(people: Client) -> None:
    server, group = ServerFactory.create(), GroupFactory.create()
    group.servers.add(server)
    page = people.get(f"{PAGE}{server.pk}/change/").content.decode()
    assert f'<input type="hidden" name="initial-groups" value="{group.pk}"' in page


def test_a_group_that_is_deleted_at_this_moment_is_a_fault_of_the_form(
    people: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, group = ServerFactory.create(name="old"), GroupFactory.create()
    original = memberships.change_groups

    def change_after_a_deletion(*args: Any, **kwargs: Any) -> Any:
        type(group).objects.filter(pk=group.pk).delete()
        return original(*args, **kwargs)

    monkeypatch.setattr(memberships, "change_groups", change_after_a_deletion)
    answer = people.post(f"{PAGE}{server.pk}/change/", edit(server, groups=[group.pk], name="new"))
    assert answer.status_code == 200
    assert "A group was deleted at this moment" in answer.content.decode()
    server.refresh_from_db()
    assert server.name == "old"


@time_machine.travel(NOON, tick=False)
def test_a_server_that_is_added_is_as_the_command_makes_it_and_says_who_did_it(people: Client) -> None:
    group = GroupFactory.create()
    form = {"region": "es", "unit": 7, "host": HostFactory.create().pk, "handle": "+34 600 000 007", "name": "Seventh"}
    assert people.post(f"{PAGE}add/", form | {"groups": [group.pk]}).status_code == 302
    server = Server.objects.get()
    assert (server.region, server.unit, server.name, server.handle) == ("es", 7, "Seventh", "+34600000007")
    assert (server.status, server.next_send_date, list(server.groups.all())) == ("active", NOON, [group])
    assert server.tie > 0
    made, grouped = server.history.order_by("id")
    assert (made.event, made.note, made.data["by"]) == (Event.MARKED_ACTIVE, "created", "admin")
    assert (grouped.event, grouped.data["by"]) == (Event.GROUPS_CHANGED, "admin")


@pytest.mark.parametrize(("region", "warned"), [("es", False), ("xx", True)])
def test_a_region_that_serves_no_number_is_made_with_a_warning(people: Client, region: str, warned: bool) -> None:
    form = {"region": region, "unit": 7, "host": HostFactory.create().pk, "handle": "+34600000007", "name": ""}
    answer = people.post(f"{PAGE}add/", form, follow=True)
    assert Server.objects.get().region == region
    assert ("No number is served by the pool" in answer.content.decode()) is warned


@pytest.mark.parametrize("same", ["region", "host"])
def test_a_unit_that_is_taken_cannot_be_added(people: Client, same: str) -> None:
    other = ServerFactory.create(unit=7, region="es" if same == "region" else "pt")
    host = other.host if same == "host" else HostFactory.create()
    form = {"region": "es", "unit": 7, "host": host.pk, "handle": "+34600000008", "name": ""}
    answer = people.post(f"{PAGE}add/", form)
    assert answer.status_code == 200
    assert answer.context["adminform"].form.errors
    assert Server.objects.get() == other


def test_a_unit_that_somebody_takes_at_this_moment_is_a_fault_of_the_form(
    people: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = HostFactory.create()
    original = creation.create_server

    def create_after_another(*args: Any, **kwargs: Any) -> Server:
        original("es", 7, HostFactory.create().number, "+34600000009", now=NOON)
        made: Server = original(*args, **kwargs)
        return made

    monkeypatch.setattr(creation, "create_server", create_after_another)
    form = {"region": "es", "unit": 7, "host": host.pk, "handle": "+34600000008", "name": ""}
    answer = people.post(f"{PAGE}add/", form)
    assert answer.status_code == 200
    assert "There is a unit 7 already" in answer.content.decode()
    assert not host.servers.exists()


SHOWN = (
    "status",
    "signed_out_at",
    "last_sent_at",
    "sends_today",
    "new_recipients_today",
    "otp_in_hour",
    "cooldown_end_date",
    "preheat_repeats",
    "preheat_asked_at",
    "is_boomerang",
)


@pytest.mark.parametrize("name", SHOWN)
def test_how_a_server_is_can_be_read_on_its_page_and_not_edited(people: Client, name: str) -> None:
    page = people.get(f"{PAGE}{ServerFactory.create().pk}/change/")
    form = page.context["adminform"]
    assert name in form.readonly_fields
    assert name in [field for _, options in form.fieldsets for row in options["fields"] for field in _names(row)]
    assert name not in form.form.fields


def _names(row: str | tuple[str, ...]) -> tuple[str, ...]:
    return (row,) if isinstance(row, str) else row


def test_a_servers_page_is_told_in_parts_with_titles(people: Client) -> None:
    page = people.get(f"{PAGE}{ServerFactory.create().pk}/change/")
    titles = [title for title, _ in page.context["adminform"].fieldsets]
    assert titles == ["Who it is", "State", "Cooldown", "Pace and budgets", "Preheat"]


def test_a_servers_page_links_to_what_happened_to_it_alone(people: Client, now: dt.datetime) -> None:
    server, other = ServerFactory.create(), ServerFactory.create()
    mine, _ = (
        ServerStatusHistory.objects.create(server=one, event=Event.SEND_FAILED, at=now) for one in (server, other)
    )
    address = f"/admin/servers/serverstatushistory/?server__id__exact={server.pk}"
    assert f'href="{address}"' in people.get(f"{PAGE}{server.pk}/change/").content.decode()
    assert list(people.get(address).context["cl"].result_list) == [mine]
    sends = f"/admin/servers/internalsend/?sender__id__exact={server.pk}"
    page = people.get(f"{PAGE}{server.pk}/change/").content.decode()
    assert re.search(f'href="{re.escape(sends)}"[^>]*>\\s*Its internal sends', page)
    assert people.get(sends).status_code == 200


def test_the_page_that_adds_a_server_can_be_opened(people: Client) -> None:
    page = people.get(f"{PAGE}add/")
    assert page.status_code == 200
    assert "verdict/" not in page.content.decode()


def test_who_may_only_look_sees_a_page_without_buttons_and_changes_nothing(onlooker: Client) -> None:
    server, group = ServerFactory.create(name="old"), GroupFactory.create()
    page = onlooker.get(f"{PAGE}{server.pk}/change/")
    assert page.status_code == 200
    assert "verdict/" not in page.content.decode()
    assert not page.context["adminform"].form.fields
    answer = onlooker.post(f"{PAGE}{server.pk}/change/", edit(server, name="new", groups=[group.pk]))
    assert answer.status_code == 403
    assert onlooker.get(f"{PAGE}add/").status_code == 403
    server.refresh_from_db()
    assert (server.name, server.groups.count()) == ("old", 0)


# --- moving --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last_sent_at", [None, dt.datetime(2026, 9, 1, tzinfo=dt.UTC)])
def test_where_a_server_is_can_be_edited_accordingly(people: Client, last_sent_at: dt.datetime | None) -> None:
    server = ServerFactory.create(last_sent_at=last_sent_at)
    form = people.get(f"{PAGE}{server.pk}/change/").context["adminform"].form
    assert ("host" in form.fields) is (last_sent_at is None)
    assert "handle" in form.fields
    assert "groups" in form.fields


@pytest.mark.parametrize("is_used", [True, False])
def test_a_server_that_is_given_a_message_at_this_moment_is_not_moved(
    people: Client, monkeypatch: pytest.MonkeyPatch, is_used: bool
) -> None:
    server, elsewhere = ServerFactory.create(), HostFactory.create()
    original = history.locked

    def locked_after_a_send(pk: int) -> Server:
        if is_used:
            Server.objects.filter(pk=pk).update(last_sent_at=utc_now())
        return original(pk)

    monkeypatch.setattr(history, "locked", locked_after_a_send)
    answer = people.post(f"{PAGE}{server.pk}/change/", edit(server, host=elsewhere.pk))
    assert (answer.status_code == 200) is is_used
    assert ("was given a message meanwhile" in answer.content.decode()) is is_used
    server.refresh_from_db()
    assert (server.host == elsewhere) is not is_used


@pytest.mark.parametrize(
    ("typed", "kept"),
    [("Unit228@Example.com", "unit228@example.com"), ("+34 600 00 00 07", "+34600000007"), ("+34 600 x", None)],
)
def test_an_address_is_kept_in_the_form_in_which_it_is_compared(people: Client, typed: str, kept: str | None) -> None:
    server = ServerFactory.create()
    answer = people.post(f"{PAGE}{server.pk}/change/", edit(server, handle=typed))
    before = server.handle
    server.refresh_from_db()
    assert server.handle == (kept or before)
    assert (answer.status_code == 302) is (kept is not None)


@pytest.mark.parametrize("host", ["x", "1.5", "9" * 50, "\0"])
def test_a_host_that_is_none_is_a_fault_of_its_field(people: Client, host: str) -> None:
    answer = people.post(f"{PAGE}add/", {"region": "es", "unit": "1", "handle": "+34600000001", "host": host})
    assert answer.status_code == 200
    assert "host" in answer.context["adminform"].form.errors
    assert not Server.objects.exists()
