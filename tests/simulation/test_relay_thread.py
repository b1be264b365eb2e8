"""The simulator as other tests use it: in a thread, beside code that is not asyncio."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import aiohttp
import pytest

from otp_service.core.outcomes import Submission, SubmitResult
from otp_service.core.signing import new_secret
from otp_service.simulation.fleet import SimulatedHost, SimulatedUnit
from servers.relay.base import HostAddress
from servers.relay.events import Delivered, parse_events
from servers.relay.native import NativeRelay
from tests.relay_fixture import RelayThread, relay
from tests.simulation.play import a_send

__all__ = ["relay"]

SECRET = new_secret()


@pytest.fixture
def posted() -> Iterator[tuple[str, queue.Queue[bytes]]]:
    """A plain HTTP server that keeps the bodies that are posted to it."""
    bodies: queue.Queue[bytes] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", bodies
        server.shutdown()
        thread.join()


def submit(relay: RelayThread) -> SubmitResult:
    async def call() -> SubmitResult:
        async with aiohttp.ClientSession() as session:
            return await NativeRelay().submit(session, HostAddress(1, 7, relay.base_url(7), (SECRET,)), a_send())

    return asyncio.run(call())


def test_plays_in_a_thread_and_posts_to_any_address(relay: RelayThread, posted: tuple[str, queue.Queue[bytes]]) -> None:
    base, bodies = posted
    relay.play([SimulatedHost(7, SECRET, (SimulatedUnit(228),))], webhook_base=base)

    result = submit(relay)
    while not any(isinstance(event.data, Delivered) for event in parse_events(bodies.get(timeout=10))):
        pass

    assert result.submission is Submission.ACCEPTED
    assert len(relay.sends(to="+34600000017")) == 1


def test_behaviours_change_and_a_reset_undoes_it(relay: RelayThread) -> None:
    relay.play([SimulatedHost(7, SECRET, (SimulatedUnit(228),))])
    relay.behave(7, 228, "signed_out")
    assert submit(relay).submission is Submission.REFUSED

    relay.reset()

    assert submit(relay).submission is Submission.ACCEPTED


def test_two_simulators_do_not_disturb_each_other(relay: RelayThread) -> None:
    with RelayThread() as other:
        assert other.port != relay.port
