"""The relay simulator: one process that plays any number of relay hosts over real HTTP, on one port.

async with RelaySimulator(webhook_base="http://127.0.0.1:8000", seed=1) as simulator:
    simulator.play([SimulatedHost(1, secret, (SimulatedUnit(228),))])
    simulator.base_url(1)  # what a Host's base_url must be
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

from otp_service.core.clock import utc_now
from otp_service.core.errors import ServiceError
from otp_service.simulation.behaviours import Behaviour, Timings
from otp_service.simulation.control import ControlEndpoints
from otp_service.simulation.delivery import Delivery, event
from otp_service.simulation.fleet import PlayedHost, PlayedUnit, SimulatedHost
from otp_service.simulation.ledger import Ledger
from otp_service.simulation.native_host import NativeEndpoints
from otp_service.simulation.posting import Outbox

VERSION = "simulator"
_SHUTDOWN_SECONDS = 0.2  # for calls that are still being answered
_DEFAULT_TIMINGS = Timings()


class RelaySimulator:
    """Plays hosts. All methods belong to the loop that started it; restarted only as a new object."""

    def __init__(
        self,
        *,
        webhook_base: str,
        seed: int = 1,
        listen_on: str = "127.0.0.1",
        port: int = 0,
        timings: Timings = _DEFAULT_TIMINGS,
        ledger_path: Path | None = None,
    ) -> None:
        self.ledger = Ledger(ledger_path)
        self.port = port
        self._listen_on = listen_on
        self.webhook_base = webhook_base
        self._seed = seed
        self._timings = timings
        self.hosts: dict[int, PlayedHost] = {}
        self._values: dict[int, SimulatedHost] = {}
        self._handles: dict[str, tuple[PlayedHost, PlayedUnit]] = {}
        self._delivery = Delivery(self.ledger, timings, self._handles)
        self._runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._listen_on, self.port)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            raise
        self.port = int(self._runner.addresses[0][1])
        self._session = aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.play([])
        await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    def base_url(self, number: int) -> str:
        """The address of one host."""
        return f"http://{self._listen_on}:{self.port}/hosts/{number}"

    def play(self, hosts: Iterable[SimulatedHost]) -> None:
        """Play exactly these hosts from now on; those that stay keep their memory and behaviours."""
        wanted = {host.number: host for host in hosts}
        for number in self.hosts.keys() - wanted.keys():
            self._stop(self.hosts.pop(number))
        for number, value in wanted.items():
            if (host := self.hosts.get(number)) is None:
                self.hosts[number] = self._start(value)
            else:
                host.update(value)
        self._values = wanted
        self._list_handles()

    def behave(self, host: PlayedHost, unit: PlayedUnit, behaviour: Behaviour) -> None:
        """Change a unit's behaviour; signing in or out is told, as a real host would."""
        was_signed_in = unit.behaviour.signed_in
        unit.behave(behaviour)
        if behaviour.signed_in is not was_signed_in:
            data: dict[str, object] = {"signed_in": behaviour.signed_in, "detail": "Simulated."}
            host.outbox.put(event("unit_status", utc_now(), unit.value.unit, data))

    def reset(self) -> None:
        """Forget everything, and play the same hosts from the start."""
        values = list(self._values.values())
        self.play([])
        self.ledger.clear()
        self.play(values)

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[_answer_refusals])
        application.add_routes(NativeEndpoints(self.hosts.get, self._delivery).routes())
        application.add_routes(ControlEndpoints(self.hosts, self.ledger, self.behave, self.reset).routes())
        return application

    def _start(self, value: SimulatedHost) -> PlayedHost:
        assert self._session is not None
        url = f"{self.webhook_base.rstrip('/')}/webhooks/relay/{value.number}/"
        outbox = Outbox(self._session, url, value.secret)
        host = PlayedHost(value, outbox, self._seed)
        host.tasks = (asyncio.create_task(outbox.run()), asyncio.create_task(self._beat(host)))
        return host

    def _stop(self, host: PlayedHost) -> None:
        for task in host.tasks:
            task.cancel()
        for sending in host.sendings.values():
            sending.give_up()

    def _list_handles(self) -> None:
        self._handles.clear()
        for host in self.hosts.values():
            self._handles.update({unit.value.handle: (host, unit) for unit in host.units.values() if unit.value.handle})

    async def _beat(self, host: PlayedHost) -> None:
        while True:
            # Heartbeats that pile up behind failing calls would tell of the past.
            if not host.outbox.is_behind:
                host.outbox.put(event("heartbeat", utc_now(), None, {"queue": host.queue(), "version": VERSION}))
            await asyncio.sleep(self._timings.heartbeat.total_seconds())


@web.middleware
async def _answer_refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Faults of the caller (shape, signature) as the protocol's refusals."""
    try:
        return await handler(request)
    except ServiceError as error:
        field = str(error.data.get("field") or "")
        detail = f"{field} {error.detail}" if field else error.detail
        code = "unauthorized" if error.status == 401 else "invalid"
        return web.json_response({"code": code, "detail": detail}, status=error.status)
