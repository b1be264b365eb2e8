"""Events are read, found and filtered in the admin, however many there are."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

from otp_service.events import admin
from otp_service.events.models import Event
from otp_service.web.admin import BoundedPaginator
from tests.factories import NOON

pytestmark = pytest.mark.django_db

EVENTS = "/admin/events/event/"


def event(event_type: str = "group.changed", **fields: Any) -> Event:
    return Event.objects.create(type=event_type, at=NOON, **{"subject_uuid": uuid.uuid4(), **fields})


def listed(browser: Browser, **query: str) -> list[Event]:
    return list(browser.get(EVENTS, query).context["cl"].result_list)


def types_offered(browser: Browser, **query: str) -> list[str]:
    (types,) = browser.get(EVENTS, query).context["cl"].filter_specs
    return [value for value, _ in types.lookup_choices]


def test_list_takes_as_many_queries_for_ten_rows_as_for_one(admin_client: Browser) -> None:
    counts = []
    for number in (1, 9):
        for _ in range(number):
            event(data={"by": "ada"})
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(EVENTS).status_code == 200
        counts.append(len(captured))
    assert counts[0] == counts[1]


def test_the_newest_come_first_with_who_did_it(admin_client: Browser) -> None:
    first, second = event(data={"by": "ada"}), event(client_id=4711)
    assert listed(admin_client) == [second, first]
    page = admin_client.get(EVENTS).content.decode()
    assert all(shown in page for shown in ("ada", "4711", "group.changed", str(first.subject_uuid)))


def test_nothing_counts_all_rows(admin_client: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedPaginator, "MOST", 2)
    for _ in range(3):
        event()
    with CaptureQueriesContext(connection) as captured:
        admin_client.get(EVENTS)
    counted = [query["sql"] for query in captured if "COUNT(" in query["sql"] and "events_event" in query["sql"]]
    assert counted
    assert all("LIMIT 2" in sql for sql in counted)


@pytest.mark.parametrize("name", ["subject_uuid", "uuid", "type"])
def test_is_found_by_the_whole(admin_client: Browser, name: str) -> None:
    wanted = event("message.revealed")
    event("message.revealed.not")
    assert listed(admin_client, q=f" {getattr(wanted, name)} ") == [wanted]


@pytest.mark.parametrize("term", ["message", "revealed", "%", "\\"])
def test_is_not_found_by_a_part(admin_client: Browser, term: str) -> None:
    event("message.revealed")
    assert listed(admin_client, q=term) == []


def test_a_subject_is_looked_up_by_indexes(admin_client: Browser) -> None:
    wanted = event()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO events_event (uuid, type, at, subject_uuid, data) "
            "SELECT gen_random_uuid(), type, at, gen_random_uuid(), data FROM events_event, generate_series(1, 20000)"
        )
        cursor.execute("ANALYZE events_event")
    with CaptureQueriesContext(connection) as captured:
        assert listed(admin_client, q=str(wanted.subject_uuid)) == [wanted]
    statements = [query["sql"] for query in captured if '"subject_uuid" =' in query["sql"]]
    assert len(statements) == 2  # counted, and read
    for sql in statements:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {sql}")
            plan = str(cursor.fetchall())
        assert "event_by_subject" in plan
        assert "Seq Scan" not in plan


@pytest.fixture
def rare(request: pytest.FixtureRequest) -> Event:
    """The oldest of 40,000 events, most of which belong to clients."""
    wanted = event("message.revealed")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO events_event (uuid, type, at, subject_uuid, client_id, data) SELECT gen_random_uuid(), "
            "CASE WHEN nth % 40 = 0 THEN 'group.changed' ELSE 'message.sent' END, at, gen_random_uuid(), "
            "CASE WHEN nth % 40 = 0 THEN NULL ELSE 7 END, data FROM events_event, generate_series(1, 40000) nth"
        )
        if request.param == "analysed":
            cursor.execute("ANALYZE events_event")
    return wanted


def plans(captured: CaptureQueriesContext) -> list[str]:
    """Of the queries for one type: how each is carried out."""
    statements = [query["sql"] for query in captured if '"type" =' in query["sql"]]
    told = []
    for sql in statements:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {sql}")
            told.append(str(cursor.fetchall()))
    return told


@pytest.mark.parametrize("rare", ["never analysed", "analysed"], indirect=True)
@pytest.mark.parametrize("asked", ["q", "type"])
def test_a_rare_type_of_the_fleet_is_looked_up_by_its_index(admin_client: Browser, rare: Event, asked: str) -> None:
    with CaptureQueriesContext(connection) as captured:
        assert listed(admin_client, **{asked: "message.revealed"}) == [rare]
    told = plans(captured)
    assert len(told) == 3  # whether there is one; counted, and read
    assert all("event_by_type" in plan and "Seq Scan" not in plan and "Sort" not in plan for plan in told), told


@pytest.mark.parametrize("rare", ["analysed"], indirect=True)
@pytest.mark.parametrize("asked", ["q", "type"])
def test_a_type_of_clients_is_looked_for_among_the_newest(
    admin_client: Browser, monkeypatch: pytest.MonkeyPatch, rare: Event, asked: str
) -> None:
    monkeypatch.setattr(admin, "_NEWEST_OF_CLIENTS", 3)
    lost = event("message.failed", client_id=7)
    found = [event("message.failed", client_id=7) for _ in range(3)]
    with CaptureQueriesContext(connection) as captured:
        assert listed(admin_client, **{asked: "message.failed"}) == found[::-1]
    assert lost.pk == found[0].pk - 1
    assert all("Seq Scan" not in plan for plan in plans(captured))


def test_a_number_in_a_reference_is_masked(admin_client: Browser) -> None:
    row = event("message.sent", client_id=7, data={"reference": "for +34612345678", "lane": "otp"})
    page = admin_client.get(f"{EVENTS}{row.pk}/change/").content.decode()
    assert "for +34 6•• ••• •78" in page
    assert "612345678" not in page


def test_is_filtered_by_type(admin_client: Browser) -> None:
    wanted, _ = event("host.offline"), event("host.online")
    assert types_offered(admin_client) == ["host.offline", "host.online"]
    assert listed(admin_client, type="host.offline") == [wanted]


def test_the_filter_looks_at_the_newest_only_and_keeps_what_was_chosen(
    admin_client: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "_NEWEST", 2)
    oldest = event("host.offline")
    for _ in range(2):
        event("host.online")
    assert types_offered(admin_client) == ["host.online"]
    assert types_offered(admin_client, type="host.offline") == ["host.offline", "host.online"]
    assert listed(admin_client, type="host.offline") == [oldest]


@pytest.mark.parametrize("asked", ["data__by", "client_id", "uuid", "nonsense"])
def test_an_address_asks_about_nothing_but_the_filter(admin_client: Browser, asked: str) -> None:
    assert admin_client.get(EVENTS, {asked: "x"}).status_code == 400


def test_the_page_shows_the_data_row_by_row_and_runs_none_of_it(admin_client: Browser) -> None:
    row = event(data={"new": {"priority": 2}, "by": "<b>ada</b>"})
    page = admin_client.get(f"{EVENTS}{row.pk}/change/").content.decode()
    assert "&quot;new&quot;: {\n    &quot;priority&quot;: 2\n  }" in page
    assert "<b>ada</b>" not in page


@pytest.mark.parametrize("action", ["add/", "{}/change/", "{}/delete/"])
def test_nothing_is_written(admin_client: Browser, action: str) -> None:
    row = event()
    assert admin_client.post(EVENTS + action.format(row.pk), {"post": "yes"}).status_code == 403
    assert list(Event.objects.values_list("pk", "type")) == [(row.pk, row.type)]
