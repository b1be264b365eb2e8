"""Which servers are in a group, said of the group: set, added, removed."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from servers.memberships import Changed, How, assign_servers
from servers.models import Group, Server, ServerStatusHistory
from servers.references import ItemsRefused, RegionUnit, ServerRef, TooManyItems
from servers.rules import Event
from tests.factories import GroupFactory, HostFactory, ServerFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def night() -> Group:
    return GroupFactory.create(name="Night")


def members(group: Group) -> set[Server]:
    return set(group.servers.all())


@pytest.mark.parametrize(
    ("how", "after", "servers", "notes"),
    [
        pytest.param(How.SET, {"both", "new"}, 3, {"held": "Night → no group", "new": "no group → Night"}, id="set"),
        pytest.param(How.ADD, {"held", "both", "new"}, 2, {"new": "no group → Night"}, id="add"),
        pytest.param(How.REMOVE, {"held"}, 2, {"both": "Day, Night → Day"}, id="remove"),
    ],
)
def test_a_group_has_the_servers_that_were_said(
    now: dt.datetime, night: Group, *, how: How, after: set[str], servers: int, notes: dict[str, str]
) -> None:
    day = GroupFactory.create(name="Day")
    fleet = {name: ServerFactory.create(name=name) for name in ("held", "both", "new", "apart")}
    night.servers.add(fleet["held"], fleet["both"])
    day.servers.add(fleet["both"])
    named: list[ServerRef] = [fleet["both"].uuid, RegionUnit(fleet["new"].region, fleet["new"].unit)]
    changed = assign_servers(night.uuid, named, how, now=now, by="ada")
    assert changed == Changed(servers=servers, changed=len(notes))
    assert {server.name for server in members(night)} == after
    assert members(day) == {fleet["both"]}
    rows = ServerStatusHistory.objects.select_related("server")
    assert {row.server.name: row.note for row in rows} == notes
    assert {(row.event, row.at, row.data["by"]) for row in rows} == {(Event.GROUPS_CHANGED, now, "ada")}
    assert assign_servers(night.uuid, named, how, now=now, by="ada").changed == 0
    assert ServerStatusHistory.objects.count() == len(notes)


def test_a_set_to_nothing_takes_all_of_them_out(now: dt.datetime, night: Group) -> None:
    night.servers.add(*ServerFactory.create_batch(3))
    assert assign_servers(night.uuid, [], How.SET, now=now, by="ada") == Changed(servers=3, changed=3)
    assert members(night) == set()


def test_a_server_may_be_named_twice_in_two_ways(now: dt.datetime, night: Group) -> None:
    server = ServerFactory.create()
    named: list[ServerRef] = [server.uuid, RegionUnit(server.region, server.unit), server.uuid]
    assert assign_servers(night.uuid, named, How.SET, now=now, by="ada") == Changed(servers=1, changed=1)


@pytest.mark.parametrize("how", How)
def test_one_unknown_server_and_nothing_is_changed(now: dt.datetime, night: Group, how: How) -> None:
    held, new = ServerFactory.create_batch(2)
    night.servers.add(held)
    named: list[ServerRef] = [new.uuid, held.uuid, uuid.uuid4(), RegionUnit("pt", new.unit)]
    with pytest.raises(ItemsRefused) as refusal:
        assign_servers(night.uuid, named, how, now=now, by="ada")
    faults = [(fault.index, fault.field, fault.code) for fault in refusal.value.faults]
    assert faults == [(2, "server", "unknown_server"), (3, "server", "unknown_server")]
    assert members(night) == {held}
    assert not ServerStatusHistory.objects.exists()


def test_a_group_that_is_not_there_is_said_to_be_so(now: dt.datetime) -> None:
    with pytest.raises(Group.DoesNotExist):
        assign_servers(uuid.uuid4(), [], How.SET, now=now, by="ada")


def test_five_hundred_servers_are_taken_and_one_more_is_not(now: dt.datetime, night: Group) -> None:
    server = ServerFactory.create()
    assert assign_servers(night.uuid, [server.uuid] * 500, How.ADD, now=now, by="ada").changed == 1
    with pytest.raises(TooManyItems, match="at most 500 items"):
        assign_servers(night.uuid, [server.uuid] * 501, How.REMOVE, now=now, by="ada")


@pytest.mark.parametrize("how", How)
def test_five_hundred_servers_take_the_queries_of_five(now: dt.datetime, how: How) -> None:
    host = HostFactory.create()

    def queries(count: int) -> int:
        group = GroupFactory.create()
        servers = Server.objects.bulk_create(ServerFactory.build_batch(2 * count, host=host))
        named, others = servers[:count], servers[count:]
        group.servers.add(*(named if how is How.REMOVE else others))
        refs = [server.uuid for server in named]
        with CaptureQueriesContext(connection) as captured:
            changed = assign_servers(group.uuid, refs, how, now=now, by="ada").changed
        assert changed == (2 * count if how is How.SET else count)
        return len(captured)

    few = queries(5)
    assert few <= 12
    assert queries(500) == few
