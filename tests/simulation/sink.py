"""Where simulated hosts post their webhooks in these tests: it checks every signature, and remembers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from standardwebhooks.webhooks import Webhook

Event = dict[str, Any]
PATIENCE = 10  # seconds; what takes longer is broken


@dataclass(slots=True)
class Call:
    """One webhook call."""

    path: str
    headers: Mapping[str, str]
    events: list[Event]
    is_list: bool


@dataclass(slots=True)
class Sink:
    """`answer` gives the status for the nth call (from 1)."""

    secret: str
    base: str = ""
    answer: Callable[[int], int] = lambda _nth: 200
    calls: list[Call] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def events(self, *types: str) -> list[Event]:
        """What was posted so far, in order, heartbeats left out unless asked for."""
        events = [event for call in self.calls for event in call.events]
        return [event for event in events if (event["type"] in types if types else event["type"] != "heartbeat")]

    async def wait_for(self, count: int, *types: str) -> list[Event]:
        """Wait until so many events (of these types) have come, and give them."""
        await self.until(lambda: len(self.events(*types)) >= count)
        return self.events(*types)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a call has made the condition true."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(condition)

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        Webhook(self.secret).verify(body, dict(request.headers))
        document = json.loads(body)
        events = document if isinstance(document, list) else [document]
        self.calls.append(Call(request.path, dict(request.headers), events, isinstance(document, list)))
        async with self._changed:
            self._changed.notify_all()
        return web.json_response({}, status=self.answer(len(self.calls)))


@contextlib.asynccontextmanager
async def listening(sink: Sink, port: int = 0) -> AsyncIterator[Sink]:
    """Serve the sink on a port, any free one unless it is given."""
    application = web.Application()
    application.router.add_post("/{path:.*}", sink.take)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    sink.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield sink
    finally:
        await runner.cleanup()
