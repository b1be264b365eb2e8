"""The timetable names what there is; its tasks may run twice; Celery runs with the settings that it needs."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django_celery_beat.models import PeriodicTask
from django_celery_beat.schedulers import ModelEntry

from otp_service.celery import app
from otp_service.core.clock import utc_now
from otp_service.events.models import Event as Told
from otp_service.messages.models import IdempotencyKey
from otp_service.routes import reconcile
from otp_service.routes.breakers import subject_of
from otp_service.routes.models import OrphanReceipt
from scheduler.beat import TIMETABLE
from servers.models import Host, InternalSend, Server, ServerStatusHistory, StormBrake
from servers.rules import FAILED_IN_ROW_REASON, Event
from tests.factories import ClientFactory, HostFactory, InternalSendFactory, RouteFactory, ServerFactory
from webhooks.inbound.models import RawCall, RelayEvent

DAY = timedelta(days=1)
ENTRIES = [pytest.param(entry, id=name) for name, entry in TIMETABLE.items()]


def task_of(entry: dict[str, Any]) -> Any:
    """The registered task that an entry names."""
    app.loader.import_default_modules()
    return app.tasks[entry["task"]]


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_names_a_task_that_workers_know(entry: dict[str, Any]) -> None:
    assert task_of(entry).name == entry["task"]


@pytest.mark.django_db
@pytest.mark.parametrize("name", TIMETABLE)
def test_a_tick_that_nobody_took_ends_before_the_next_one(name: str) -> None:
    """As beat reads it back from its table, which is what it sends."""
    entry = ModelEntry.from_entry(name, app=app, **TIMETABLE[name])
    read = ModelEntry(PeriodicTask.objects.get(name=name), app=app)
    assert 0 < read.options["expires"] < entry.schedule.run_every.total_seconds()


def test_beat_follows_the_timetable() -> None:
    assert current_app.conf.beat_schedule == app.conf.beat_schedule == TIMETABLE


def test_a_socket_to_the_broker_that_went_dead_is_noticed() -> None:
    options = app.conf.broker_transport_options
    assert 0 < options["socket_connect_timeout"] <= 5
    assert 0 < options["socket_timeout"] <= 10
    assert 0 < options["health_check_interval"] <= 30
    assert options["socket_keepalive"] is True
    assert options["retry_on_timeout"] is True
    assert options["global_keyprefix"]


def test_results_are_not_kept_and_times_are_utc() -> None:
    assert app.conf.task_ignore_result is True
    assert (app.conf.enable_utc, str(app.conf.timezone)) == (True, "UTC")
    assert [name for name in app.tasks if name.startswith("scheduler.") and not app.tasks[name].ignore_result] == []


def test_a_broker_that_is_away_is_waited_for() -> None:
    assert app.conf.broker_connection_retry_on_startup is True
    assert app.conf.broker_connection_max_retries is None


def test_a_task_of_a_worker_that_dies_is_not_taken_by_another_while_it_may_still_run() -> None:
    assert app.conf.task_acks_late is True
    assert app.conf.task_time_limit < app.conf.broker_transport_options["visibility_timeout"]


def due_server() -> Callable[[], bool]:
    """A server whose cooldown is over; says whether it was let out, once."""
    now = utc_now()
    server = ServerFactory.create(
        in_cooldown=True, cooldown_start_date=now - DAY, cooldown_end_date=now - timedelta(seconds=1)
    )

    def is_done() -> bool:
        released = ServerStatusHistory.objects.filter(server=server, event=Event.COOLDOWN_FINISHED)
        return not Server.objects.get(pk=server.pk).cooldown and released.count() == 1

    return is_done


def host_away() -> Callable[[], bool]:
    """A host that nobody answers for; says whether it is as it was."""
    host = HostFactory.create(base_url="http://127.0.0.1:1", last_seen_at=None)
    return lambda: Host.objects.get(pk=host.pk).last_seen_at is None


def old_and_new_rows() -> Callable[[], bool]:
    """Rows to forget, and one of each kind to keep; says whether just those are left."""
    now, host, client = utc_now(), HostFactory.create(), ClientFactory.create()
    for age in (DAY / 24, 400 * DAY):
        at = now - age
        RawCall.objects.create(host=host, received_at=at, body="{}")
        RelayEvent.objects.create(host=host, event_id=uuid.uuid4(), type="sent", received_at=at)
        OrphanReceipt.objects.create(scope=str(host.pk), provider_message_id=str(age), receipt={}, at=at)
        IdempotencyKey.objects.create(client=client, key=str(age), fingerprint=b"f" * 32, response={}, created_at=at)
    kinds = (RawCall, RelayEvent, OrphanReceipt, IdempotencyKey)
    return lambda: [kind.objects.count() for kind in kinds] == [1, 1, 1, 1]


def server_in_cooldown_without_a_receiver() -> Callable[[], bool]:
    """A warm-up that there is nobody for; says whether it is still to be sent."""
    now = utc_now()
    server = ServerFactory.create(
        wants_warm_up=True,
        cooldown_start_date=now - DAY,
        cooldown_end_date=now + DAY / 48,
        cooldown_warmup_at=now - DAY / 24,
        host=HostFactory.create(last_seen_at=now),
    )
    return lambda: (
        Server.objects.get(pk=server.pk).cooldown_warmup_sent_date is None and not InternalSend.objects.exists()
    )


def preheat_that_is_over() -> Callable[[], bool]:
    """A preheat that proved nothing in its five days; says whether its last day is repeated, once."""
    server = ServerFactory.create(preheating=True, preheat_started_at=utc_now() - 5 * DAY)
    return lambda: Server.objects.get(pk=server.pk).preheat_repeats == 1


def silent_send() -> Callable[[], bool]:
    """An internal send whose process died, at a host that nobody answers for; says whether it is unknown."""
    now = utc_now()
    send = InternalSendFactory.create(state="submitting", created_at=now - DAY / 48, check_at=now - DAY / 96)
    return lambda: InternalSend.objects.get(pk=send.pk).state == "unknown"


def server_that_fails_too_often() -> Callable[[], bool]:
    """One that failed all of its messages of today; says whether it stays in rotation, the limit being off."""
    server = ServerFactory.create()
    failed = {"server": server, "event": Event.SEND_FAILED, "at": utc_now()}
    ServerStatusHistory.objects.bulk_create(ServerStatusHistory(**failed) for _ in range(30))
    return lambda: not Server.objects.get(pk=server.pk).cooldown


def host_in_a_storm() -> Callable[[], bool]:
    """A host all of whose servers reached their threshold; says whether its brake is on, once."""
    now = utc_now()
    servers = ServerFactory.create_batch(5, host=HostFactory.create(), last_sent_at=now)
    started = {"event": Event.COOLDOWN_STARTED, "at": now, "data": {"reason": FAILED_IN_ROW_REASON}}
    ServerStatusHistory.objects.bulk_create(ServerStatusHistory(server=server, **started) for server in servers)
    return lambda: StormBrake.objects.filter(scope="host", off_at=None).count() == 1


def silent_host() -> Callable[[], bool]:
    """A host that was last heard of an hour ago; says whether that is written down, once."""
    server = ServerFactory.create(host=HostFactory.create(last_seen_at=utc_now() - DAY / 24))
    return lambda: [row.event for row in server.history.all()] == [Event.HOST_ONLINE_CHANGED]


def server_signed_out_for_long() -> Callable[[], bool]:
    """A server that signed out two days ago; says whether it is lost, once."""
    server = ServerFactory.create(signed_in=False, signed_out_at=utc_now() - 2 * DAY)
    return lambda: [row.event for row in server.history.all()] == [Event.LOST]


def route_that_can_be_asked() -> Callable[[], bool]:
    """One without attempts; says whether it was told of once, if the night has begun."""
    route = RouteFactory.create(name="sms:asked", kind="twilio", can_query=True)
    nights = int(utc_now().hour >= reconcile.NIGHT_BEGINS)
    told = Told.objects.filter(type=reconcile.RECONCILED, subject_uuid=subject_of(route.name))
    return lambda: told.count() == nights


WORK = {
    "check_blocking_servers": server_that_fails_too_often,
    "watch_storms": host_in_a_storm,
    "watch_hosts": silent_host,
    "lose_signed_out": server_signed_out_for_long,
    "check_cooldown_servers": due_server,
    "preheat_otp_sender_names": server_in_cooldown_without_a_receiver,
    "send_preheats": preheat_that_is_over,
    "ask_about_internal_sends": silent_send,
    "check_hosts": host_away,
    "reconcile_routes": route_that_can_be_asked,
    "remove_old_rows": old_and_new_rows,
}


@pytest.mark.django_db
@pytest.mark.parametrize("name", TIMETABLE)
def test_a_task_does_its_work_and_may_run_again_at_once(name: str) -> None:
    is_done = WORK[name]()
    task = task_of(TIMETABLE[name])
    assert task() is None
    assert is_done()
    assert task() is None
    assert is_done()
