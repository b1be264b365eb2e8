"""Groups made, changed and deleted by people."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from otp_service.events.models import Event as LogEvent
from servers import groups
from servers.group_rules import FieldFault, group_faults
from servers.groups import GroupInUse, GroupInvalid, GroupTaken, change_group, create_group, delete_group
from servers.models import Group, Server, ServerStatusHistory
from servers.rules import Event, ResetRule
from tests.factories import GroupFactory, HostFactory, ServerFactory

pytestmark = pytest.mark.django_db

DEFAULTS = {
    "failed_in_row": 0,
    "cooldown_delay_from": 0,
    "cooldown_delay_to": 0,
    "send_from_message_interval": 0,
    "send_to_message_interval": 0,
    "from_time": dt.time(0, 0, 0),
    "to_time": dt.time(23, 59, 59),
    "reset_rule": "",
}
FULL = {
    "name": "Night",
    "priority": 7,
    "failed_in_row": 3,
    "cooldown_delay_from": 15,
    "cooldown_delay_to": 45,
    "send_from_message_interval": 8,
    "send_to_message_interval": 12,
    "from_time": dt.time(22),
    "to_time": dt.time(8),
    "reset_rule": "either",
}


def stored(group: Group) -> dict[str, Any]:
    row = Group.objects.get(pk=group.pk)
    return {name: getattr(row, name) for name in FULL}


def made(now: dt.datetime, **values: Any) -> Group:
    return create_group({"name": "Night", "priority": 7, **values}, now=now, by="ada")


# --- made ---


def test_a_group_is_made_as_it_is_described(now: dt.datetime) -> None:
    group = create_group(FULL, now=now, by="ada")
    assert stored(group) == FULL
    told = LogEvent.objects.get()
    assert (told.type, told.at, told.subject_uuid, told.client_id) == ("group.created", now, group.uuid, None)
    times = {"from_time": "22:00:00", "to_time": "08:00:00"}
    assert told.data == {"old": {}, "new": FULL | times, "by": "ada"}


@pytest.mark.parametrize(
    "open_values",
    [{}, {"from_time": None, "to_time": None, "reset_rule": None}],
    ids=["left out", "null"],
)
def test_what_is_left_open_is_as_by_default(now: dt.datetime, open_values: dict[str, Any]) -> None:
    assert stored(made(now, **open_values)) == {"name": "Night", "priority": 7, **DEFAULTS}


def test_a_reset_rule_may_come_as_the_rule_itself(now: dt.datetime) -> None:
    assert stored(made(now, reset_rule=ResetRule.EITHER))["reset_rule"] == "either"


@pytest.mark.parametrize(
    ("values", "field", "code"),
    [
        pytest.param({"priority": 2**31}, "priority", "max_value", id="what the database cannot hold"),
        pytest.param({"name": "a\0b"}, "name", "control_characters", id="NUL"),
        pytest.param({"to_time": dt.time(0)}, "to_time", "empty_window", id="with a default, an empty window"),
        pytest.param({"failed_in_row": None}, "failed_in_row", "invalid", id="null where there is no default for it"),
        pytest.param({"uuid": uuid.uuid4()}, "uuid", "unknown_field", id="a field that is not a parameter"),
        pytest.param({"id": 5}, "id", "unknown_field", id="a row's id"),
    ],
)
def test_a_group_that_is_wrong_is_not_made(now: dt.datetime, values: dict[str, Any], field: str, code: str) -> None:
    with pytest.raises(GroupInvalid) as refused:
        made(now, **values)
    assert (refused.value.status, refused.value.code) == (400, "invalid")
    assert [(row["field"], row["code"]) for row in refused.value.data["errors"]] == [(field, code)]
    assert field in refused.value.detail
    assert not Group.objects.exists()
    assert not LogEvent.objects.exists()


def test_a_name_and_a_priority_are_needed(now: dt.datetime) -> None:
    with pytest.raises(GroupInvalid) as refused:
        create_group({}, now=now, by="ada")
    assert [row["field"] for row in refused.value.data["errors"]] == ["name", "priority"]


@pytest.mark.parametrize(("field", "value"), [("priority", 7), ("name", "Night")], ids=["its priority", "its name"])
def test_what_another_group_has_is_refused_and_says_which_one(now: dt.datetime, field: str, value: Any) -> None:
    other = GroupFactory.create(**FULL)
    with pytest.raises(GroupTaken) as refused:
        create_group({"name": "New", "priority": 8, field: value}, now=now, by="ada")
    assert (refused.value.status, refused.value.code) == (409, f"{field}_taken")
    assert "Night" in refused.value.detail
    assert str(other.uuid) in refused.value.detail
    assert not LogEvent.objects.exists()


def test_a_fault_that_is_not_about_taken_names_is_not_called_one(
    now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "group_faults", lambda _group: [])
    with pytest.raises(IntegrityError, match="group_window_not_empty"):
        made(now, to_time=dt.time(0))


# --- changed ---


def test_only_what_is_named_is_changed_and_only_what_differs_is_told(now: dt.datetime) -> None:
    group = GroupFactory.create(**FULL)
    change_group(group.uuid, {"priority": 7, "failed_in_row": 1, "to_time": None}, now=now, by="ada")
    assert stored(group) == FULL | {"failed_in_row": 1, "to_time": dt.time(23, 59, 59)}
    told = LogEvent.objects.get()
    assert (told.type, told.at, told.subject_uuid) == ("group.changed", now, group.uuid)
    assert told.data == {
        "old": {"failed_in_row": 3, "to_time": "08:00:00"},
        "new": {"failed_in_row": 1, "to_time": "23:59:59"},
        "by": "ada",
    }


def test_only_the_columns_that_differ_are_written(now: dt.datetime) -> None:
    group = GroupFactory.create(**FULL)
    with CaptureQueriesContext(connection) as captured:
        change_group(group.uuid, FULL | {"failed_in_row": 1}, now=now, by="ada")
    (update,) = [query["sql"] for query in captured if query["sql"].startswith("UPDATE")]
    assert '"failed_in_row" = 1' in update
    assert "priority" not in update


@pytest.mark.parametrize("values", [{}, FULL], ids=["nothing", "what it is"])
def test_a_change_that_changes_nothing_is_not_told(now: dt.datetime, values: dict[str, Any]) -> None:
    group = GroupFactory.create(**FULL)
    assert change_group(group.uuid, values, now=now, by="ada") == group
    assert stored(group) == FULL
    assert not LogEvent.objects.exists()


@pytest.mark.parametrize(
    ("values", "field", "code"),
    [
        pytest.param({"cooldown_delay_from": 46}, "cooldown_delay_to", "inverted", id="a delay over its other end"),
        pytest.param({"from_time": dt.time(8)}, "to_time", "empty_window", id="a window up to where it begins"),
        pytest.param({"from_time": dt.time(9, tzinfo=dt.UTC)}, "from_time", "time_zone", id="a time with a zone"),
        pytest.param({"name": None}, "name", "invalid", id="no name"),
    ],
)
def test_a_change_is_looked_at_together_with_what_stays(
    now: dt.datetime, values: dict[str, Any], field: str, code: str
) -> None:
    group = GroupFactory.create(**FULL)
    with pytest.raises(GroupInvalid) as refused:
        change_group(group.uuid, values | {"failed_in_row": 1}, now=now, by="ada")
    assert [(row["field"], row["code"]) for row in refused.value.data["errors"]] == [(field, code)]
    assert stored(group) == FULL
    assert not LogEvent.objects.exists()


@pytest.mark.parametrize("field", ["priority", "name"])
def test_a_change_to_what_another_group_has_is_refused(now: dt.datetime, field: str) -> None:
    group, other = GroupFactory.create(**FULL), GroupFactory.create(name="Day", priority=8)
    with pytest.raises(GroupTaken, match=f"The group Day.*{other.uuid}") as refused:
        change_group(group.uuid, {field: getattr(other, field), "failed_in_row": 1}, now=now, by="ada")
    assert refused.value.code == f"{field}_taken"
    assert stored(group) == FULL
    assert not LogEvent.objects.exists()


def test_a_group_that_is_not_there_is_neither_changed_nor_deleted(now: dt.datetime) -> None:
    with pytest.raises(Group.DoesNotExist):
        change_group(uuid.uuid4(), {"priority": 1}, now=now, by="ada")
    with pytest.raises(Group.DoesNotExist):
        delete_group(uuid.uuid4(), now=now, by="ada")


# --- deleted ---


def test_a_deleted_group_lets_its_servers_go_and_says_so(now: dt.datetime) -> None:
    group, other = GroupFactory.create(**FULL), GroupFactory.create(name="Day")
    alone, both, _ = ServerFactory.create_batch(3)
    alone.groups.add(group)
    both.groups.add(group, other)
    assert delete_group(group.uuid, now=now, by="ada") == 2
    assert not Group.objects.filter(pk=group.pk).exists()
    assert list(both.groups.all()) == [other]
    rows = {row.server_id: row for row in ServerStatusHistory.objects.all()}
    assert rows.keys() == {alone.pk, both.pk}
    row = rows[both.pk]
    assert (row.event, row.at, row.note) == (Event.GROUPS_CHANGED, now, "Day, Night → Day")
    uuids = sorted([str(group.uuid), str(other.uuid)])
    assert row.data == {"old": {"groups": uuids}, "new": {"groups": [str(other.uuid)]}, "by": "ada"}
    assert rows[alone.pk].note == "Night → no group"
    told = LogEvent.objects.get()
    assert (told.type, told.at, told.subject_uuid) == ("group.deleted", now, group.uuid)
    times = {"from_time": "22:00:00", "to_time": "08:00:00"}
    assert told.data == {"old": FULL | times, "new": {}, "servers": 2, "by": "ada"}


def test_a_group_with_servers_is_not_deleted_when_that_is_asked_for(now: dt.datetime) -> None:
    group, server = GroupFactory.create(name="Night"), ServerFactory.create()
    server.groups.add(group)
    with pytest.raises(GroupInUse, match=r"Servers in Night: 1\. .*without strict") as refused:
        delete_group(group.uuid, now=now, by="ada", strict=True)
    assert (refused.value.status, refused.value.code) == (409, "group_in_use")
    assert list(server.groups.all()) == [group]
    assert not ServerStatusHistory.objects.exists()
    assert not LogEvent.objects.exists()


def test_a_group_without_servers_is_deleted_strictly_too(now: dt.datetime) -> None:
    group = GroupFactory.create()
    assert delete_group(group.uuid, now=now, by="ada", strict=True) == 0
    assert not Group.objects.exists()
    assert LogEvent.objects.get().data["servers"] == 0


def test_a_group_of_a_whole_fleet_is_deleted_in_as_many_queries_as_one_of_two(now: dt.datetime) -> None:
    host = HostFactory.create()

    def queries(servers: int) -> int:
        group = GroupFactory.create()
        group.servers.set(Server.objects.bulk_create(ServerFactory.build_batch(servers, host=host)))
        with CaptureQueriesContext(connection) as captured:
            assert delete_group(group.uuid, now=now, by="ada") == servers
        return len(captured)

    few = queries(2)
    assert few <= 15
    assert queries(1_100) == few
    assert ServerStatusHistory.objects.count() == 1_102
    assert not Server.groups.through.objects.exists()


# --- the same words everywhere ---


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"failed_in_row": 101}, id="what the column's own check would say otherwise"),
        pytest.param({"priority": 2**31}, id="what the database cannot hold"),
        pytest.param({"from_time": dt.time(8), "to_time": dt.time(8)}, id="an empty window"),
        pytest.param({"cooldown_delay_from": 45, "cooldown_delay_to": 15}, id="an inverted delay"),
        pytest.param({"name": "a\tb", "to_time": dt.time(8, 0, 0, 5), "reset_rule": "never"}, id="three at once"),
    ],
)
def test_a_form_says_what_the_service_says(values: dict[str, Any]) -> None:
    group = Group(**FULL | values)
    with pytest.raises(ValidationError) as refused:
        group.full_clean()
    faults: list[FieldFault] = group_faults(group)
    assert refused.value.message_dict == {fault.field: [fault.detail] for fault in faults}


def test_a_form_says_itself_what_is_missing() -> None:
    with pytest.raises(ValidationError) as refused:
        Group().full_clean()
    assert {field: len(said) for field, said in refused.value.message_dict.items()} == {"name": 1, "priority": 1}
