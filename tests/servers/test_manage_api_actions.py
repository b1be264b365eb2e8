"""A person's verdicts through the manage API: carried out on every server named, or on none."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from servers.models import Server, ServerStatusHistory
from servers.recovery_rules import PersonVerdict
from tests.factories import NOON, HostFactory, ServerFactory
from tests.servers.manage_api import NOBODY, ManageApi, body, by_name, faults, fields, problem, written

MOST_STATEMENTS = 18  # of one call, however many servers: need_check gathers the evidence of all of them at once


@pytest.fixture
def manage(db: None, now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> ManageApi:
    return ManageApi(monkeypatch, now)


def action(name: str, *servers: Server | dict[str, Any] | str, reason: str = "tested by hand") -> dict[str, Any]:
    refs = [str(server.uuid) if isinstance(server, Server) else server for server in servers]
    return {"action": name, "servers": refs, "reason": reason}


def many(number: int, **how: Any) -> list[Server]:
    host = HostFactory.create()
    return Server.objects.bulk_create(ServerFactory.build(host=host, unit=1_000 + n, **how) for n in range(number))


@pytest.mark.parametrize(
    ("name", "before", "after", "event"),
    [
        ("recover", {"status": "need_check", "cooldown_times": 4}, {"status": "active", "cooldown_times": 0}, 107),
        ("mark_active", {"status": "disabled"}, {"status": "active"}, 108),
        ("start_chat_preheat", {}, {"status": "active"}, 112),
        ("start_preheat", {"status": "new"}, {"preheating": True, "preheat_started_at": NOON}, 110),
        ("need_check", {}, {"status": "need_check"}, 106),
        ("lost", {}, {"status": "lost"}, 115),
        ("disable", {"in_cooldown": True}, {"status": "disabled", "cooldown": False}, 117),
        ("delete", {}, {"status": "deleted"}, 116),
    ],
)
def test_each_action_is_carried_out_once_and_its_row_says_who_and_why(
    manage: ManageApi, name: str, before: dict[str, Any], after: dict[str, Any], event: int
) -> None:
    server, _partner = ServerFactory.create(**before), ServerFactory.create()
    for changed in (1, 0):
        assert body(manage.post("actions/", action(name, server))) == {"servers": 1, "changed": changed}
    server.refresh_from_db()
    assert {field: getattr(server, field) for field in after} == after
    row = ServerStatusHistory.objects.get()
    assert (row.event, row.at, row.data["by"], row.data["reason"]) == (event, NOON, "manage API", "tested by hand")


def test_every_verdict_of_a_person_is_tried() -> None:
    tried = {"recover", "mark_active", "start_preheat", "start_chat_preheat", "need_check", "lost", "disable", "delete"}
    assert {verdict.value for verdict in PersonVerdict} == tried


def test_server_may_be_named_in_two_ways_and_twice(manage: ManageApi) -> None:
    server = ServerFactory.create()
    sent = action("disable", server, by_name(server), str(server.uuid).upper())
    assert body(manage.post("actions/", sent)) == {"servers": 1, "changed": 1}


def test_refusals_are_named_by_index_and_nothing_is_changed(manage: ManageApi) -> None:
    ready = ServerFactory.create(status="need_check")
    refusing, deleted = ServerFactory.create(status="new"), ServerFactory.create(status="deleted")
    answer = manage.post("actions/", action("recover", ready, refusing, by_name(refusing), deleted))
    told = problem(answer)["errors"]
    assert [(row["index"], row["field"]) for row in told] == [(1, "server"), (2, "server"), (3, "server")]
    assert all(row["code"] and row["detail"] for row in told)
    ready.refresh_from_db()
    assert ready.status == "need_check"
    assert written() == (0, 0)


def test_unknown_servers_and_bad_shapes_are_named_together(manage: ManageApi) -> None:
    server = ServerFactory.create()
    answer = manage.post(
        "actions/", action("disable", server, NOBODY, {"region": "es"}, "x", {"region": "x", "unit": 1})
    )
    assert faults(answer) == [
        (1, "server", "unknown_server"),
        (2, "server.unit", "required"),
        (3, "server", "invalid"),
        (4, "server", "unknown_server"),
    ]
    assert Server.objects.get().status == "active"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"action": "explode"}, {"action": "invalid_choice"}),
        ({"action": "RECOVER"}, {"action": "invalid_choice"}),
        ({"action": None}, {"action": "null"}),
        ({"action": ["recover"]}, {"action": "invalid_choice"}),
        ({"reason": None}, {"reason": "null"}),
        ({"reason": ""}, {"reason": "blank"}),
        ({"reason": " \n\u2003"}, {"reason": "blank"}),
        ({"reason": "x" * 501}, {"reason": "max_length"}),
        ({"reason": 5}, {"reason": "invalid"}),
        ({"servers": []}, {"servers": "empty"}),
        ({"servers": None}, {"servers": "null"}),
        ({"servers": NOBODY}, {"servers": "not_a_list"}),
        ({"by": "me"}, {"by": "unknown_field"}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_body_that_is_wrong_is_refused(manage: ManageApi, change: dict[str, Any], expected: dict[str, str]) -> None:
    server = ServerFactory.create()
    assert fields(manage.post("actions/", action("disable", server) | change)) == expected
    assert Server.objects.get().status == "active"
    assert written() == (0, 0)


@pytest.mark.parametrize("missing", ["action", "servers", "reason"])
def test_nothing_may_be_missing(manage: ManageApi, missing: str) -> None:
    sent = action("disable", ServerFactory.create())
    del sent[missing]
    assert fields(manage.post("actions/", sent)) == {missing: "required"}


def test_character_that_cannot_be_stored_is_refused(manage: ManageApi) -> None:
    sent = action("disable", ServerFactory.create(), reason="a\x00")
    assert fields(manage.post("actions/", sent)).keys() == {"reason"}


def test_longest_reason_is_kept(manage: ManageApi) -> None:
    sent = action("disable", ServerFactory.create(), reason="ї" * 500)
    assert body(manage.post("actions/", sent))["changed"] == 1
    assert ServerStatusHistory.objects.get().note == "ї" * 500


def test_more_than_five_hundred_servers_are_refused(manage: ManageApi) -> None:
    told = problem(manage.post("actions/", action("disable", *many(501))))
    assert (told["code"], told["limit"]) == ("too_many_items", 500)
    assert written() == (0, 0)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("recover", {"status": "need_check"}),
        ("mark_active", {"status": "lost"}),
        ("start_preheat", {"status": "new"}),
        ("start_chat_preheat", {}),
        ("need_check", {}),
        ("lost", {}),
        ("disable", {}),
        ("delete", {}),
    ],
)
def test_five_hundred_servers_take_as_many_queries_as_five(manage: ManageApi, name: str, how: dict[str, Any]) -> None:
    servers = many(505, **how)
    ServerFactory.create()  # somebody to talk to
    counts = []
    for part in (servers[:5], servers[5:]):
        with CaptureQueriesContext(connection) as queries:
            assert body(manage.post("actions/", action(name, *part)))["changed"] == len(part)
        counts.append(len(queries))
    assert counts[0] == counts[1] <= MOST_STATEMENTS
    assert ServerStatusHistory.objects.count() == 505


def test_body_may_have_a_megabyte(manage: ManageApi) -> None:
    sent = b'{"action": "disable", "servers": ["%s"], "reason": "x"}' % str(ServerFactory.create().uuid).encode()
    assert manage.call("POST", "actions/", sent.ljust(1_048_576)).status_code == 200
    assert problem(manage.call("POST", "actions/", sent.ljust(1_048_577)), 413)["code"] == "body_too_large"
    assert problem(manage.call("POST", "actions/", sent, content_type="text/plain"), 415)
