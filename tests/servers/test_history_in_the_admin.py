"""What the service itself writes about servers, in the admin: found, read, and never edited."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from servers.models import ServerStatusHistory, StormBrake
from servers.rules import Event
from tests.factories import InternalSendFactory, ServerFactory

pytestmark = pytest.mark.django_db

PAGE = "/admin/servers/server/"


@pytest.mark.parametrize("page", ["serverstatushistory/add", "internalsend/add", "stormbrake/add"])
def test_what_has_no_form_cannot_be_added(admin_client: Client, page: str) -> None:
    assert admin_client.get(f"/admin/servers/{page}/").status_code == 403


def test_messages_between_our_servers_and_storms_can_only_be_read(admin_client: Client, now: dt.datetime) -> None:
    send = InternalSendFactory.create()
    storm = StormBrake.objects.create(scope="host", name="1", mode="shadow", share=0.5, on_at=now)
    for page in (f"internalsend/{send.pk}", f"stormbrake/{storm.pk}"):
        assert admin_client.get(f"/admin/servers/{page}/change/").status_code == 200
        assert admin_client.post(f"/admin/servers/{page}/change/", {"state": "sent"}).status_code == 403
        assert admin_client.post(f"/admin/servers/{page}/delete/", {"post": "yes"}).status_code == 403


def test_history_is_read_only_and_nothing_is_deleted(admin_client: Client, now: dt.datetime) -> None:
    server = ServerFactory.create()
    row = ServerStatusHistory.objects.create(server=server, event=Event.SEND_FAILED, at=now, data={"figure": 7})
    shown = admin_client.get(f"/admin/servers/serverstatushistory/{row.pk}/change/")
    assert "figure" in shown.content.decode()
    assert admin_client.post(f"/admin/servers/serverstatushistory/{row.pk}/change/", {"note": "x"}).status_code == 403
    assert admin_client.post(f"{PAGE}{server.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin_client.post(f"/admin/servers/serverstatushistory/{row.pk}/delete/", {"post": "yes"}).status_code == 403


@pytest.mark.parametrize("page", ["serverstatushistory", "internalsend"])
def test_tables_that_grow_without_end_are_neither_counted_nor_sorted(admin_client: Client, page: str) -> None:
    InternalSendFactory.create()
    with CaptureQueriesContext(connection) as captured:
        admin_client.get(f"/admin/servers/{page}/")
    on_it = [query["sql"] for query in captured if f"servers_{page}" in query["sql"]]
    assert on_it
    assert not [sql for sql in on_it if "COUNT(" in sql or "MIN(" in sql]
    if page == "serverstatushistory":  # there is no index by time alone
        assert all('"at" DESC' not in sql for sql in on_it)


def test_history_is_shown_in_pages_the_newest_first_with_links_to_servers(
    admin_client: Client, now: dt.datetime
) -> None:
    server = ServerFactory.create()
    rows = ServerStatusHistory.objects.bulk_create(
        ServerStatusHistory(server=server, event=Event.SEND_FAILED, at=now + dt.timedelta(seconds=n))
        for n in range(150)
    )
    first, second = (admin_client.get(f"/admin/servers/serverstatushistory/?p={page}") for page in (1, 2))
    assert [list(page.context["cl"].result_list) for page in (first, second)] == [rows[:49:-1], rows[49::-1]]
    assert f'href="{PAGE}{server.pk}/change/"' in first.content.decode()
    assert "2026-09-01 12:02:29" in first.content.decode()


@pytest.mark.parametrize(
    "query", [{"event__exact": "106"}, {"q": "228"}, {"q": "+34600000228"}, {"at__gte": "2026-09-01 11:00:00+00:00"}]
)
def test_history_is_found_by_event_time_and_server(
    admin_client: Client, now: dt.datetime, query: dict[str, str]
) -> None:
    wanted, other = ServerFactory.create(unit=228), ServerFactory.create(unit=229)
    row = ServerStatusHistory.objects.create(server=wanted, event=Event.NEED_CHECK, at=now)
    ServerStatusHistory.objects.create(server=other, event=Event.SEND_FAILED, at=now - dt.timedelta(days=9))
    assert list(admin_client.get("/admin/servers/serverstatushistory/", query).context["cl"].result_list) == [row]
