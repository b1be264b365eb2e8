"""A simulated BlueBubbles server for tests that are not asyncio: in a thread of its own, on a free port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Self, TypeVar

from otp_service.simulation.bluebubbles_host import BlueBubblesHost, Quirks
from otp_service.simulation.ledger import LedgerEntry
from tests.relay_fixture import FAST

_PATIENCE = 10  # seconds for the thread to answer

T = TypeVar("T")


class BlueBubblesThread:
    """Plays one server. `webhook_url` is where it posts to, "" for nowhere."""

    def __init__(self, *, number: int, password: str, webhook_url: str = "", quirks: Quirks | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="BlueBubbles", daemon=True)
        self._mac = BlueBubblesHost(number=number, password=password, webhook_url=webhook_url, timings=FAST)
        self._mac.quirks = quirks or Quirks()

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._mac.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._mac.__aexit__(kind, error, trace))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()

    @property
    def base_url(self) -> str:
        """The address of the server."""
        return self._mac.base_url

    def sends(self, to: str) -> list[LedgerEntry]:
        """What left to this number, oldest first."""
        return self._run(self._sends(to))

    def settle(self) -> None:
        """Wait until nothing is on its way, to phones or to us."""
        self._run(self._mac.settled())

    async def _sends(self, to: str) -> list[LedgerEntry]:
        return self._mac.ledger.find(to=to)

    def _run(self, call: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(_PATIENCE)
