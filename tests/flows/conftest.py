"""The whole way through: API and webhooks over HTTP, the relay simulator, and a running dispatcher."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
import pytest
from django.db import connections
from pytest_django.live_server_helper import LiveServer

from otp_service.core.clock import utc_now
from otp_service.core.signing import new_secret
from otp_service.messages import api_keys
from otp_service.messages.models import Message
from otp_service.simulation.fleet import SimulatedHost, SimulatedUnit
from scheduler import dispatcher
from scheduler.rules import SlotSizes
from servers.models import Server
from tests.deadline import eventually
from tests.factories import ClientFactory, HostFactory, ServerFactory
from tests.http import Answer, call
from tests.relay_fixture import RelayThread


@dataclass
class Fleet:
    """Servers in the database and the same units in the simulator."""

    relay: RelayThread
    webhook_base: str

    def build(self, *, hosts: int = 2, servers_per_host: int = 5, region: str = "es") -> list[Server]:
        """Make a fleet that may send at once."""
        now = utc_now()
        built: list[Server] = []
        played = []
        for number in range(1, hosts + 1):
            secret = new_secret()
            host = HostFactory.create(
                number=number, base_url=self.relay.base_url(number), secret=secret, last_seen_at=now
            )
            servers = [
                ServerFactory.create(host=host, region=region, next_send_date=now - dt.timedelta(minutes=1))
                for _ in range(servers_per_host)
            ]
            units = tuple(SimulatedUnit(server.unit, handle=server.handle) for server in servers)
            played.append(SimulatedHost(number, secret, units))
            built += servers
        self.relay.play(played, webhook_base=self.webhook_base)
        return built

    def behave(self, server: Server, behaviour: str, **parameters: object) -> None:
        """Change what a server does."""
        self.relay.behave(server.host.number, server.unit, behaviour, **parameters)


@pytest.fixture
def fleet(relay: RelayThread, live_server: LiveServer) -> Fleet:
    return Fleet(relay, live_server.url)


@dataclass
class Api:
    """A client of the service, over HTTP."""

    base: str
    key: str

    def post(self, body: Mapping[str, Any], **headers: str) -> Answer:
        return call("POST", f"{self.base}/api/v1/messages/", body, {**self._authorised(), **headers})

    def get(self, message_id: str) -> Answer:
        return call("GET", f"{self.base}/api/v1/messages/{message_id}/", None, self._authorised())

    def send(self, **fields: Any) -> str:
        """Post an otp that must be accepted; returns its id."""
        answer = self.post({"to": "+34600000000", "text": "Your code is 123456", "lane": "otp", **fields})
        assert answer.status == 202, answer
        return str(answer.body["id"])

    def ends(self, message_id: str, *, within_s: float = 20) -> Mapping[str, Any]:
        """The message as the client sees it when it has ended."""

        def ended() -> Mapping[str, Any] | None:
            body = self.get(message_id).body
            return body if body["finished_at"] else None

        found = eventually(ended, within_s=within_s)
        assert found is not None
        return found

    def _authorised(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


@pytest.fixture
def api(live_server: LiveServer) -> Api:
    client = ClientFactory.create()
    _, key = api_keys.create(client, [api_keys.Scope.MESSAGES], now=utc_now(), expires_at=None)
    return Api(live_server.url, key)


class DispatcherThread:
    """The dispatcher's own loop in a thread."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._main, name="dispatcher")
        self._started = threading.Event()
        self._stop: asyncio.Event
        self._loop: asyncio.AbstractEventLoop

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        finally:
            connections.close_all()

    async def _run(self) -> None:
        self._stop, self._loop = asyncio.Event(), asyncio.get_running_loop()
        async with aiohttp.ClientSession() as session:
            options = dispatcher.DispatcherOptions(SlotSizes(6, 14, 4, 1))
            lane = dispatcher.make_lane(options, session)
            self._started.set()
            try:
                await dispatcher.work(lane, options, self._stop)
            finally:
                await lane.close()


_OPEN_ELSEWHERE = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
"""


def _is_quiet() -> bool:
    with connections["default"].cursor() as cursor:
        cursor.execute(_OPEN_ELSEWHERE)
        return bool(cursor.fetchone()[0] == 0)


@pytest.fixture
def quiet_end(transactional_db: None) -> Iterator[None]:
    """Set up first, so torn down last: requests that are still served must not meet the emptying of the tables."""
    yield
    eventually(lambda: all(_is_quiet() for _ in range(5)))


@pytest.fixture
def dispatching(quiet_end: None, settings: Any) -> Iterator[DispatcherThread]:
    """A dispatcher that runs beside the test."""
    settings.SEND_INTERVAL_MINUTES = (0.0001, 0.0002)
    with DispatcherThread() as thread:
        yield thread


def status_of(message_id: str) -> str:
    return Message.objects.values_list("status", flat=True).get(uuid=message_id)
