"""Groups through the manage API: made, read, changed and deleted, and every refusal."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from otp_service.events.models import Event
from servers.models import Group, ServerStatusHistory
from tests.factories import GroupFactory, ServerFactory
from tests.servers.manage_api import NOBODY, ManageApi, body, fields, problem, written

LEAST = {"name": "night", "priority": 20}
DEFAULTS = {
    "failed_in_row": 0,
    "cooldown_delay_from": 0,
    "cooldown_delay_to": 0,
    "send_from_message_interval": 0,
    "send_to_message_interval": 0,
    "from_time": "00:00:00",
    "to_time": "23:59:59",
    "reset_rule": None,
}
FULL = {
    "name": "night",
    "priority": -3,
    "failed_in_row": 3,
    "cooldown_delay_from": 120,
    "cooldown_delay_to": 240,
    "send_from_message_interval": 10,
    "send_to_message_interval": 20,
    "from_time": "22:00:00",
    "to_time": "08:00:00",
    "reset_rule": "either",
}
TOLD = {"active_now", "servers", "uuid", "warnings"}


@pytest.fixture
def manage(db: None, now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> ManageApi:
    return ManageApi(monkeypatch, now)


def parameters(told: dict[str, Any]) -> dict[str, Any]:
    """What was said of a group, without what is told besides."""
    assert told.keys() >= TOLD
    return {name: value for name, value in told.items() if name not in TOLD}


# --- making -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        pytest.param(LEAST, DEFAULTS | LEAST, id="the least"),
        pytest.param(FULL, FULL, id="everything"),
        pytest.param(
            {**LEAST, "from_time": None, "to_time": None, "reset_rule": None}, DEFAULTS | LEAST, id="null: the default"
        ),
        pytest.param(
            {**LEAST, "from_time": "08:00", "to_time": "20:00"},
            DEFAULTS | LEAST | {"from_time": "08:00:00", "to_time": "20:00:00"},
            id="without seconds",
        ),
        pytest.param(
            {**LEAST, "cooldown_delay_from": 45, "cooldown_delay_to": 0},
            DEFAULTS | LEAST | {"cooldown_delay_from": 45},
            id="one end not set",
        ),
        pytest.param(
            {**LEAST, "name": "ніч 🌙 " + "x" * 94, "priority": 2**31 - 1, "failed_in_row": 100},
            DEFAULTS | {"name": "ніч 🌙 " + "x" * 94, "priority": 2**31 - 1, "failed_in_row": 100},
            id="the most",
        ),
    ],
)
def test_group_is_made(manage: ManageApi, sent: dict[str, Any], kept: dict[str, Any]) -> None:
    answer = manage.post("groups/", sent)
    told = body(answer, 201)
    assert parameters(told) == kept
    assert (told["servers"], answer["Location"]) == (0, f"/{settings.MANAGE_API_PREFIX}groups/{told['uuid']}/")
    assert body(manage.get(f"groups/{told['uuid']}/")) == told
    assert Event.objects.values_list("type", "data__by").get() == ("group.created", "manage API")


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"priority": 1}, {"name": "required"}),
        ({"name": "a"}, {"priority": "required"}),
        ({}, {"name": "required", "priority": "required"}),
        ({"name": "", "priority": 1}, {"name": "blank"}),
        ({"name": "  ", "priority": 1}, {"name": "blank"}),
        ({"name": "\u2003", "priority": 1}, {"name": "blank"}),
        ({"name": "a\nb", "priority": 1}, {"name": "control_characters"}),
        ({"name": "a\x00", "priority": 1}, {"name": "null_characters_not_allowed"}),
        ({"name": "x" * 101, "priority": 1}, {"name": "max_length"}),
        ({"name": 5, "priority": 1}, {"name": "invalid"}),
        ({"name": None, "priority": 1}, {"name": "null"}),
        ({**LEAST, "priority": "1"}, {"priority": "invalid"}),
        ({**LEAST, "priority": True}, {"priority": "invalid"}),
        ({**LEAST, "priority": 1.0}, {"priority": "invalid"}),
        ({**LEAST, "priority": None}, {"priority": "null"}),
        ({**LEAST, "priority": 2**31}, {"priority": "max_value"}),
        ({**LEAST, "priority": -(2**31) - 1}, {"priority": "min_value"}),
        ({**LEAST, "failed_in_row": 101}, {"failed_in_row": "max_value"}),
        ({**LEAST, "failed_in_row": -1}, {"failed_in_row": "min_value"}),
        ({**LEAST, "cooldown_delay_from": 10_081}, {"cooldown_delay_from": "max_value"}),
        ({**LEAST, "send_to_message_interval": -1}, {"send_to_message_interval": "min_value"}),
        ({**LEAST, "cooldown_delay_from": 46, "cooldown_delay_to": 45}, {"cooldown_delay_to": "inverted"}),
        (
            {**LEAST, "send_from_message_interval": 2, "send_to_message_interval": 1},
            {"send_to_message_interval": "inverted"},
        ),
        ({**LEAST, "from_time": "08:00", "to_time": "08:00:00"}, {"to_time": "empty_window"}),
        ({**LEAST, "to_time": "00:00"}, {"to_time": "empty_window"}),
        ({**LEAST, "reset_rule": "sometimes"}, {"reset_rule": "invalid_choice"}),
        ({**LEAST, "reset_rule": ""}, {"reset_rule": "invalid_choice"}),
        ({**LEAST, "uuid": NOBODY}, {"uuid": "unknown_field"}),
        ({**LEAST, "colour": "red", "failed_in_row": "2"}, {"colour": "unknown_field", "failed_in_row": "invalid"}),
        ([LEAST], {"": "invalid"}),
        (None, {"": "null"}),
    ],
    ids=str,
)
def test_group_that_cannot_be_is_refused(manage: ManageApi, sent: Any, expected: dict[str, str]) -> None:
    assert fields(manage.post("groups/", sent)) == expected
    assert not Group.objects.exists()
    assert written() == (0, 0)


NO_TIMES = [
    *("", " ", "8:00", "08", "0800", "08:00:00.5", "08:00:00Z", "08:00+00:00", "24:00", "08:60", "08:00:60", "noon"),
    *("08:00 ", " 08:00", "08:00\n", "08:00:", "08-00", "\u0660\u0668:\u0660\u0660", "0\uff18:00", "T08:00"),
    *(800, True, 8.5, ["08:00"], {"hour": 8}),
]


@pytest.mark.parametrize("field", ["from_time", "to_time"])
@pytest.mark.parametrize("value", NO_TIMES, ids=repr)
def test_any_other_form_of_a_time_is_refused(manage: ManageApi, field: str, value: Any) -> None:
    assert fields(manage.post("groups/", {**LEAST, field: value})) == {field: "invalid"}


@pytest.mark.parametrize(
    ("sent", "code"),
    [({"name": "other", "priority": 7}, "priority_taken"), ({"name": "taken", "priority": 8}, "name_taken")],
)
def test_what_another_group_has_is_refused_and_that_group_is_named(
    manage: ManageApi, sent: dict[str, Any], code: str
) -> None:
    taken = GroupFactory.create(name="taken", priority=7)
    other = GroupFactory.create(name="mine", priority=9)
    for answer in (manage.post("groups/", sent), manage.patch(f"groups/{other.uuid}/", sent)):
        told = problem(answer, 409)
        assert told["code"] == code
        assert str(taken.uuid) in told["detail"]
    assert set(Group.objects.values_list("name", "priority")) == {("taken", 7), ("mine", 9)}
    assert written() == (0, 0)


# --- reading ----------------------------------------------------------------------------------------------


def test_groups_are_listed_newest_first_in_pages(manage: ManageApi) -> None:
    for name in "abc":
        GroupFactory.create(name=name)
    first = body(manage.get("groups/", limit="2"))
    second = body(manage.get("groups/", limit="2", cursor=first["next_cursor"]))
    names = [[row["name"] for row in page["results"]] for page in (first, second)]
    assert (names, second["next_cursor"]) == ([["c", "b"], ["a"]], None)


def test_all_groups_come_on_one_page_up_to_five_hundred(manage: ManageApi) -> None:
    Group.objects.bulk_create(GroupFactory.build(name=f"g{n}", priority=n) for n in range(501))
    told = body(manage.get("groups/"))
    assert len(told["results"]) == 500
    assert len(body(manage.get("groups/", cursor=told["next_cursor"]))["results"]) == 1


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"limit": "501"}, {"limit": "max_value"}),
        ({"limit": "0"}, {"limit": "min_value"}),
        ({"limit": "\u0665"}, {"limit": "invalid"}),
        ({"cursor": "1"}, {"cursor": "bad_cursor"}),
        ({"name": "a"}, {"name": "unknown_field"}),
    ],
    ids=str,
)
def test_list_names_the_parameter_that_is_wrong(
    manage: ManageApi, query: dict[str, str], expected: dict[str, str]
) -> None:
    assert fields(manage.get("groups/", **query)) == expected


def test_parameter_that_is_given_twice_is_refused(manage: ManageApi) -> None:
    assert fields(manage.get("groups/?limit=1&limit=1")) == {"limit": "repeated"}


@pytest.mark.parametrize(("seconds", "active"), [(0, True), (-1, False), (3_600, True), (3_601, False)])
def test_group_says_whether_it_is_active_now(manage: ManageApi, now: dt.datetime, seconds: int, active: bool) -> None:
    group = GroupFactory.create(from_time=dt.time(12), to_time=dt.time(13))
    manage.at(now + dt.timedelta(seconds=seconds))
    assert body(manage.get(f"groups/{group.uuid}/"))["active_now"] is active
    assert body(manage.get("groups/"))["results"][0]["active_now"] is active


@pytest.mark.parametrize(
    ("parameters", "warnings"),
    [
        ({}, 0),
        ({"cooldown_delay_from": 15, "cooldown_delay_to": 45}, 0),
        ({"cooldown_delay_from": 14, "cooldown_delay_to": 45}, 1),
        ({"cooldown_delay_from": 14, "cooldown_delay_to": 45, "failed_in_row": 1}, 2),
    ],
)
def test_group_warns_of_what_may_not_be_expected(manage: ManageApi, parameters: dict[str, int], warnings: int) -> None:
    told = body(manage.post("groups/", {**LEAST, **parameters}), 201)["warnings"]
    assert len(told) == warnings
    assert all(sentence.endswith(".") for sentence in told)


@pytest.mark.parametrize("number", [1, 20])
def test_list_takes_one_query_whatever_the_number_of_groups(manage: ManageApi, number: int) -> None:
    for _ in range(number):
        ServerFactory.create().groups.add(GroupFactory.create())
    with CaptureQueriesContext(connection) as queries:
        told = body(manage.get("groups/"))["results"]
    assert [row["servers"] for row in told] == [1] * number
    assert len(queries) == 1


# --- changing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", sorted(FULL))
def test_any_one_parameter_is_changed_and_the_others_stay(manage: ManageApi, field: str) -> None:
    made = body(manage.post("groups/", FULL), 201)
    new = {"name": "day", "reset_rule": "since_release", "from_time": "21:30:15", "to_time": "09:00:00"}
    value = new.get(field, FULL[field] if isinstance(FULL[field], str) else 130)
    value = 5 if field in {"failed_in_row", "send_from_message_interval"} else value
    told = body(manage.patch(f"groups/{made['uuid']}/", {field: value}))
    assert parameters(told) == FULL | {field: value}
    assert told["uuid"] == made["uuid"]
    event = Event.objects.latest("id")
    assert (event.type, event.data["new"], event.data["by"]) == ("group.changed", {field: value}, "manage API")


def test_null_brings_the_default_back(manage: ManageApi) -> None:
    made = body(manage.post("groups/", FULL), 201)
    told = body(manage.patch(f"groups/{made['uuid']}/", {"from_time": None, "to_time": None, "reset_rule": None}))
    assert parameters(told) == FULL | {"from_time": "00:00:00", "to_time": "23:59:59", "reset_rule": None}


@pytest.mark.parametrize("sent", [{}, FULL, {"name": "night"}, {"from_time": "22:00"}], ids=str)
def test_change_that_changes_nothing_is_not_told(manage: ManageApi, sent: dict[str, Any]) -> None:
    made = body(manage.post("groups/", FULL), 201)
    before = written()
    assert body(manage.patch(f"groups/{made['uuid']}/", sent)) == made
    assert written() == before


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"cooldown_delay_from": 241}, {"cooldown_delay_to": "inverted"}),
        ({"to_time": "22:00"}, {"to_time": "empty_window"}),
        ({"name": "a\tb"}, {"name": "control_characters"}),
        ({"priority": None}, {"priority": "null"}),
        ({"nmae": "a"}, {"nmae": "unknown_field"}),
        ([], {"": "invalid"}),
    ],
    ids=str,
)
def test_change_to_what_cannot_be_is_refused(manage: ManageApi, sent: Any, expected: dict[str, str]) -> None:
    made = body(manage.post("groups/", FULL), 201)
    before = written()
    assert fields(manage.patch(f"groups/{made['uuid']}/", sent)) == expected
    assert body(manage.get(f"groups/{made['uuid']}/")) == made
    assert written() == before


# --- deleting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [{}, {"strict": "1"}], ids=str)
def test_group_without_servers_is_deleted(manage: ManageApi, strict: dict[str, str]) -> None:
    group = GroupFactory.create()
    answer = manage.delete(f"groups/{group.uuid}/", **strict)
    assert (answer.status_code, answer.content) == (204, b"")
    assert not Group.objects.exists()
    assert problem(manage.delete(f"groups/{group.uuid}/", **strict), 404)


def test_servers_of_a_deleted_group_are_taken_out_and_their_histories_tell(manage: ManageApi) -> None:
    group = GroupFactory.create(name="gone")
    servers = [ServerFactory.create() for _ in range(2)]
    group.servers.set(servers)
    assert manage.delete(f"groups/{group.uuid}/").status_code == 204
    rows = ServerStatusHistory.objects.order_by("server_id").values_list("server_id", "event", "data__by")
    assert list(rows) == [(server.pk, 114, "manage API") for server in servers]
    assert Event.objects.values_list("type", "data__servers").get() == ("group.deleted", 2)


def test_strict_deletion_keeps_a_group_that_has_servers(manage: ManageApi) -> None:
    group = GroupFactory.create()
    ServerFactory.create().groups.add(group)
    assert problem(manage.delete(f"groups/{group.uuid}/", strict="1"), 409)["code"] == "group_in_use"
    assert group.servers.count() == 1
    assert written() == (0, 0)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        *(({"strict": value}, "invalid_choice") for value in ("0", "true", "", "2", "\u0661", " 1")),
        ({"stric": "1"}, "unknown_field"),
    ],
)
def test_other_ways_to_delete_are_refused(manage: ManageApi, query: dict[str, str], expected: str) -> None:
    group = GroupFactory.create()
    assert list(fields(manage.delete(f"groups/{group.uuid}/", **query)).values()) == [expected]
    assert Group.objects.exists()


# --- addresses and bodies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_group_that_there_is_not_is_not_found(manage: ManageApi, method: str) -> None:
    GroupFactory.create()
    data = "{}" if method == "PATCH" else ""
    assert problem(manage.call(method, f"groups/{uuid.uuid4()}/", data), 404)["code"] == "not_found"
    assert Group.objects.exists()


def test_address_may_hold_the_uuid_in_upper_case(manage: ManageApi) -> None:
    group = GroupFactory.create()
    assert body(manage.get(f"groups/{str(group.uuid).upper()}/"))["uuid"] == str(group.uuid)


@pytest.mark.parametrize(
    ("data", "content_type", "status", "code"),
    [
        pytest.param(b"{", "application/json", 400, "parse_error", id="not JSON"),
        pytest.param(b'{"name": "a", "name": "b"}', "application/json", 400, "parse_error", id="a name twice"),
        pytest.param(b'{"priority": NaN}', "application/json", 400, "parse_error", id="not a number"),
        pytest.param(b"name=a", "application/x-www-form-urlencoded", 415, "unsupported_media_type", id="a form"),
        pytest.param(b" " * 65_537, "application/json", 413, "body_too_large", id="too large"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_body_that_is_not_taken(  # noqa: PLR0917 - a table's columns
    manage: ManageApi, method: str, data: bytes, content_type: str, status: int, code: str
) -> None:
    path = "groups/" if method == "POST" else f"groups/{GroupFactory.create(name='kept').uuid}/"
    answer = manage.call(method, path, data, content_type=content_type)
    assert problem(answer, status)["code"] == code
    assert set(Group.objects.values_list("name", flat=True)) <= {"kept"}


def test_answer_is_json_whatever_is_asked_for(manage: ManageApi) -> None:
    headers = {"Authorization": manage.key, "Accept": "text/html"}
    answer = manage.call("GET", "groups/", headers=headers)
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
    assert json.loads(answer.content)["results"] == []
