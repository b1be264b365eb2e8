"""Hosts that go silent and come back are written down, on their servers too."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from otp_service.events.models import Event as LogEvent
from servers.host_watch import watch_hosts
from servers.hosts import mark_seen
from servers.models import Host, ServerStatusHistory
from servers.rules import Event, Status
from tests.factories import NOON, HostFactory, ServerFactory
from tests.racing import Racer

SECOND = dt.timedelta(seconds=1)


@pytest.mark.django_db
@pytest.mark.parametrize(("silent", "gone"), [(90, False), (91, True)])
def test_a_host_that_is_silent_for_ninety_seconds_is_offline(now: dt.datetime, silent: int, gone: bool) -> None:
    host = HostFactory.create(last_seen_at=now - silent * SECOND)
    server = ServerFactory.create(host=host)
    assert watch_hosts(now=now) == int(gone)
    host.refresh_from_db()
    assert host.offline_since == (now if gone else None)
    rows = [(row.server, row.event, row.note) for row in ServerStatusHistory.objects.all()]
    assert rows == ([(server, Event.HOST_ONLINE_CHANGED, f"host {host.number} offline")] if gone else [])


@pytest.mark.django_db
def test_it_is_written_once_and_its_return_too(now: dt.datetime) -> None:
    host = HostFactory.create(last_seen_at=now - 91 * SECOND, number=458)
    ServerFactory.create(host=host)
    ServerFactory.create(host=host, status=Status.NEED_CHECK)
    ServerFactory.create(host=host, status=Status.DELETED)
    ServerFactory.create()
    assert [watch_hosts(now=now), watch_hosts(now=now)] == [1, 0]
    back_at = now + 60 * SECOND
    Host.objects.update(last_seen_at=back_at)
    assert [watch_hosts(now=back_at), watch_hosts(now=back_at)] == [1, 0]
    host.refresh_from_db()
    assert host.offline_since is None
    rows = ServerStatusHistory.objects.order_by("id")
    assert [(row.at, row.data["old"], row.data["new"]) for row in rows] == [
        (now, {"host_online": True}, {"host_online": False}),
        (now, {"host_online": True}, {"host_online": False}),
        (back_at, {"host_online": False}, {"host_online": True}),
        (back_at, {"host_online": False}, {"host_online": True}),
    ]
    told = LogEvent.objects.order_by("id")
    assert [(event.type, event.data) for event in told] == [
        ("host.offline", {"host": 458}),
        ("host.online", {"host": 458}),
    ]
    assert told[0].subject_uuid == told[1].subject_uuid


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("heard_ago", "fields"),
    [
        pytest.param(None, {}, id="never seen"),
        pytest.param(3600, {"enabled": False}, id="disabled"),
        pytest.param(0, {"enabled": False, "offline_since": NOON}, id="disabled, and back"),
    ],
)
def test_nobody_misses_what_was_not_there(now: dt.datetime, heard_ago: int | None, fields: dict[str, object]) -> None:
    host = HostFactory.create(last_seen_at=None if heard_ago is None else now - heard_ago * SECOND, **fields)
    ServerFactory.create(host=host)
    assert watch_hosts(now=now) == 0
    assert not ServerStatusHistory.objects.exists()
    assert not LogEvent.objects.exists()


@pytest.mark.django_db
def test_a_host_with_many_servers_takes_the_queries_of_one_with_few(now: dt.datetime) -> None:
    def queries(servers: int) -> int:
        ServerFactory.create_batch(servers, host=HostFactory.create(last_seen_at=now - 91 * SECOND))
        with CaptureQueriesContext(connection) as captured:
            assert watch_hosts(now=now) == 1
        return len(captured)

    assert queries(1) == queries(40)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"last_seen_at": NOON - 91 * SECOND}, id="gone"),
        pytest.param({"last_seen_at": NOON, "offline_since": NOON - SECOND}, id="back"),
    ],
)
def test_two_watches_at_once_write_it_once(now: dt.datetime, fields: dict[str, dt.datetime]) -> None:
    ServerFactory.create(host=HostFactory.create(**fields))
    with transaction.atomic():
        assert watch_hosts(now=now) == 1
        second = Racer(lambda: watch_hosts(now=now))
        second.wait_until_blocked()
    assert second.result() == 0
    assert ServerStatusHistory.objects.count() == 1
    assert LogEvent.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_host_that_is_heard_of_while_the_watch_looks_has_not_gone(now: dt.datetime) -> None:
    host = ServerFactory.create(host=HostFactory.create(last_seen_at=now - 91 * SECOND)).host
    with transaction.atomic():
        mark_seen(host.pk, now=now)
        watch = Racer(lambda: watch_hosts(now=now))
        watch.wait_until_blocked()
    assert watch.result() == 0
    host.refresh_from_db()
    assert host.offline_since is None
