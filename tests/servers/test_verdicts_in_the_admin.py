"""Verdicts as actions on the list of servers."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from otp_service.core.clock import utc_now
from servers.models import Host, Server, ServerStatusHistory
from servers.recovery import VERDICTS
from servers.rules import Event, Status
from tests.factories import GroupFactory, ServerFactory

pytestmark = pytest.mark.django_db

PAGE = "/admin/servers/server/"
OUTCOMES: dict[str, tuple[dict[str, Any], Status, Event]] = {
    "recover": ({"status": Status.NEED_CHECK}, Status.ACTIVE, Event.RECOVERED),
    "mark_active": ({"status": Status.LOST}, Status.ACTIVE, Event.MARKED_ACTIVE),
    "start_preheat": ({"status": Status.NEW}, Status.ACTIVE, Event.PREHEAT_STARTED),
    "start_chat_preheat": ({}, Status.ACTIVE, Event.CHAT_PREHEAT_STARTED),
    "need_check": ({}, Status.NEED_CHECK, Event.NEED_CHECK),
    "lost": ({}, Status.LOST, Event.LOST),
    "disable": ({}, Status.DISABLED, Event.DISABLED),
    "delete": ({}, Status.DELETED, Event.DELETED),
}


def act(client: Client, name: str, *servers: Server) -> str:
    chosen = {"action": name, "_selected_action": [str(server.pk) for server in servers]}
    return client.post(PAGE, chosen, follow=True).content.decode()


def test_every_verdict_is_an_action() -> None:
    assert OUTCOMES.keys() == VERDICTS.keys()


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_action_changes_the_servers_that_are_chosen_and_says_who_did_it(
    admin_client: Client, admin_user: User, name: str
) -> None:
    fields, status, event = OUTCOMES[name]
    chosen, other = ServerFactory.create(**fields), ServerFactory.create(**fields)
    ServerFactory.create()
    Host.objects.update(last_seen_at=utc_now())  # as the action's own clock finds them
    page = act(admin_client, name, chosen)
    assert "1 done" in page
    chosen.refresh_from_db()
    assert chosen.status == status
    row = chosen.history.get()
    assert (row.event, row.data["by"]) == (event, admin_user.username)
    assert not other.history.exists()


def test_those_that_are_refused_are_named_and_the_others_are_done(admin_client: Client) -> None:
    waiting, active = ServerFactory.create(status=Status.NEED_CHECK), ServerFactory.create(unit=4711)
    page = act(admin_client, "recover", active, waiting)
    assert "es 4711 is not in Need Check" in page
    assert "1 done" in page


@pytest.mark.parametrize(("permission", "may"), [("view_server", False), ("change_server", True)])
def test_it_takes_the_permission_to_change(client: Client, permission: str, may: bool) -> None:
    user = User.objects.create_user("eve", password="a long enough password", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_server"))
    user.user_permissions.add(Permission.objects.get(codename=permission))
    client.force_login(user)
    server = ServerFactory.create()
    act(client, "disable", server)
    assert ServerStatusHistory.objects.exists() is may


@pytest.mark.parametrize("boomerang", [True, False])
def test_a_boomerang_is_flagged_on_the_servers_page(admin_client: Client, boomerang: bool, now: Any) -> None:
    server = ServerFactory.create(status=Status.NEED_CHECK)
    ServerStatusHistory.objects.create(server=server, event=Event.NEED_CHECK, at=now, data={"boomerang": boomerang})
    page = admin_client.get(f"{PAGE}{server.pk}/change/").context["adminform"].model_admin
    assert page.is_boomerang(server) is boomerang


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        pytest.param({"failed_in_row": 1}, "Each failure starts a cooldown", id="never reset"),
        pytest.param({"cooldown_delay_from": 10, "cooldown_delay_to": 20}, "room for a warm-up", id="too short"),
        pytest.param({"failed_in_row": 1, "reset_rule": "either"}, "", id="reset by deliveries"),
        pytest.param({"cooldown_delay_from": 15, "cooldown_delay_to": 45}, "", id="long enough"),
    ],
)
def test_a_group_with_surprising_parameters_is_saved_with_a_warning(
    admin_client: Client, fields: dict[str, Any], warned: str
) -> None:
    group = GroupFactory.create()
    form = {
        "name": group.name,
        "priority": group.priority,
        "failed_in_row": 2,
        "cooldown_delay_from": 0,
        "cooldown_delay_to": 0,
        "send_from_message_interval": 0,
        "send_to_message_interval": 0,
        "from_time": "00:00:00",
        "to_time": "23:59:59",
        "reset_rule": "",
    }
    answer = admin_client.post(f"/admin/servers/group/{group.pk}/change/", form | fields, follow=True)
    shown = [str(message) for message in answer.context["messages"]]
    assert any(warned in message for message in shown)
    assert len(shown) == (2 if warned else 1)  # the other one says that it was saved
