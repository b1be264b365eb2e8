"""`manage.py simulate_relay`: plays what the database says, as a process that starts and stops cleanly."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from otp_service.core.signing import new_secret
from otp_service.simulation.behaviours import Slow
from otp_service.simulation.fleet import SimulatedHost, SimulatedUnit
from otp_service.simulation.management.commands import simulate_relay
from otp_service.simulation.management.commands.simulate_relay import hosts_at
from otp_service.simulation.relay import RelaySimulator
from servers.relay.base import HostAddress
from servers.relay.native import NativeRelay
from tests.deadline import eventually
from tests.factories import HostFactory, ServerFactory
from tests.servers.relay.peers import free_port
from tests.simulation.play import HOST, UNIT, a_send

PORT = 9123
START_S, STOP_S = 60, 20  # on a starved machine; on an idle one two, and a fraction of one


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("base_url", "is_played"),
    [
        ("http://127.0.0.1:9123/hosts/7", True),
        ("http://127.0.0.1:9123/hosts/7/", True),
        ("http://simulator:9123/hosts/7", True),
        ("http://127.0.0.1:9124/hosts/7", False),
        ("http://127.0.0.1:9123/hosts/8", False),
        ("http://127.0.0.1:9123/", False),
        ("http://127.0.0.1/hosts/7", False),
        ("http://127.0.0.1:99999/hosts/7", False),
        ("http://[::1", False),
    ],
)
def test_plays_the_hosts_whose_address_is_its_port(base_url: str, is_played: bool) -> None:
    HostFactory.create(number=7, base_url=base_url)

    assert [host.number for host in hosts_at(PORT)] == ([7] if is_played else [])


@pytest.mark.django_db
def test_plays_the_units_of_a_host_with_their_handles_and_secret() -> None:
    secret = new_secret()
    host = HostFactory.create(number=7, base_url=f"http://127.0.0.1:{PORT}/hosts/7", secret=secret, enabled=False)
    ServerFactory.create(host=host, unit=228, handle="+34600000001")
    ServerFactory.create(host=host, unit=229, handle="+34600000002", signed_in=False)
    ServerFactory.create(host=HostFactory.create(number=8), unit=300)

    (played,) = hosts_at(PORT)

    assert played.secret == secret
    assert set(played.units) == {
        SimulatedUnit(228, "+34600000001", signed_in=True),
        SimulatedUnit(229, "+34600000002", signed_in=False),
    }


@pytest.mark.django_db
def test_a_host_whose_secret_cannot_sign_is_left_out_and_named(caplog: pytest.LogCaptureFixture) -> None:
    HostFactory.create(number=7, base_url=f"http://127.0.0.1:{PORT}/hosts/7", secret="hunter2!")

    assert hosts_at(PORT) == []
    assert "host 7" in caplog.text
    assert "hunter2" not in caplog.text


async def test_the_known_hosts_play_on_while_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_port: int) -> list[SimulatedHost]:
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr(simulate_relay, "hosts_at", away)
    async with RelaySimulator(webhook_base="http://127.0.0.1:9") as simulator:
        simulator.play([SimulatedHost(7, new_secret(), ())])

        await simulate_relay._reread(simulator, PORT)

        assert list(simulator.hosts) == [7]


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(CommandError, match=str(port)):
            call_command("simulate_relay", port=port)


@pytest.mark.parametrize("port", ["0", "65536", "many"])
def test_a_port_that_cannot_be_is_refused(port: str) -> None:
    with pytest.raises(CommandError, match="--port"):
        call_command("simulate_relay", "--port", port)


@contextmanager
def simulating(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process on the tests' database."""
    url = urlsplit(settings.DATABASE_URL)._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    process = subprocess.Popen(
        [sys.executable, "manage.py", "simulate_relay", "--port", str(port), "--webhook-base", "http://127.0.0.1:9"],
        cwd=settings.BASE_DIR,
        env={**os.environ, "DATABASE_URL": url},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def units(port: int) -> list[tuple[int, int]]:
    """The hosts and units that play, none while nobody listens."""
    caller = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        caller.request("GET", "/control/units")
        answer: dict[str, Any] = json.loads(caller.getresponse().read())
    except OSError:
        return []
    finally:
        caller.close()
    return [(unit["host"], unit["unit"]) for unit in answer["units"]]


@pytest.mark.django_db(transaction=True)
def test_the_process_plays_what_appears_and_ends_with_sigterm() -> None:
    port = free_port()
    host = HostFactory.create(number=7, base_url=f"http://127.0.0.1:{port}/hosts/7", secret=new_secret())
    ServerFactory.create(host=host, unit=228)
    with simulating(port) as process:
        assert eventually(lambda: process.poll() is not None or units(port) == [(7, 228)], within_s=START_S)
        ServerFactory.create(host=host, unit=229)
        assert eventually(lambda: units(port) == [(7, 228), (7, 229)], within_s=START_S)

        process.terminate()

        assert process.wait(STOP_S) == 0


@pytest.mark.django_db(transaction=True)
def test_the_process_ends_with_ctrl_c() -> None:
    port = free_port()
    ServerFactory.create(host=HostFactory.create(number=7, base_url=f"http://127.0.0.1:{port}/hosts/7"), unit=228)
    with simulating(port) as process:
        assert eventually(lambda: process.poll() is not None or units(port), within_s=START_S)

        process.send_signal(signal.SIGINT)

        assert process.wait(STOP_S) == 0


async def test_stopping_waits_for_neither_slow_units_nor_webhooks_that_nobody_takes() -> None:
    loop, secret = asyncio.get_running_loop(), new_secret()
    simulator = RelaySimulator(webhook_base="http://127.0.0.1:9")
    async with aiohttp.ClientSession() as session:
        async with simulator:
            simulator.play([SimulatedHost(HOST, secret, (SimulatedUnit(UNIT),))])
            played = simulator.hosts[HOST]
            simulator.behave(played, played.units[UNIT], Slow(seconds=60))
            address = HostAddress(1, HOST, simulator.base_url(HOST), (secret,))
            send = a_send()
            call = asyncio.create_task(NativeRelay().submit(session, address, send))
            async with asyncio.timeout(5):
                while send.attempt_uuid not in played.sendings:  # noqa: ASYNC110 - the simulator has no such event
                    await asyncio.sleep(0.005)
            stopping_since = loop.time()
        assert loop.time() - stopping_since < 10
        await call
