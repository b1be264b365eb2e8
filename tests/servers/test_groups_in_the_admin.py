"""Groups in the admin: their list, their form, their end."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
import time_machine
from django.contrib.admin.models import LogEntry
from django.test import Client

from otp_service.events.models import Event as LogEvent
from servers import groups
from servers.admin import groups as admin_groups
from servers.models import Group, Server, ServerStatusHistory
from servers.rules import Event
from tests.factories import NOON, GroupFactory, ServerFactory
from tests.staff_members import allow, logged_in

pytestmark = pytest.mark.django_db

PAGE = "/admin/servers/group/"
SERVERS = "/admin/servers/server/"


def form(**changes: Any) -> dict[str, Any]:
    """What the form of a group sends."""
    return {
        "name": "Quick",
        "priority": 5,
        "failed_in_row": 2,
        "cooldown_delay_from": 0,
        "cooldown_delay_to": 0,
        "send_from_message_interval": 0,
        "send_to_message_interval": 0,
        "from_time": "00:00:00",
        "to_time": "23:59:59",
        "reset_rule": "",
    } | changes


@pytest.fixture
def keeper(client: Client) -> Client:
    """Staff who may look at groups and servers; tests give more."""
    return logged_in(client, "servers.view_group", "servers.view_server")


# --- the list ------------------------------------------------------------------------------------------


@time_machine.travel(NOON, tick=False)
@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        pytest.param({}, ["always", True, "the ladder", "default", "default", "default"], id="nothing set"),
        pytest.param(
            {"from_time": dt.time(22), "to_time": dt.time(8)},
            ["22:00–08:00 UTC", False, "the ladder", "default", "default", "default"],  # noqa: RUF001 - a dash
            id="at night",
        ),
        pytest.param(
            {"from_time": dt.time(8), "to_time": dt.time(19, 59, 59), "failed_in_row": 3, "reset_rule": "either"},
            ["08:00–19:59:59 UTC", True, "the ladder", "default", "3", "either"],  # noqa: RUF001 - a dash
            id="by day",
        ),
        pytest.param(
            {"cooldown_delay_from": 15, "cooldown_delay_to": 45, "send_from_message_interval": 3},
            ["always", True, "15–45 min", "default", "default", "default"],  # noqa: RUF001 - a dash
            id="half an interval is none",
        ),
    ],
)
def test_the_list_says_what_each_group_does(admin_client: Client, fields: dict[str, Any], shown: list[Any]) -> None:
    GroupFactory.create(**fields)
    (group,) = (page := admin_client.get(PAGE)).context["cl"].result_list
    columns = ("window", "is_active_now", "delay", "interval", "threshold", "rule_of_reset")
    assert [getattr(page.context["cl"].model_admin, name)(group) for name in columns] == shown
    assert shown[0] in page.content.decode()


def test_the_list_counts_servers_and_leads_to_them(admin_client: Client) -> None:
    group = GroupFactory.create()
    mine, _other = ServerFactory.create(), ServerFactory.create()
    group.servers.set([mine, ServerFactory.create()])
    address = f"{SERVERS}?groups__id__exact={group.pk}"
    assert f'<a href="{address}" class="text-link">2</a>' in admin_client.get(PAGE).content.decode()
    assert mine in (found := admin_client.get(address).context["cl"].result_list)
    assert len(found) == 2


# --- the form ------------------------------------------------------------------------------------------


def test_a_group_that_is_added_is_an_event_with_who_did_it(admin_client: Client) -> None:
    values = form(from_time="22:00:00", to_time="08:00:00", cooldown_delay_from=15, cooldown_delay_to=45)
    assert admin_client.post(f"{PAGE}add/", values).status_code == 302
    group = Group.objects.get()
    assert (group.name, group.priority, group.from_time, group.cooldown_delay_to) == ("Quick", 5, dt.time(22), 45)
    told = LogEvent.objects.get()
    assert (told.subject_uuid, told.data["by"]) == (group.uuid, "admin")


def test_a_change_of_a_group_is_an_event_with_who_did_it(admin_client: Client) -> None:
    group = GroupFactory.create(name="Quick", priority=5, failed_in_row=2)
    values = form(failed_in_row=1, to_time="08:00:00")
    for _ in range(2):
        assert admin_client.post(f"{PAGE}{group.pk}/change/", values).status_code == 302
    told = LogEvent.objects.get()
    assert (told.type, told.subject_uuid, told.client_id) == ("group.changed", group.uuid, None)
    assert told.data == {
        "old": {"failed_in_row": 2, "to_time": "23:59:59"},
        "new": {"failed_in_row": 1, "to_time": "08:00:00"},
        "by": "admin",
    }


def test_an_edit_writes_only_what_was_edited(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    group = GroupFactory.create(name="Quick", priority=5, failed_in_row=2)
    original = groups.change_group

    def change_after_another(*args: Any, **kwargs: Any) -> Group:
        Group.objects.update(cooldown_delay_from=15, cooldown_delay_to=45)
        return original(*args, **kwargs)

    monkeypatch.setattr(admin_groups, "change_group", change_after_another)
    admin_client.post(f"{PAGE}{group.pk}/change/", form(failed_in_row=3))
    group.refresh_from_db()
    assert (group.failed_in_row, group.cooldown_delay_to) == (3, 45)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"priority": 7}, "priority", id="a taken priority"),
        pytest.param({"name": "Other"}, "name", id="a taken name"),
        pytest.param({"name": "  "}, "name", id="no name"),
        pytest.param({"priority": 2**31}, "priority", id="a priority that the database cannot hold"),
        pytest.param({"priority": "x"}, "priority", id="no number"),
        pytest.param({"failed_in_row": 101}, "failed_in_row", id="a threshold of over a hundred"),
        pytest.param({"failed_in_row": -1}, "failed_in_row", id="a threshold under 0"),
        pytest.param({"to_time": "00:00:00"}, "to_time", id="an empty window"),
        pytest.param({"from_time": "25:00"}, "from_time", id="no time"),
        pytest.param({"from_time": ""}, "from_time", id="no time at all"),
        pytest.param({"cooldown_delay_from": 45, "cooldown_delay_to": 15}, "cooldown_delay_to", id="an inverted delay"),
        pytest.param(
            {"send_from_message_interval": 9, "send_to_message_interval": 3},
            "send_to_message_interval",
            id="an inverted interval",
        ),
        pytest.param({"cooldown_delay_to": 10_081}, "cooldown_delay_to", id="over a week"),
        pytest.param({"reset_rule": "never"}, "reset_rule", id="an unknown rule"),
    ],
)
@pytest.mark.parametrize("adding", [True, False])
def test_what_a_group_cannot_be_is_a_fault_of_its_field(
    admin_client: Client, adding: bool, changes: dict[str, Any], field: str
) -> None:
    GroupFactory.create(name="Other", priority=7)
    group = None if adding else GroupFactory.create(name="Quick", priority=5, failed_in_row=2)
    before = list(Group.objects.order_by("pk").values())
    answer = admin_client.post(PAGE + ("add/" if group is None else f"{group.pk}/change/"), form(**changes))
    assert answer.status_code == 200
    assert answer.context["adminform"].form.errors.keys() == {field}
    assert "text-red-600" in answer.content.decode()
    assert list(Group.objects.order_by("pk").values()) == before
    assert not LogEvent.objects.exists()


def test_a_taken_priority_names_the_group_that_has_it(admin_client: Client) -> None:
    GroupFactory.create(name="Day and night", priority=5)
    answer = admin_client.post(f"{PAGE}add/", form())
    assert "Day and night" in " ".join(answer.context["adminform"].form.errors["priority"])


@pytest.mark.parametrize("adding", [True, False])
def test_a_priority_that_somebody_takes_at_this_moment_is_a_fault_of_its_field(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, adding: bool
) -> None:
    group = None if adding else GroupFactory.create(name="Quick", priority=4, failed_in_row=2)
    original = getattr(admin_groups, "create_group" if adding else "change_group")

    def save_after_another(*args: Any, **kwargs: Any) -> Group:
        GroupFactory.create(name="Other", priority=5)
        saved: Group = original(*args, **kwargs)
        return saved

    monkeypatch.setattr(admin_groups, original.__name__, save_after_another)
    answer = admin_client.post(PAGE + ("add/" if group is None else f"{group.pk}/change/"), form())
    assert answer.status_code == 200
    assert answer.context["adminform"].form.errors.keys() == {"priority"}
    assert Group.objects.filter(priority=5).count() == 0  # the other one was made in our transaction


def test_a_group_that_is_deleted_while_it_is_edited_is_said_to_be_gone(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = GroupFactory.create(name="Quick", priority=5)

    def change_too_late(*_args: Any, **_kwargs: Any) -> Group:
        raise Group.DoesNotExist

    monkeypatch.setattr(admin_groups, "change_group", change_too_late)
    answer = admin_client.post(f"{PAGE}{group.pk}/change/", form(failed_in_row=1))
    assert answer.status_code == 200
    assert "Somebody was faster" in answer.content.decode()


WARNED = [
    pytest.param({"failed_in_row": 1}, "Each failure starts a cooldown", id="never reset"),
    pytest.param({"cooldown_delay_from": 10, "cooldown_delay_to": 20}, "room for a warm-up", id="too short"),
    pytest.param({"failed_in_row": 1, "reset_rule": "either"}, "", id="reset by deliveries"),
    pytest.param({"cooldown_delay_from": 15, "cooldown_delay_to": 45}, "", id="long enough"),
]


@pytest.mark.parametrize(("fields", "warned"), WARNED)
@pytest.mark.parametrize("adding", [True, False])
def test_a_group_with_surprising_parameters_is_saved_with_a_warning(
    admin_client: Client, adding: bool, fields: dict[str, Any], warned: str
) -> None:
    address = "add/" if adding else f"{GroupFactory.create(name='Quick', priority=5, failed_in_row=9).pk}/change/"
    answer = admin_client.post(PAGE + address, form(**fields), follow=True)
    shown = [str(message) for message in answer.context["messages"]]
    assert any(warned in message for message in shown)
    assert len(shown) == (2 if warned else 1)  # the other one says that it was saved


@pytest.mark.parametrize(("fields", "warned"), WARNED)
def test_the_warning_stands_on_the_form(admin_client: Client, fields: dict[str, Any], warned: str) -> None:
    group = GroupFactory.create(**fields)
    page = admin_client.get(f"{PAGE}{group.pk}/change/")
    assert len(page.context["group_warnings"]) == bool(warned)
    assert warned in page.content.decode()


def test_the_form_links_to_its_servers_and_of_very_many_to_their_list(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_groups, "SERVERS_SHOWN", 2)
    group = GroupFactory.create()
    servers = [ServerFactory.create(unit=unit) for unit in (1, 2, 3, 4, 5)]
    group.servers.set(servers[:2])
    page = admin_client.get(f"{PAGE}{group.pk}/change/").content.decode()
    assert [f"{SERVERS}{server.pk}/change/" in page for server in servers] == [True, True, False, False, False]
    assert " more</a>" not in page
    group.servers.set(servers)
    page = admin_client.get(f"{PAGE}{group.pk}/change/").content.decode()
    assert [f"{SERVERS}{server.pk}/change/" in page for server in servers] == [True, True, False, False, False]
    assert f'<a href="{SERVERS}?groups__id__exact={group.pk}" class="text-link">and 3 more</a>' in page


def test_the_page_that_adds_a_group_can_be_opened(admin_client: Client) -> None:
    assert admin_client.get(f"{PAGE}add/").status_code == 200


# --- its end -------------------------------------------------------------------------------------------


def filled_group(name: str, servers: int) -> Group:
    group = GroupFactory.create(name=name)
    group.servers.set([ServerFactory.create() for _ in range(servers)])
    return group


def test_a_group_is_deleted_after_a_page_that_says_how_many_servers_leave_it(admin_client: Client) -> None:
    group = filled_group("Quick", 3)
    page = admin_client.get(f"{PAGE}{group.pk}/delete/").content.decode()
    assert "Quick: 3 servers will be detached from it" in page
    assert Group.objects.count() == 1
    answer = admin_client.post(f"{PAGE}{group.pk}/delete/", {"post": "yes"}, follow=True)
    assert "Quick: 3 servers detached." in answer.content.decode()
    assert not Group.objects.exists()
    rows = ServerStatusHistory.objects.values_list("event", "data__by")
    assert list(rows) == [(Event.GROUPS_CHANGED, "admin")] * 3
    assert Server.objects.count() == 3


def test_several_groups_are_deleted_by_the_action(admin_client: Client) -> None:
    chosen = [filled_group("Quick", 1), filled_group("Slow", 2)]
    kept = filled_group("Kept", 1)
    action = {"action": "delete_selected", "_selected_action": [group.pk for group in chosen]}
    page = admin_client.post(PAGE, action).content.decode()
    assert "Quick: 1 server will be detached from it" in page
    assert "Slow: 2 servers will be detached from it" in page
    assert Group.objects.count() == 3
    admin_client.post(PAGE, action | {"post": "yes"})
    assert list(Group.objects.all()) == [kept]
    assert ServerStatusHistory.objects.filter(event=Event.GROUPS_CHANGED, data__by="admin").count() == 3


def test_a_group_that_somebody_deleted_before_is_no_error(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = filled_group("Quick", 0)

    def delete_too_late(*_args: Any, **_kwargs: Any) -> int:
        raise Group.DoesNotExist

    monkeypatch.setattr(admin_groups, "delete_group", delete_too_late)
    answer = admin_client.post(f"{PAGE}{group.pk}/delete/", {"post": "yes"}, follow=True)
    assert [str(message) for message in answer.context["messages"]] == ["Somebody deleted Quick before."]
    assert not LogEntry.objects.exists()


def test_several_groups_of_which_somebody_deleted_one_are_told_apart(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, gone = filled_group("Quick", 2), filled_group("Slow", 0)
    original = groups.delete_group

    def delete_after_another(group_uuid: Any, **kwargs: Any) -> int:
        Group.objects.filter(pk=gone.pk).delete()
        return original(group_uuid, **kwargs)

    monkeypatch.setattr(admin_groups, "delete_group", delete_after_another)
    chosen = {"action": "delete_selected", "_selected_action": [kept.pk, gone.pk], "post": "yes"}
    answer = admin_client.post(PAGE, chosen, follow=True)
    said = [str(message) for message in answer.context["messages"]]
    assert said == ["1 deleted, 2 servers detached. Somebody deleted before: Slow."]
    assert list(LogEntry.objects.values_list("object_repr", flat=True)) == ["Quick"]
    assert not Group.objects.exists()


@pytest.mark.parametrize(("permission", "may"), [("change_server", False), ("delete_group", True)])
def test_deleting_takes_the_permission(keeper: Client, permission: str, may: bool) -> None:
    allow(f"servers.{permission}")
    group = filled_group("Quick", 1)
    assert keeper.get(f"{PAGE}{group.pk}/delete/").status_code == (200 if may else 403)
    keeper.post(PAGE, {"action": "delete_selected", "_selected_action": [group.pk]})
    assert Group.objects.exists()
    assert keeper.post(f"{PAGE}{group.pk}/delete/", {"post": "yes"}).status_code == (302 if may else 403)
    assert Group.objects.exists() is not may


def test_who_may_only_look_changes_no_group(keeper: Client) -> None:
    group = GroupFactory.create(name="Quick", priority=5)
    assert keeper.get(f"{PAGE}{group.pk}/change/").status_code == 200
    assert keeper.post(f"{PAGE}{group.pk}/change/", form(failed_in_row=1)).status_code == 403
    assert keeper.post(f"{PAGE}add/", form(name="New", priority=6)).status_code == 403
    assert list(Group.objects.values_list("name", "failed_in_row")) == [("Quick", 0)]


def test_strangers_are_sent_to_log_in(client: Client) -> None:
    group = GroupFactory.create(name="Quick", priority=5)
    for address in ("", "add/", f"{group.pk}/change/", f"{group.pk}/delete/"):
        assert client.post(PAGE + address, form()).headers["Location"].startswith("/admin/login/")
    assert Group.objects.count() == 1
