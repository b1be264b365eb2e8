"""Which groups servers are in, set, added to and removed from: each call is carried out whole, or not at all."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from servers.models import Group, Server, ServerStatusHistory
from tests.factories import GroupFactory, HostFactory, ServerFactory
from tests.servers.manage_api import NOBODY, ManageApi, body, by_name, faults, fields, problem, written

PATHS = {"set": "groups/assignments/", "add": "groups/assignments/add/", "remove": "groups/assignments/remove/"}


@pytest.fixture
def manage(db: None, now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> ManageApi:
    return ManageApi(monkeypatch, now)


@pytest.fixture
def a() -> Group:
    return GroupFactory.create(name="a")


@pytest.fixture
def b() -> Group:
    return GroupFactory.create(name="b")


@pytest.fixture
def server() -> Server:
    return ServerFactory.create()


def many(number: int) -> list[Server]:
    host = HostFactory.create()
    return Server.objects.bulk_create(ServerFactory.build(host=host, unit=1_000 + n) for n in range(number))


def item(server: Server, *groups: Group) -> dict[str, Any]:
    return {"server": str(server.uuid), "groups": [str(group.uuid) for group in groups]}


def names(server: Server) -> set[str]:
    return set(server.groups.values_list("name", flat=True))


@pytest.mark.parametrize(
    ("how", "before", "named", "after"),
    [
        ("set", "", "a", "a"),
        ("set", "a", "b", "b"),
        ("set", "ab", "", ""),
        ("set", "b", "ab", "ab"),
        ("add", "a", "b", "ab"),
        ("add", "", "ab", "ab"),
        ("remove", "ab", "a", "b"),
        ("remove", "ab", "ab", ""),
    ],
)
def test_each_way_to_assign(  # noqa: PLR0917 - a table's columns
    manage: ManageApi, a: Group, b: Group, server: Server, how: str, before: str, named: str, after: str
) -> None:
    groups = {"a": a, "b": b}
    server.groups.set(groups[name] for name in before)
    sent = {"items": [item(server, *(groups[name] for name in named))]}
    assert body(manage.post(PATHS[how], sent)) == {"servers": 1, "changed": 1}
    assert names(server) == set(after)
    row = ServerStatusHistory.objects.get()
    uuids = [[str(groups[name].uuid) for name in letters] for letters in (before, after)]
    assert (row.event, row.data["by"]) == (114, "manage API")
    assert [sorted(row.data[side]["groups"]) for side in ("old", "new")] == [sorted(side) for side in uuids]


@pytest.mark.parametrize("how", PATHS)
def test_repetition_writes_nothing(manage: ManageApi, a: Group, b: Group, server: Server, how: str) -> None:
    server.groups.add(b)
    for changed in (1, 0, 0):
        sent = {"items": [item(server, b if how == "remove" else a)]}
        assert body(manage.post(PATHS[how], sent)) == {"servers": 1, "changed": changed}
    assert written()[0] == 1


def test_server_may_be_named_in_each_of_these_ways(manage: ManageApi, a: Group) -> None:
    servers = many(4)
    refs: list[dict[str, Any]] = [
        {"server": by_name(servers[0])},
        {"server": str(servers[1].uuid)},
        {"uuid": str(servers[2].uuid)},
        {"uuid": str(servers[3].uuid).upper()},
    ]
    sent = {"items": [{**ref, "groups": [str(a.uuid).upper()]} for ref in refs]}
    assert body(manage.post(PATHS["set"], sent)) == {"servers": 4, "changed": 4}
    assert a.servers.count() == 4


def test_server_that_is_named_twice_with_the_same_groups_is_one(manage: ManageApi, a: Group, server: Server) -> None:
    sent = {"items": [item(server, a), {"server": by_name(server), "groups": [str(a.uuid)] * 2}]}
    assert body(manage.post(PATHS["set"], sent)) == {"servers": 1, "changed": 1}


def test_servers_that_are_not_named_stay(manage: ManageApi, a: Group, b: Group, server: Server) -> None:
    other = ServerFactory.create()
    other.groups.add(b)
    body(manage.post(PATHS["set"], {"items": [item(server, a)]}))
    assert names(other) == {"b"}


def test_empty_list_of_groups_takes_a_server_out_of_all(manage: ManageApi, a: Group, server: Server) -> None:
    server.groups.add(a)
    assert body(manage.post(PATHS["set"], {"items": [item(server)]})) == {"servers": 1, "changed": 1}
    assert names(server) == set()


BAD_ITEMS: list[tuple[Any, list[tuple[str, str]]]] = [
    ("es 228", [("", "invalid")]),
    (None, [("", "null")]),
    ([], [("", "invalid")]),
    ({}, [("groups", "required")]),
    ({"groups": []}, [("server", "one_of_two")]),
    ({"server": NOBODY, "uuid": NOBODY, "groups": []}, [("server", "one_of_two")]),
    ({"server": NOBODY}, [("groups", "required")]),
    ({"server": NOBODY, "groups": None}, [("groups", "null")]),
    ({"server": NOBODY, "groups": NOBODY}, [("groups", "not_a_list")]),
    ({"server": NOBODY, "groups": {NOBODY: 1}}, [("groups", "not_a_list")]),
    ({"server": NOBODY, "groups": ["a"]}, [("groups.0", "invalid")]),
    ({"server": NOBODY, "groups": [NOBODY, 5, None]}, [("groups.1", "invalid"), ("groups.2", "null")]),
    ({"server": NOBODY, "groups": [NOBODY] * 101}, [("groups", "max_length")]),
    ({"server": NOBODY, "groups": [], "by": "me"}, [("by", "unknown_field")]),
    ({"server": "es 228", "groups": []}, [("server", "invalid")]),
    ({"server": 228, "groups": []}, [("server", "invalid")]),
    ({"server": None, "groups": []}, [("server", "null")]),
    ({"server": [NOBODY], "groups": []}, [("server", "invalid")]),
    ({"server": NOBODY.replace("-", ""), "groups": []}, [("server", "invalid")]),
    ({"server": f"{{{NOBODY}}}", "groups": []}, [("server", "invalid")]),
    ({"server": f"urn:uuid:{NOBODY}", "groups": []}, [("server", "invalid")]),
    ({"server": f"{NOBODY}\n", "groups": []}, [("server", "invalid")]),
    ({"server": NOBODY.replace("0", "\u0660"), "groups": []}, [("server", "invalid")]),
    ({"uuid": {"region": "es", "unit": 1}, "groups": []}, [("uuid", "invalid")]),
    ({"uuid": NOBODY.replace("-", ""), "groups": []}, [("uuid", "invalid")]),
    ({"server": {"region": "es"}, "groups": []}, [("server.unit", "required")]),
    ({"server": {"unit": 1}, "groups": []}, [("server.region", "required")]),
    ({"server": {"region": "", "unit": 1}, "groups": []}, [("server.region", "blank")]),
    ({"server": {"region": "e\x00", "unit": 1}, "groups": []}, [("server.region", "null_characters_not_allowed")]),
    ({"server": {"region": "a" * 9, "unit": 1}, "groups": []}, [("server.region", "max_length")]),
    ({"server": {"region": 5, "unit": 1}, "groups": []}, [("server.region", "invalid")]),
    ({"server": {"region": "es", "unit": "1"}, "groups": []}, [("server.unit", "invalid")]),
    ({"server": {"region": "es", "unit": True}, "groups": []}, [("server.unit", "invalid")]),
    ({"server": {"region": "es", "unit": -1}, "groups": []}, [("server.unit", "min_value")]),
    ({"server": {"region": "es", "unit": 2**31}, "groups": []}, [("server.unit", "max_value")]),
    ({"server": {"region": "es", "unit": 1, "host": 1}, "groups": []}, [("server.host", "unknown_field")]),
    ({"server": 1, "groups": ["x"]}, [("server", "invalid"), ("groups.0", "invalid")]),
    ({"server": NOBODY, "groups": []}, [("server", "unknown_server")]),
    ({"uuid": NOBODY, "groups": [NOBODY]}, [("server", "unknown_server"), ("groups.0", "unknown_group")]),
    ({"server": {"region": "xx", "unit": 1}, "groups": []}, [("server", "unknown_server")]),
]


@pytest.mark.parametrize(("bad", "expected"), BAD_ITEMS, ids=lambda value: repr(value)[:60])
def test_one_bad_item_is_named_and_changes_nothing(
    manage: ManageApi, a: Group, server: Server, bad: Any, expected: list[tuple[str, str]]
) -> None:
    for path in PATHS.values():
        answer = manage.post(path, {"items": [item(server, a), bad, item(server, a)]})
        assert sorted(faults(answer)) == sorted((1, field, code) for field, code in expected)
        assert names(server) == set()
    assert written() == (0, 0)


def test_all_bad_items_are_named_at_once(manage: ManageApi, a: Group, server: Server) -> None:
    items = [
        {"server": by_name(server), "groups": [str(a.uuid), NOBODY]},
        {"server": 5, "groups": []},
        {"server": NOBODY, "groups": [NOBODY]},
        item(server, a),
        {"uuid": str(server.uuid), "groups": [7]},
    ]
    assert faults(manage.post(PATHS["set"], {"items": items})) == [
        (0, "groups.1", "unknown_group"),
        (1, "server", "invalid"),
        (2, "server", "unknown_server"),
        (2, "groups.0", "unknown_group"),
        (4, "groups.0", "invalid"),
    ]


def test_server_that_is_named_twice_with_different_groups_is_refused(
    manage: ManageApi, a: Group, b: Group, server: Server
) -> None:
    sent = {"items": [item(server, a), {"server": by_name(server), "groups": [str(b.uuid)]}]}
    for path in PATHS.values():
        assert faults(manage.post(path, sent)) == [(1, "server", "conflicting")]
    assert written() == (0, 0)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({}, {"items": "required"}),
        ({"items": []}, {"items": "empty"}),
        ({"items": None}, {"items": "null"}),
        ({"items": {}}, {"items": "not_a_list"}),
        ({"items": "[]"}, {"items": "not_a_list"}),
        ({"items": [], "by": "me"}, {"items": "empty", "by": "unknown_field"}),
        ([], {"": "invalid"}),
        (None, {"": "null"}),
    ],
    ids=str,
)
def test_body_without_a_list_of_items_is_refused(manage: ManageApi, sent: Any, expected: dict[str, str]) -> None:
    for path in PATHS.values():
        assert fields(manage.post(path, sent)) == expected


@pytest.mark.parametrize("how", PATHS)
def test_more_than_five_hundred_items_are_refused_and_the_way_on_is_named(
    manage: ManageApi, a: Group, how: str
) -> None:
    servers = many(501)
    if how == "remove":
        a.servers.set(servers)
    told = problem(manage.post(PATHS[how], {"items": [item(server, a) for server in servers]}))
    assert (told["code"], told["limit"]) == ("too_many_items", 500)
    assert all(word in told["detail"] for word in ("500", "501", "add/", "remove/"))
    assert a.servers.count() == (501 if how == "remove" else 0)
    assert written() == (0, 0)


def test_too_many_items_are_refused_whatever_they_are(manage: ManageApi) -> None:
    assert problem(manage.post(PATHS["set"], {"items": [None] * 501}))["code"] == "too_many_items"


def queries_of(manage: ManageApi, how: str, servers: Sequence[Server], *groups: Group) -> int:
    sent = {"items": [item(server, *groups) for server in servers]}
    with CaptureQueriesContext(connection) as queries:
        assert body(manage.post(PATHS[how], sent)) == {"servers": len(servers), "changed": len(servers)}
    return len(queries)


@pytest.mark.parametrize("how", PATHS)
def test_five_hundred_items_take_as_many_queries_as_five(manage: ManageApi, a: Group, b: Group, how: str) -> None:
    servers = many(505)
    b.servers.set(servers)
    group = b if how == "remove" else a
    few = queries_of(manage, how, servers[:5], group)
    assert queries_of(manage, how, servers[5:], group) == few
    assert few <= 15
    assert ServerStatusHistory.objects.count() == 505


def test_body_may_have_a_megabyte(manage: ManageApi, a: Group, server: Server) -> None:
    sent = json.dumps({"items": [item(server, a)]})
    for path in PATHS.values():
        assert manage.call("POST", path, sent.ljust(1_048_576)).status_code == 200
        assert problem(manage.call("POST", path, sent.ljust(1_048_577)), 413)["code"] == "body_too_large"
