"""The sweep that puts storm brakes on and lets them go."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings
from structlog.testing import capture_logs

from otp_service.events.models import Event as LogEvent
from servers.deliverability_limits import record_failed_send
from servers.models import Host, Server, ServerStatusHistory, StormBrake
from servers.rules import Event
from servers.storm import watch_storms
from tests.draws import Lowest
from tests.factories import HostFactory, ServerFactory
from tests.racing import Racer

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)
SECOND = dt.timedelta(seconds=1)


def sent(host: Host, count: int, at: dt.datetime, *, hits: int = 0, region: str = "es") -> list[Server]:
    """Servers that sent, of which the first `hits` reached their threshold then."""
    servers = ServerFactory.create_batch(count, host=host, last_sent_at=at, region=region)
    for server in servers[:hits]:
        ServerStatusHistory.objects.create(
            server=server, event=Event.COOLDOWN_STARTED, at=at, data={"reason": "failed in row"}
        )
    return servers


def on(now: dt.datetime, *, share: float = 0.4, calm_since: dt.datetime | None = None) -> StormBrake:
    return StormBrake.objects.create(
        scope="host", name="39", mode="shadow", share=share, on_at=now - 60 * MINUTE, calm_since=calm_since
    )


def test_a_storm_puts_the_brake_on_once(now: dt.datetime) -> None:
    sent(HostFactory.create(number=39), 5, now, hits=2)
    assert watch_storms(now=now) == 1
    assert watch_storms(now=now + MINUTE) == 0
    brake = StormBrake.objects.get()
    assert (brake.scope, brake.name, brake.mode, brake.share) == ("host", "39", "shadow", 0.4)
    assert (brake.on_at, brake.calm_since, brake.off_at) == (now, None, None)


@pytest.mark.parametrize(("servers", "hits"), [(4, 4), (5, 1), (11, 3)], ids=["4 servers", "20 %", "27 %"])
def test_less_than_a_storm_puts_no_brake_on(now: dt.datetime, servers: int, hits: int) -> None:
    sent(HostFactory.create(), servers, now, hits=hits)
    assert watch_storms(now=now) == 0
    assert not StormBrake.objects.exists()


@pytest.mark.parametrize(("servers", "on_it"), [(19, False), (20, True)])
def test_a_region_is_added_up_over_its_hosts(now: dt.datetime, servers: int, on_it: bool) -> None:
    for number in range(servers):
        sent(HostFactory.create(), 1, now, hits=int(number < 6))
    watch_storms(now=now)
    found = [("region", "es", 0.3)] if on_it else []
    assert list(StormBrake.objects.values_list("scope", "name", "share")) == found


def test_a_host_is_added_up_over_its_regions(now: dt.datetime) -> None:
    host = HostFactory.create(number=39)
    sent(host, 3, now, hits=2)
    sent(host, 2, now, region="zp")
    watch_storms(now=now)
    assert list(StormBrake.objects.values_list("scope", "name", "share")) == [("host", "39", 0.4)]


@pytest.mark.parametrize(("ago", "brakes"), [(15 * MINUTE, 1), (15 * MINUTE + SECOND, 0)])
def test_what_happened_before_the_window_is_over(now: dt.datetime, ago: dt.timedelta, brakes: int) -> None:
    sent(HostFactory.create(), 5, now - ago, hits=5)
    assert watch_storms(now=now) == brakes


@pytest.mark.parametrize("hosts", [1, 10])
def test_the_number_of_queries_does_not_follow_the_number_of_scopes(now: dt.datetime, hosts: int) -> None:
    for _ in range(hosts):
        sent(HostFactory.create(), 4, now, hits=1)
    with CaptureQueriesContext(connection) as captured:
        watch_storms(now=now)
    # A savepoint and its release, the lock, the brakes that are on, who sent, who reached the threshold.
    assert len(captured) == 6


def test_a_brake_keeps_its_largest_share(now: dt.datetime) -> None:
    on(now, share=0.5)
    host = HostFactory.create(number=39)
    sent(host, 5, now, hits=3)
    watch_storms(now=now)
    assert StormBrake.objects.get().share == 0.6
    sent(host, 5, now)
    watch_storms(now=now)
    assert StormBrake.objects.get().share == 0.6


@pytest.mark.parametrize(("servers", "calm"), [(10, False), (11, True)], ids=["10 %", "9 %"])
def test_calm_begins_just_under_10_percent(now: dt.datetime, servers: int, calm: bool) -> None:
    on(now)
    sent(HostFactory.create(number=39), servers, now, hits=1)
    assert watch_storms(now=now) == 0
    brake = StormBrake.objects.get()
    assert (brake.calm_since, brake.off_at) == (now if calm else None, None)


def test_calm_ends_when_it_storms_again(now: dt.datetime) -> None:
    on(now, calm_since=now - 20 * MINUTE)
    sent(HostFactory.create(number=39), 10, now, hits=1)
    watch_storms(now=now)
    brake = StormBrake.objects.get()
    assert (brake.calm_since, brake.off_at) == (None, None)


@pytest.mark.parametrize(("calm", "off"), [(15 * MINUTE - SECOND, False), (15 * MINUTE, True)])
def test_the_brake_lets_go_after_15_calm_minutes(now: dt.datetime, calm: dt.timedelta, off: bool) -> None:
    on(now, calm_since=now - calm)
    assert watch_storms(now=now) == int(off)
    assert StormBrake.objects.get().off_at == (now if off else None)


def test_after_it_let_go_cooldowns_count_again(now: dt.datetime, settings: Settings) -> None:
    settings.STORM_BRAKE = "enforce"
    on(now, calm_since=now - 15 * MINUTE)
    host = HostFactory.create(number=39)
    during, after = ServerFactory.create_batch(2, host=host, failed_in_row=1)
    record_failed_send(during.pk, now=now - SECOND, reason="message_failed", rng=Lowest())
    watch_storms(now=now)
    record_failed_send(after.pk, now=now, reason="message_failed", rng=Lowest())
    assert [Server.objects.get(pk=server.pk).cooldown_times for server in (during, after)] == [0, 1]


def test_a_storm_that_comes_back_is_another_one(now: dt.datetime) -> None:
    StormBrake.objects.create(scope="host", name="39", mode="shadow", share=0.9, on_at=now, off_at=now)
    sent(HostFactory.create(number=39), 5, now, hits=2)
    watch_storms(now=now)
    assert sorted(StormBrake.objects.values_list("share", flat=True)) == [0.4, 0.9]


def test_each_change_is_an_event_of_the_fleet_and_an_alert(
    now: dt.datetime, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    sent(HostFactory.create(number=39), 5, now, hits=2)
    with capture_logs() as logs, django_capture_on_commit_callbacks(execute=True):
        watch_storms(now=now)
        watch_storms(now=now + 16 * MINUTE)
        watch_storms(now=now + 31 * MINUTE)
    told = list(LogEvent.objects.order_by("id"))
    assert [(event.type, event.at) for event in told] == [
        ("server.storm_on", now),
        ("server.storm_off", now + 31 * MINUTE),
    ]
    assert told[0].data == {"scope": "host", "name": "39", "share": 0.4, "mode": "shadow"}
    assert told[1].data == {"scope": "host", "name": "39", "share": 0.0, "mode": "shadow"}
    assert told[0].subject_uuid == told[1].subject_uuid
    assert [event.client_id for event in told] == [None, None]
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [
        ("storm_on", "warning"),
        ("storm_off", "warning"),
    ]


def test_switched_off_it_puts_none_on_and_lets_all_go(now: dt.datetime, settings: Settings) -> None:
    settings.STORM_BRAKE = "off"
    on(now)
    sent(HostFactory.create(), 5, now, hits=5)
    assert watch_storms(now=now) == 1
    assert StormBrake.objects.get().off_at == now


@pytest.mark.django_db(transaction=True)
def test_two_watchers_at_once_put_one_brake_on(now: dt.datetime) -> None:
    sent(HostFactory.create(), 5, now, hits=2)
    with transaction.atomic():
        assert watch_storms(now=now) == 1
        assert Racer(lambda: watch_storms(now=now)).result() == 0
    assert watch_storms(now=now) == 0
    assert StormBrake.objects.count() == LogEvent.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_failure_does_not_wait_for_a_watcher(now: dt.datetime, settings: Settings) -> None:
    settings.STORM_BRAKE = "enforce"
    server = sent(HostFactory.create(), 5, now, hits=2)[4]
    Server.objects.filter(pk=server.pk).update(failed_in_row=1)

    def fail() -> None:
        record_failed_send(server.pk, now=now, reason="message_failed", rng=Lowest())

    with transaction.atomic():
        watch_storms(now=now)
        Racer(fail).result()
    server.refresh_from_db()
    assert (server.cooldown, server.cooldown_times) == (True, 0)
