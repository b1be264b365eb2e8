"""The relay simulator for tests that are not asyncio: in a thread of its own, on a free port.

def test_something(relay: RelayThread, live_server) -> None:
    relay.play([SimulatedHost(7, secret, (SimulatedUnit(228),))], webhook_base=live_server.url)
    Host(number=7, base_url=relay.base_url(7), secret=secret)
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from types import TracebackType
from typing import Self, TypeVar

import pytest

from otp_service.simulation.behaviours import Timings, behaviour_from
from otp_service.simulation.fleet import SimulatedHost
from otp_service.simulation.ledger import LedgerEntry
from otp_service.simulation.relay import RelaySimulator

#: Fast enough that nobody waits, and far enough apart that the order is that of the plan.
FAST = Timings(
    to_sent=timedelta(milliseconds=20), to_delivered=timedelta(milliseconds=20), heartbeat=timedelta(milliseconds=300)
)
_PATIENCE = 10  # seconds for the thread to answer

T = TypeVar("T")


class RelayThread:
    """A simulator with its own loop; every method may be called from any thread."""

    def __init__(self, *, seed: int = 1, timings: Timings = FAST) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay simulator", daemon=True)
        self._simulator = RelaySimulator(webhook_base="http://127.0.0.1:9", seed=seed, timings=timings)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._simulator.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._simulator.__aexit__(kind, error, trace))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._simulator.port

    def base_url(self, number: int) -> str:
        """The address of one host."""
        return self._simulator.base_url(number)

    def play(self, hosts: Iterable[SimulatedHost], *, webhook_base: str = "") -> None:
        """Play exactly these hosts; `webhook_base` is where those that are new post to."""
        self._run(self._play(list(hosts), webhook_base))

    def behave(self, host: int, unit: int, behaviour: str, **parameters: object) -> None:
        """Change one unit's behaviour."""
        self._run(self._behave(host, unit, {"behaviour": behaviour, **parameters}))

    def sends(self, *, to: str = "", attempt_id: uuid.UUID | None = None) -> list[LedgerEntry]:
        """What left, oldest first."""
        return self._run(self._sends(to, attempt_id))

    def reset(self) -> None:
        """Forget everything, and begin anew with the same hosts."""
        self._run(self._reset())

    def _run(self, call: Coroutine[object, object, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(call, self._loop)
        return future.result(_PATIENCE)

    async def _play(self, hosts: list[SimulatedHost], webhook_base: str) -> None:
        self._simulator.webhook_base = webhook_base or self._simulator.webhook_base
        self._simulator.play(hosts)

    async def _behave(self, host: int, unit: int, document: dict[str, object]) -> None:
        played = self._simulator.hosts[host]
        self._simulator.behave(played, played.units[unit], behaviour_from(document))

    async def _sends(self, to: str, attempt_id: uuid.UUID | None) -> list[LedgerEntry]:
        return self._simulator.ledger.find(to=to, attempt_id=attempt_id)

    async def _reset(self) -> None:
        self._simulator.reset()


@pytest.fixture
def relay() -> Iterator[RelayThread]:
    """A running simulator without hosts."""
    with RelayThread() as thread:
        yield thread
