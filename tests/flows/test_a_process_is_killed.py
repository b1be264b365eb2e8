"""kill -9 of any process in the middle of its work: every message ends delivered, none twice, no sweep is lost."""

from __future__ import annotations

import collections
import http.client
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from otp_service.celery import app
from otp_service.core.clock import utc_now
from otp_service.embedded import celery_broker_url
from otp_service.messages import api_keys
from otp_service.messages.models import Attempt, Message
from otp_service.messages.rules import AttemptState
from scheduler.tasks import check_cooldown_servers
from servers.models import Server, ServerStatusHistory
from servers.rules import Event
from tests.deadline import eventually
from tests.factories import ClientFactory, HostFactory, ServerFactory
from tests.flows.conftest import Api, Fleet
from tests.flows.processes import Process, Processes
from tests.relay_fixture import RelayThread

MESSAGES = 200
NUMBERS = [f"+346{10_000_000 + n}" for n in range(MESSAGES)]
#: Calls that last so long are in flight at any moment.
SLOW_S = 1.0
#: Over the lease: where the dispatcher dies, these are rescued before their host has anything to report.
VERY_SLOW_S = 18.0
DUE_SERVERS = 30


@pytest.fixture
def service(quiet_end: None, tmp_path: Path) -> Iterator[Processes]:
    # The sweep's next turn comes a second after the one that dies with its worker, not minutes after it.
    sweeps = {"COOLDOWN_SWEEP_S": "1", "COOLDOWN_SWEEP_JITTER_S": "0"}
    health = {"SEND_INTERVAL_MINUTES": "0.001-0.002", **sweeps}
    with Processes(tmp_path, LEASE_S="13", RECEIPT_WAIT_S="3", **health) as processes:
        processes.start()
        yield processes


@pytest.fixture
def fleet(service: Processes, relay: RelayThread) -> Fleet:
    return Fleet(relay, service.base)


@pytest.fixture
def api(service: Processes) -> Api:
    _, key = api_keys.create(ClientFactory.create(), [api_keys.Scope.MESSAGES], now=utc_now(), expires_at=None)
    return Api(service.base, key)


def post_until_accepted(api: Api, number: str) -> str:
    """As a careful client does it: the same key until there is an answer."""

    def accepted() -> str | None:
        try:
            answer = api.post(
                {"to": number, "text": "Your code is 123456", "lane": "otp"}, **{"Idempotency-Key": number}
            )
        except (OSError, http.client.HTTPException):  # the latter: killed in the middle of its answer
            return None
        return str(answer.body["id"]) if answer.status == 202 else None

    found = eventually(accepted, within_s=30)
    assert found is not None
    return found


def kill_in_traffic(
    process: Process, fleet: Fleet, api: Api, *, when: Callable[[], bool], dead: Callable[[], None] = lambda: None
) -> None:
    """Kill `process` among all messages as soon as `when` holds, do `dead`, start it again; all were accepted."""
    with ThreadPoolExecutor(8) as pool:
        posting = [pool.submit(post_until_accepted, api, number) for number in NUMBERS]
        eventually(lambda: len(fleet.relay.sends()) >= MESSAGES // 4 and when(), within_s=30)
        process.kill()
        assert len(fleet.relay.sends()) < MESSAGES, "killed too late to prove anything"
        dead()
        process.start()
        ids = {future.result() for future in posting}
    assert len(ids) == MESSAGES


def check_all_delivered_once(relay: RelayThread) -> None:
    eventually(lambda: not Message.objects.filter(finished_at__isnull=True).exists(), within_s=60)
    assert collections.Counter(Message.objects.values_list("status", flat=True)) == {"delivered": MESSAGES}
    assert collections.Counter(send.to for send in relay.sends()) == dict.fromkeys(NUMBERS, 1)


def test_killing_the_web_process_loses_nothing_and_sends_nothing_twice(
    service: Processes, fleet: Fleet, api: Api
) -> None:
    fleet.build(hosts=4, servers_per_host=15)
    kill_in_traffic(service.web, fleet, api, when=lambda: True)
    check_all_delivered_once(fleet.relay)


def test_killing_a_dispatcher_with_calls_in_flight_loses_nothing_and_sends_nothing_twice(
    service: Processes, fleet: Fleet, api: Api
) -> None:
    servers = fleet.build(hosts=4, servers_per_host=15)
    very_slow = servers[:4]
    for server in servers:
        fleet.behave(server, "slow", seconds=VERY_SLOW_S if server in very_slow else SLOW_S)
    in_flight = Attempt.objects.filter(state=AttemptState.SUBMITTING)
    caught: list[int] = []

    def look() -> None:
        caught.extend(in_flight.values_list("id", flat=True))
        for server in very_slow:
            fleet.behave(server, "healthy")  # for what comes from now on

    kill_in_traffic(
        service.dispatcher, fleet, api, when=lambda: in_flight.filter(server__in=very_slow).exists(), dead=look
    )
    assert caught
    check_all_delivered_once(fleet.relay)
    # Asked about without an answer to the submission: only a rescue leads there.
    assert Attempt.objects.filter(id__in=caught, submission="", checks_made__gt=0).exists()


def test_killing_a_worker_at_work_loses_no_sweep_and_no_message(service: Processes, fleet: Fleet, api: Api) -> None:
    fleet.build(hosts=4, servers_per_host=15)
    due = due_servers()
    with held_up_sweeps() as one_is_held_up:
        queue_sweeps(service.redis_url)
        kill_in_traffic(service.worker, fleet, api, when=one_is_held_up)
        assert Server.objects.filter(id__in=due, cooldown=True).count() == DUE_SERVERS
    eventually(lambda: not Server.objects.filter(id__in=due, cooldown=True).exists(), within_s=30)
    released = ServerStatusHistory.objects.filter(event=Event.COOLDOWN_FINISHED)
    assert sorted(released.values_list("server", flat=True)) == due
    check_all_delivered_once(fleet.relay)


def due_servers() -> list[int]:
    """Servers whose cooldown is over; far from the traffic."""
    now, host = utc_now(), HostFactory.create(number=99)
    dates = {"cooldown_start_date": now - timedelta(hours=1), "cooldown_end_date": now - timedelta(minutes=1)}
    return sorted(ServerFactory.create(host=host, in_cooldown=True, **dates).pk for _ in range(DUE_SERVERS))


def queue_sweeps(redis_url: str) -> None:
    """Queue the task, as beat does, with the broker of the processes.

    The one that a worker takes to its grave comes back after the broker's time-out; the others are still queued.
    """
    with app.connection_for_write(celery_broker_url(redis_url)) as broker:
        for _ in range(3):
            app.send_task(check_cooldown_servers.name, connection=broker)


@contextmanager
def held_up_sweeps() -> Iterator[Callable[[], bool]]:
    """Hold up every sweep in the middle of its transaction; says whether one is held up now."""
    history = ServerStatusHistory._meta.db_table
    with psycopg.connect(**_plain_parameters()) as holder:
        holder.execute(f"LOCK TABLE {history} IN EXCLUSIVE MODE")

        def one_is_held_up() -> bool:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_locks WHERE relation = %s::regclass AND NOT granted", [history])
                return cursor.fetchone() is not None

        yield one_is_held_up


def _plain_parameters() -> dict[str, Any]:
    """How to connect to the test's database without Django."""
    parameters = connection.get_connection_params()
    return {name: value for name, value in parameters.items() if name not in {"cursor_factory", "context"}}
