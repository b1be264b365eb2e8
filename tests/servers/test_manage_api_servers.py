"""Servers, their histories and their hosts through the manage API."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from servers import outlook
from servers.models import Host, Server, ServerStatusHistory
from servers.rules import EVENT_LABELS, Event
from tests.factories import NOON, GroupFactory, HostFactory, ServerFactory
from tests.servers.manage_api import ManageApi, body, fields, problem

MINUTE = dt.timedelta(minutes=1)


@pytest.fixture
def manage(db: None, now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> ManageApi:
    return ManageApi(monkeypatch, now)


def listed(manage: ManageApi, **query: str) -> list[str]:
    """The names of the servers on a page."""
    return [row["name"] for row in body(manage.get("list/", **query))["results"]]


# --- the list ---------------------------------------------------------------------------------------------


def test_row_tells_how_a_server_is(manage: ManageApi) -> None:
    group = GroupFactory.create(name="night")
    server = ServerFactory.create(in_cooldown=True, host__number=7, unit=228, name="shelf 3", handle="+34600000001")
    server.groups.add(group)
    (row,) = body(manage.get("list/"))["results"]
    assert row == {
        "uuid": str(server.uuid),
        "region": "es",
        "unit": 228,
        "host": 7,
        "name": "shelf 3",
        "handle": "+34600000001",
        "status": "active",
        "signed_in": True,
        "cooldown": True,
        "cooldown_times": 1,
        "cooldown_end_date": "2026-09-01T12:00:00Z",
        "failed_in_row": 2,
        "preheating": False,
        "next_send_date": "2026-09-01T11:59:00Z",
        "groups": [{"uuid": str(group.uuid), "name": "night"}],
    }


def test_servers_are_listed_newest_first_in_pages(manage: ManageApi) -> None:
    for name in "abc":
        ServerFactory.create(name=name)
    first = body(manage.get("list/", limit="2"))
    assert [row["name"] for row in first["results"]] == ["c", "b"]
    ServerFactory.create(name="new")
    assert listed(manage, limit="2", cursor=first["next_cursor"]) == ["a"]


def test_page_holds_a_hundred_unless_told_otherwise(manage: ManageApi) -> None:
    host = HostFactory.create()
    Server.objects.bulk_create(ServerFactory.build(host=host, unit=n) for n in range(501))
    assert len(listed(manage)) == 100
    assert len(listed(manage, limit="500")) == 500


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["no", "yes"]),
        ({"region": "pt"}, ["yes"]),
        ({"region": "p"}, []),
        ({"host": "7"}, ["yes"]),
        ({"host": "8"}, []),
        ({"status": "need_check"}, ["yes"]),
        ({"status": "deleted"}, []),
        ({"cooldown": "true"}, ["no"]),
        ({"cooldown": "false"}, ["yes"]),
        ({"preheating": "true"}, ["yes"]),
        ({"preheating": "false"}, ["no"]),
        ({"group": "3f0b4a52-6f6a-4c53-8d6e-1f2f3a4b5c6d"}, ["yes"]),
        ({"group": "3F0B4A52-6F6A-4C53-8D6E-1F2F3A4B5C6D", "region": "pt", "cooldown": "false"}, ["yes"]),
        ({"group": str(uuid.UUID(int=0))}, []),
        ({"region": "pt", "cooldown": "true"}, []),
    ],
    ids=str,
)
def test_filters(manage: ManageApi, query: dict[str, str], found: list[str]) -> None:
    server = ServerFactory.create(
        name="yes", region="pt", host__number=7, status="need_check", preheating=True, preheat_started_at=NOON
    )
    server.groups.add(GroupFactory.create(uuid="3f0b4a52-6f6a-4c53-8d6e-1f2f3a4b5c6d"), GroupFactory.create())
    ServerFactory.create(name="no", host__number=9, in_cooldown=True)
    assert listed(manage, **query) == found


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"region": ""}, "blank"),
        ({"region": "a" * 9}, "max_length"),
        ({"region": "a\x00"}, "null_characters_not_allowed"),
        ({"host": "x"}, "invalid"),
        ({"host": "-1"}, "invalid"),
        ({"host": "\u0667"}, "invalid"),
        ({"host": str(2**31)}, "max_value"),
        ({"status": "Active"}, "invalid_choice"),
        ({"group": "night"}, "invalid"),
        ({"cooldown": "1"}, "invalid"),
        ({"cooldown": ""}, "invalid"),
        ({"preheating": "True"}, "invalid"),
        ({"limit": "501"}, "max_value"),
        ({"cursor": "x"}, "bad_cursor"),
        ({"unit": "1"}, "unknown_field"),
    ],
    ids=str,
)
def test_list_names_the_parameter_that_is_wrong(manage: ManageApi, query: dict[str, str], expected: str) -> None:
    assert fields(manage.get("list/", **query)) == dict.fromkeys(query, expected)


@pytest.mark.parametrize("number", [1, 20])
def test_list_takes_two_queries_whatever_the_number_of_servers(manage: ManageApi, number: int) -> None:
    group = GroupFactory.create()
    for _ in range(number):
        ServerFactory.create().groups.add(group, GroupFactory.create())
    with CaptureQueriesContext(connection) as queries:
        told = body(manage.get("list/"))["results"]
    assert [len(row["groups"]) for row in told] == [2] * number
    assert len(queries) == 2  # the page; its groups


# --- one server -------------------------------------------------------------------------------------------


def test_detail_is_the_row_and_the_rest_of_its_health(manage: ManageApi, now: dt.datetime) -> None:
    server = ServerFactory.create(wants_warm_up=True, last_sent_at=NOON - MINUTE, sends_today=3, sends_day=NOON.date())
    server.groups.add(GroupFactory.create(name="night"))
    told = body(manage.get(f"{server.uuid}/"))
    (row,) = body(manage.get("list/"))["results"]
    assert told.items() >= row.items()
    expected = outlook.of(server, now=now)
    assert (
        told.items()
        >= {
            "why_not": "cooldown",
            "state": expected.state,
            "group_in_force": expected.group,
            "next": list(expected.next),
            "cooldown_start_date": "2026-09-01T11:00:00Z",
            "cooldown_reason": "failed in row",
            "cooldown_warmup_at": "2026-09-01T11:30:00Z",
            "cooldown_warmup_delivered": False,
            "last_sent_at": "2026-09-01T11:59:00Z",
            "sends_day": "2026-09-01",
            "sends_today": 3,
            "released_at": None,
        }.items()
    )
    assert "night" in told["group_in_force"]
    assert told["next"]


@pytest.mark.parametrize(
    ("how", "why_not"),
    [
        ({}, None),
        ({"status": "lost"}, "lost"),
        ({"signed_in": False}, "signed_out"),
        ({"host__enabled": False}, "host_disabled"),
        ({"host__last_seen_at": None}, "host_offline"),
        ({"next_send_date": NOON + MINUTE}, "resting"),
    ],
    ids=str,
)
def test_detail_says_why_a_server_may_not_send(manage: ManageApi, how: dict[str, Any], why_not: str | None) -> None:
    server = ServerFactory.create(**how)
    assert body(manage.get(f"{server.uuid}/"))["why_not"] == why_not


def test_detail_is_of_the_moment_of_the_call(manage: ManageApi) -> None:
    server = ServerFactory.create(next_send_date=NOON + MINUTE)
    manage.at(NOON + MINUTE)
    assert body(manage.get(f"{server.uuid}/"))["why_not"] is None


@pytest.mark.parametrize("number", [1, 20])
def test_detail_takes_as_many_queries_whatever_the_number_of_groups_and_events(manage: ManageApi, number: int) -> None:
    server = ServerFactory.create()
    server.groups.set(GroupFactory.create() for _ in range(number))
    happened(server, *[Event.SEND_FAILED] * number)
    with CaptureQueriesContext(connection) as queries:
        assert len(body(manage.get(f"{server.uuid}/"))["groups"]) == number
    assert len(queries) == 4  # the server; its groups; why it may not send; its deliveries


@pytest.mark.parametrize("path", ["", "history/"])
def test_server_that_there_is_not_is_not_found(manage: ManageApi, path: str) -> None:
    ServerFactory.create()
    assert problem(manage.get(f"{uuid.uuid4()}/{path}"), 404)["code"] == "not_found"


def test_address_may_hold_the_uuid_in_upper_case(manage: ManageApi) -> None:
    server = ServerFactory.create()
    assert body(manage.get(f"{str(server.uuid).upper()}/"))["uuid"] == str(server.uuid)


# --- its history ------------------------------------------------------------------------------------------


def happened(server: Server, *events: Event) -> None:
    for minutes, event in enumerate(events):
        ServerStatusHistory.objects.create(
            server=server, event=event, at=NOON + minutes * MINUTE, note="why", data={"by": "a person"}
        )


def test_history_is_told_newest_first_with_what_people_call_it(manage: ManageApi) -> None:
    server = ServerFactory.create()
    happened(server, Event.SEND_FAILED, Event.COOLDOWN_STARTED)
    happened(ServerFactory.create(), Event.LOST)
    told = body(manage.get(f"{server.uuid}/history/"))
    assert told == {
        "results": [
            {
                "event": event,
                "label": EVENT_LABELS[event],
                "at": at,
                "note": "why",
                "data": {"by": "a person"},
            }
            for event, at in (
                (Event.COOLDOWN_STARTED, "2026-09-01T12:01:00Z"),
                (Event.SEND_FAILED, "2026-09-01T12:00:00Z"),
            )
        ],
        "next_cursor": None,
    }


def test_history_comes_in_pages_and_of_one_kind(manage: ManageApi) -> None:
    server = ServerFactory.create()
    happened(server, *[Event.SEND_FAILED, Event.WARMUP_SENT] * 3)
    path = f"{server.uuid}/history/"
    first = body(manage.get(path, event="109", limit="2"))
    second = body(manage.get(path, event="109", cursor=first["next_cursor"]))
    assert [len(page["results"]) for page in (first, second)] == [2, 1]
    assert {row["event"] for page in (first, second) for row in page["results"]} == {109}
    assert body(manage.get(path, event="118"))["results"] == []


@pytest.mark.parametrize("number", [1, 120])
def test_history_takes_two_queries_whatever_its_length(manage: ManageApi, number: int) -> None:
    server = ServerFactory.create()
    happened(server, *[Event.SEND_FAILED] * number)
    with CaptureQueriesContext(connection) as queries:
        assert len(body(manage.get(f"{server.uuid}/history/"))["results"]) == min(number, 100)
    assert len(queries) == 2  # the server; the page


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"event": "103"}, "invalid_choice"),
        ({"event": "send_failed"}, "invalid"),
        ({"event": "\u0661\u0660\u0669"}, "invalid"),
        ({"event": "9" * 5_000}, "max_string_length"),
        ({"limit": "0"}, "min_value"),
        ({"since": "2026-09-01"}, "unknown_field"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_history_names_the_parameter_that_is_wrong(manage: ManageApi, query: dict[str, str], expected: str) -> None:
    server = ServerFactory.create()
    assert fields(manage.get(f"{server.uuid}/history/", **query)) == dict.fromkeys(query, expected)


# --- hosts ------------------------------------------------------------------------------------------------


def test_hosts_are_told_without_their_secrets(manage: ManageApi) -> None:
    host = HostFactory.create(
        number=7,
        name="shelf",
        secret="whsec_now",
        previous_secret="whsec_before",
        previous_secret_until=NOON + MINUTE,
        offline_since=NOON - MINUTE,
    )
    ServerFactory.create(host=host)
    ServerFactory.create(host=host)
    answer = manage.get("hosts/")
    assert body(answer) == {
        "results": [
            {
                "number": 7,
                "name": "shelf",
                "base_url": host.base_url,
                "protocol": "native",
                "enabled": True,
                "online": True,
                "last_seen_at": "2026-09-01T12:00:00Z",
                "offline_since": "2026-09-01T11:59:00Z",
                "servers": 2,
            }
        ],
        "next_cursor": None,
    }
    assert b"secret" not in answer.content
    assert b"whsec" not in answer.content


@pytest.mark.parametrize(
    ("how", "online"),
    [
        ({}, True),
        ({"last_seen_at": NOON - dt.timedelta(seconds=90)}, True),
        ({"last_seen_at": NOON - dt.timedelta(seconds=90, microseconds=1)}, False),
        ({"last_seen_at": None}, False),
        ({"enabled": False}, False),
    ],
    ids=str,
)
def test_host_is_online_while_it_is_enabled_and_was_heard_of_lately(
    manage: ManageApi, how: dict[str, Any], online: bool
) -> None:
    HostFactory.create(**how)
    assert body(manage.get("hosts/"))["results"][0]["online"] is online


@pytest.mark.parametrize("number", [1, 10])
def test_hosts_take_one_query_whatever_their_number(manage: ManageApi, number: int) -> None:
    for _ in range(number):
        ServerFactory.create()
    with CaptureQueriesContext(connection) as queries:
        told = body(manage.get("hosts/"))["results"]
    assert [row["servers"] for row in told] == [1] * number
    assert len(queries) == 1


def test_hosts_come_in_pages(manage: ManageApi) -> None:
    Host.objects.bulk_create(HostFactory.build(number=n) for n in range(101))
    first = body(manage.get("hosts/"))
    assert len(first["results"]) == 100
    assert len(body(manage.get("hosts/", cursor=first["next_cursor"]))["results"]) == 1
    assert fields(manage.get("hosts/", limit="501", online="true")) == {"limit": "max_value", "online": "unknown_field"}


def test_no_answer_holds_a_secret_of_a_host(manage: ManageApi) -> None:
    server = ServerFactory.create(host__secret="whsec_now")
    for path in ("list/", f"{server.uuid}/", "hosts/"):
        answer = manage.get(path)
        assert "whsec_now" not in json.dumps(body(answer))
