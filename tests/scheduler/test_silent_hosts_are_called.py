"""Hosts that have been silent are asked whether they are there."""

from __future__ import annotations

import datetime as dt
import socket
from collections.abc import Iterator
from datetime import timedelta

import aiohttp
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from structlog.testing import capture_logs

from otp_service.core.clock import utc_now
from otp_service.core.http import Timeouts
from otp_service.core.signing import new_secret
from otp_service.simulation.fleet import SimulatedHost
from scheduler import host_check, tasks
from servers.hosts import mark_seen, set_signed_in
from servers.models import Host
from servers.relay.base import HostAddress, HostHealth
from servers.relay.native import NativeRelay
from tests.factories import NOON, HostFactory, ServerFactory
from tests.racing import Racer
from tests.relay_fixture import RelayThread

pytestmark = pytest.mark.django_db
QUIET = timedelta(seconds=30)  # a third of HOST_OFFLINE_AFTER
SECOND = timedelta(seconds=1)
#: Short, and still long enough for a busy machine to answer itself.
IMPATIENT = NativeRelay(timeouts=Timeouts(connect=2 * SECOND, total=4 * SECOND))


def asked_at_noon() -> list[int]:
    """Who is called at noon, in order; nobody answers."""
    numbers: list[int] = []

    async def check(_session: aiohttp.ClientSession, host: HostAddress) -> HostHealth | None:
        numbers.append(host.number)
        return None

    host_check.call_silent_hosts(now=NOON, check=check)
    return numbers


@pytest.fixture(autouse=True)
def offline_after(settings: Settings) -> None:
    settings.HOST_OFFLINE_AFTER = 3 * QUIET


