"""The servers of one group: listed, set, added and removed."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from servers.models import Group, Server, ServerStatusHistory
from tests.factories import GroupFactory, HostFactory, ServerFactory
from tests.servers.manage_api import NOBODY, ManageApi, body, by_name, faults, fields, problem, written

CALLS = {"set": "", "add": "add/", "remove": "remove/"}


@pytest.fixture
def manage(db: None, now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> ManageApi:
    return ManageApi(monkeypatch, now)


@pytest.fixture
def group() -> Group:
    return GroupFactory.create(name="a")


def path(group: Group | str, how: str = "set") -> str:
    return f"groups/{getattr(group, 'uuid', group)}/servers/{CALLS[how]}"


def many(number: int) -> list[Server]:
    host = HostFactory.create()
    return Server.objects.bulk_create(ServerFactory.build(host=host, unit=1_000 + n) for n in range(number))


def uuids(servers: list[Server]) -> list[str]:
    return [str(server.uuid) for server in servers]


@pytest.mark.parametrize(
    ("how", "before", "named", "after", "told"),
    [
        ("set", "", "xy", "xy", (2, 2)),
        ("set", "xy", "yz", "yz", (3, 2)),
        ("set", "xy", "", "", (2, 2)),
        ("set", "", "", "", (0, 0)),
        ("set", "xy", "xy", "xy", (2, 0)),
        ("add", "x", "xy", "xy", (2, 1)),
        ("remove", "xy", "yz", "x", (2, 1)),
    ],
)
def test_each_way_to_name_its_servers(  # noqa: PLR0917 - a table's columns
    manage: ManageApi, group: Group, how: str, before: str, named: str, after: str, told: tuple[int, int]
) -> None:
    servers = dict(zip("xyz", many(3), strict=True))
    group.servers.set(servers[name] for name in before)
    sent = {"servers": uuids([servers[name] for name in named])}
    assert body(manage.post(path(group, how), sent)) == dict(zip(("servers", "changed"), told, strict=True))
    assert set(group.servers.all()) == {servers[name] for name in after}
    changed = {servers[name].pk for name in set(before) ^ set(after)}
    assert set(ServerStatusHistory.objects.values_list("server_id", "event", "data__by")) == {
        (pk, 114, "manage API") for pk in changed
    }
    assert body(manage.post(path(group, how), sent))["changed"] == 0
    assert written()[0] == len(changed)


def test_other_groups_of_its_servers_stay(manage: ManageApi, group: Group) -> None:
    other, server = GroupFactory.create(), ServerFactory.create()
    server.groups.add(other)
    body(manage.post(path(group), {"servers": [str(server.uuid)]}))
    body(manage.post(path(group), {"servers": []}))
    assert list(server.groups.all()) == [other]


def test_server_may_be_named_by_region_and_unit_and_twice(manage: ManageApi, group: Group) -> None:
    server = ServerFactory.create()
    sent = {"servers": [by_name(server), str(server.uuid), str(server.uuid).upper()]}
    assert body(manage.post(path(group), sent)) == {"servers": 1, "changed": 1}


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (NOBODY, [("server", "unknown_server")]),
        ({"region": "xx", "unit": 1}, [("server", "unknown_server")]),
        ({"region": "es"}, [("server.unit", "required")]),
        ({"region": 1, "unit": "1"}, [("server.region", "invalid"), ("server.unit", "invalid")]),
        ("es 1", [("server", "invalid")]),
        (1, [("server", "invalid")]),
        (None, [("server", "null")]),
        ([], [("server", "invalid")]),
    ],
    ids=str,
)
@pytest.mark.parametrize("how", CALLS)
def test_one_bad_server_is_named_and_changes_nothing(
    manage: ManageApi, group: Group, how: str, bad: Any, expected: list[tuple[str, str]]
) -> None:
    here, there = many(2)
    group.servers.add(here)
    answer = manage.post(path(group, how), {"servers": [str(here.uuid), str(there.uuid), bad, 7, NOBODY]})
    named = [(2, field, code) for field, code in expected]
    assert faults(answer) == [*named, (3, "server", "invalid"), (4, "server", "unknown_server")]
    assert faults(manage.post(path(group, how), {"servers": [str(there.uuid), bad]})) == [
        (1, field, code) for field, code in expected
    ]
    assert list(group.servers.all()) == [here]
    assert written() == (0, 0)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({}, {"servers": "required"}),
        ({"servers": None}, {"servers": "null"}),
        ({"servers": "es 1"}, {"servers": "not_a_list"}),
        ({"servers": {"region": "es", "unit": 1}}, {"servers": "not_a_list"}),
        ([NOBODY], {"": "invalid"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("how", CALLS)
def test_body_without_a_list_is_refused(
    manage: ManageApi, group: Group, how: str, sent: Any, expected: dict[str, str]
) -> None:
    assert fields(manage.post(path(group, how), sent)) == expected


@pytest.mark.parametrize("how", ["add", "remove"])
def test_only_a_set_may_name_no_server(manage: ManageApi, group: Group, how: str) -> None:
    assert fields(manage.post(path(group, how), {"servers": []})) == {"servers": "empty"}


@pytest.mark.parametrize("how", CALLS)
def test_more_than_five_hundred_are_refused_and_the_way_on_is_named(manage: ManageApi, group: Group, how: str) -> None:
    told = problem(manage.post(path(group, how), {"servers": uuids(many(501))}))
    assert told["code"] == "too_many_items"
    assert all(word in told["detail"] for word in ("500", "501", "add/", "remove/"))
    assert written() == (0, 0)


def test_larger_groups_are_filled_and_emptied_in_pages(manage: ManageApi, group: Group) -> None:
    servers = uuids(many(600))
    for how, count in (("add", 600), ("remove", 0)):
        for page in (servers[:500], servers[500:]):
            assert body(manage.post(path(group, how), {"servers": page}))["changed"] == len(page)
        assert group.servers.count() == count


@pytest.mark.parametrize("how", CALLS)
def test_five_hundred_servers_take_as_many_queries_as_five(manage: ManageApi, how: str) -> None:
    servers = many(505)
    counts = []
    for part in (servers[:5], servers[5:]):
        group = GroupFactory.create()
        if how == "remove":
            group.servers.set(part)
        with CaptureQueriesContext(connection) as queries:
            assert body(manage.post(path(group, how), {"servers": uuids(part)}))["changed"] == len(part)
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 15


@pytest.mark.parametrize("how", CALLS)
def test_group_that_there_is_not_is_not_found(manage: ManageApi, how: str) -> None:
    server = ServerFactory.create()
    assert problem(manage.post(path(str(uuid.uuid4()), how), {"servers": [str(server.uuid)]}), 404)
    assert problem(manage.get(path(str(uuid.uuid4()))), 404)


# --- listing ----------------------------------------------------------------------------------------------


def test_its_servers_are_listed_by_name_newest_first_in_pages(manage: ManageApi, group: Group) -> None:
    servers = many(3)
    group.servers.set(servers)
    ServerFactory.create()
    first = body(manage.get(path(group), limit="2"))
    second = body(manage.get(path(group), limit="2", cursor=first["next_cursor"]))
    listed = [*first["results"], *second["results"]]
    assert listed == [{"uuid": str(server.uuid), **by_name(server)} for server in reversed(servers)]
    assert second["next_cursor"] is None


def test_what_is_listed_can_be_sent_back(manage: ManageApi, group: Group) -> None:
    group.servers.set(many(2))
    listed = body(manage.get(path(group)))["results"]
    assert body(manage.post(path(group), {"servers": [row["uuid"] for row in listed]}))["changed"] == 0


@pytest.mark.parametrize("number", [1, 500])
def test_list_takes_two_queries_whatever_the_number_of_servers(manage: ManageApi, group: Group, number: int) -> None:
    group.servers.set(many(number))
    with CaptureQueriesContext(connection) as queries:
        assert len(body(manage.get(path(group)))["results"]) == number
    assert len(queries) == 2  # the group; the page


@pytest.mark.parametrize("query", [{"limit": "501"}, {"cursor": "x"}, {"region": "es"}], ids=str)
def test_list_names_the_parameter_that_is_wrong(manage: ManageApi, group: Group, query: dict[str, str]) -> None:
    assert fields(manage.get(path(group), **query)).keys() == query.keys()
