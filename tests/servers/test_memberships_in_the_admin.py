"""Groups of many servers at once, in the admin."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from servers import memberships
from servers.models import Group, Server, ServerStatusHistory
from servers.rules import Event
from tests.factories import GroupFactory, ServerFactory
from tests.staff_members import allow, logged_in

pytestmark = pytest.mark.django_db

SERVERS = "/admin/servers/server/"


@pytest.fixture
def keeper(client: Client) -> Client:
    """Staff who may look at groups and servers; tests give more."""
    return logged_in(client, "servers.view_group", "servers.view_server")


def choose(client: Client, *servers: Server, **more: Any) -> Any:
    chosen = {"action": "choose_groups", "_selected_action": [server.pk for server in servers]}
    return client.post(SERVERS, chosen | more)


def say_yes(client: Client, page: Any, **chosen: Any) -> Any:
    hidden = dict(re.findall(r'<input type="hidden" name="(ids|from|filters)" value="([^"]*)"', page.content.decode()))
    return client.post(f"{SERVERS}memberships/", hidden | chosen, follow=True)


@pytest.mark.parametrize(
    ("how", "named", "left"),
    [
        ("add", ["new"], [["new", "old"], ["new"]]),
        ("remove", ["old"], [[], []]),
        ("set", ["new"], [["new"], ["new"]]),
        ("set", [], [[], []]),
    ],
)
def test_groups_of_the_chosen_servers_are_changed(
    admin_client: Client, how: str, named: list[str], left: list[list[str]]
) -> None:
    by_name = {name: GroupFactory.create(name=name) for name in ("old", "new")}
    grouped, bare, other = (ServerFactory.create() for _ in range(3))
    by_name["old"].servers.set([grouped, other])
    page = choose(admin_client, grouped, bare)
    assert "2 servers" in page.content.decode()
    assert not ServerStatusHistory.objects.exists()
    answer = say_yes(admin_client, page, how=how, groups=[by_name[name].pk for name in named])
    assert answer.redirect_chain == [(SERVERS, 302)]
    found = [sorted(server.groups.values_list("name", flat=True)) for server in (grouped, bare)]
    assert found == left
    changed = sum(before != after for before, after in zip([["old"], []], left, strict=True))
    assert f"{changed} of 2 servers changed" in answer.content.decode()
    rows = ServerStatusHistory.objects.values_list("event", "data__by")
    assert list(rows) == [(Event.GROUPS_CHANGED, "admin")] * changed
    assert list(other.groups.all()) == [by_name["old"]]


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        ({"how": "add"}, "groups"),
        ({"how": "remove"}, "groups"),
        ({"how": "exchange"}, "how"),
        ({}, "how"),
        ({"how": "set", "groups": [999_999]}, "groups"),
        ({"how": "set", "groups": ["x"]}, "groups"),
    ],
)
def test_what_cannot_be_done_is_a_fault_of_its_field(admin_client: Client, chosen: dict[str, Any], field: str) -> None:
    server = ServerFactory.create()
    GroupFactory.create().servers.add(server)
    answer = say_yes(admin_client, choose(admin_client, server), **chosen)
    assert (answer.status_code, answer.redirect_chain) == (200, [])
    assert answer.context["form"].errors.keys() == {field}
    assert server.groups.count() == 1


def test_a_group_that_is_deleted_at_this_moment_changes_nothing(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, group = ServerFactory.create(), GroupFactory.create()
    original = memberships.change_groups

    def change_after_a_deletion(*args: Any, **kwargs: Any) -> Any:
        Group.objects.all().delete()
        return original(*args, **kwargs)

    monkeypatch.setattr(memberships, "change_groups", change_after_a_deletion)
    answer = say_yes(admin_client, choose(admin_client, server), how="add", groups=[group.pk])
    assert answer.status_code == 200
    assert "A group was deleted at this moment" in answer.content.decode()
    assert not ServerStatusHistory.objects.exists()


@pytest.mark.parametrize(("permission", "may"), [("change_group", False), ("change_server", True)])
def test_it_takes_the_permission_to_change_servers(keeper: Client, permission: str, may: bool) -> None:
    allow(f"servers.{permission}")
    server, group = ServerFactory.create(), GroupFactory.create()
    chosen: dict[str, Any] = {"ids": server.pk, "how": "add", "groups": [group.pk]}
    assert keeper.get(f"{SERVERS}memberships/", chosen).status_code == (200 if may else 403)
    assert not server.groups.exists()
    assert keeper.post(f"{SERVERS}memberships/", chosen).status_code == (302 if may else 403)
    assert server.groups.exists() is may