@pytest.fixture
def mute_port() -> Iterator[int]:
    """Takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1_000)
        yield listener.getsockname()[1]


def play(relay: RelayThread, *hosts: Host) -> None:
    """Let the simulator play these hosts."""
    relay.play([SimulatedHost(host.number, host.secret, ()) for host in hosts])


def at(relay: RelayThread, number: int, **fields: object) -> Host:
    """A host that the simulator may play."""
    return HostFactory.create(number=number, base_url=relay.base_url(number), secret=new_secret(), **fields)


def seen(host: Host) -> dt.datetime | None:
    return Host.objects.get(pk=host.pk).last_seen_at


@pytest.mark.parametrize("silent_since", [NOON - QUIET - SECOND, None], ids=["fell silent", "never heard of"])
def test_a_silent_host_that_answers_is_online_again(relay: RelayThread, silent_since: dt.datetime | None) -> None:
    host = at(relay, 7, last_seen_at=silent_since)
    play(relay, host)
    assert host_check.call_silent_hosts(now=NOON) == 1
    assert seen(host) == NOON


def test_a_host_that_does_not_answer_stays_as_it_is(relay: RelayThread) -> None:
    before = NOON - 2 * QUIET
    dead = at(relay, 7, last_seen_at=before)
    unreachable = HostFactory.create(base_url="http://127.0.0.1:1", last_seen_at=before)
    bad_secret = at(relay, 8, last_seen_at=before)
    Host.objects.filter(pk=bad_secret.pk).update(secret="whsec_")
    alive = at(relay, 9, last_seen_at=before)
    play(relay, bad_secret, alive)
    assert host_check.call_silent_hosts(now=NOON) == 1
    assert (seen(dead), seen(unreachable), seen(bad_secret)) == (before, before, before)
    assert seen(alive) == NOON


def test_only_enabled_hosts_that_were_not_heard_for_a_third_of_the_time_are_called() -> None:
    HostFactory.create(number=1, last_seen_at=NOON - QUIET)
    HostFactory.create(number=2, last_seen_at=NOON - QUIET - SECOND)
    HostFactory.create(number=3, last_seen_at=None, enabled=False)
    assert asked_at_noon() == [2]


def test_the_longest_silence_is_called_first() -> None:
    for number, silence in [(1, 60), (2, 600), (3, None), (4, 300)]:
        HostFactory.create(number=number, last_seen_at=None if silence is None else NOON - silence * SECOND)
    assert asked_at_noon() == [3, 2, 4, 1]


def test_however_many_hosts_are_dead_the_others_are_called(relay: RelayThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_check, "_AT_ONCE", 2)
    for _ in range(5):
        HostFactory.create(base_url="http://127.0.0.1:1", last_seen_at=None)
    alive = at(relay, 999, last_seen_at=NOON - 2 * QUIET)
    play(relay, alive)
    assert host_check.call_silent_hosts(now=NOON) == 1
    assert seen(alive) == NOON


def test_a_host_does_not_wait_for_its_turn_behind_those_that_take_calls_and_never_answer(
    relay: RelayThread, mute_port: int
) -> None:
    for _ in range(120):  # over 100, which is what the HTTP client allows itself if nobody says otherwise
        HostFactory.create(base_url=f"http://127.0.0.1:{mute_port}", last_seen_at=None)
    alive = at(relay, 999, last_seen_at=NOON - 2 * QUIET)
    play(relay, alive)
    assert host_check.call_silent_hosts(now=NOON, check=IMPATIENT.check) == 1
    assert seen(alive) == NOON


def test_the_task_reads_the_clock(relay: RelayThread) -> None:
    host = at(relay, 7, last_seen_at=None)
    play(relay, host)
    before = utc_now()
    tasks.check_hosts()
    found = seen(host)
    assert found is not None
    assert before <= found <= utc_now()


def answering(units: dict[int, bool]) -> host_check.Check:
    async def check(_session: aiohttp.ClientSession, _host: HostAddress) -> HostHealth | None:
        return HostHealth(units=units, queue=0)

    return check


def test_units_that_signed_in_or_out_unheard_are_taken_over() -> None:
    host = HostFactory.create(last_seen_at=None)
    out, back, same = (ServerFactory.create(host=host, unit=unit, signed_in=unit != 2) for unit in (1, 2, 3))
    elsewhere = ServerFactory.create(region="zp", unit=1)
    units = {1: False, 2: True, 3: True, 99: False}
    assert host_check.call_silent_hosts(now=NOON, check=answering(units)) == 1
    for server, signed_in, rows in ((out, False, 1), (back, True, 1), (same, True, 0), (elsewhere, True, 0)):
        server.refresh_from_db()
        assert (server.signed_in, server.history.count()) == (signed_in, rows)


def test_units_that_stand_as_they_did_cost_no_query_each() -> None:
    def queries(units: int) -> int:
        host = HostFactory.create(last_seen_at=None)
        said = {server.unit: True for server in ServerFactory.create_batch(units, host=host)}
        with CaptureQueriesContext(connection) as captured:
            assert host_check.call_silent_hosts(now=NOON, check=answering(said)) == 1
        return len(captured)

    assert queries(1) == queries(40)


@pytest.mark.django_db(transaction=True)
def test_an_answer_that_may_be_older_than_what_the_host_posted_meanwhile_changes_no_unit() -> None:
    server = ServerFactory.create(signed_in=False, host=HostFactory.create(last_seen_at=NOON - 2 * QUIET))
    answer = answering({server.unit: False})

    def post() -> None:
        set_signed_in(server.host_id, server.unit, signed_in=True, now=NOON + SECOND)
        mark_seen(server.host_id, now=NOON + SECOND)

    async def check(session: aiohttp.ClientSession, address: HostAddress) -> HostHealth | None:
        Racer(post).result()
        return await answer(session, address)

    assert host_check.call_silent_hosts(now=NOON, check=check) == 1
    server.refresh_from_db()
    assert server.signed_in


def test_a_host_whose_secret_no_key_opens_keeps_no_other_from_being_called() -> None:
    broken, good = HostFactory.create(number=1, last_seen_at=None), HostFactory.create(number=2, last_seen_at=None)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE servers_host SET secret = %s WHERE id = %s", [b"k9:no such key", broken.pk])
    with capture_logs() as logged:
        assert host_check.call_silent_hosts(now=NOON, check=answering({})) == 1
    assert [entry["host"] for entry in logged if entry["event"] == "host_secret_unreadable"] == [1]
    assert Host.objects.only("last_seen_at").get(pk=good.pk).last_seen_at == NOON
