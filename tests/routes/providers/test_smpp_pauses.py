"""How long a lost bind is waited for: one that had held is made again at once, one that flaps is left alone."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from otp_service.core.outcomes import Receipt
from otp_service.routes.providers import smpp_binds
from otp_service.routes.providers.base import Inbound
from otp_service.routes.providers.smpp_binds import RouteBinds
from otp_service.routes.providers.smpp_rules import Pauses
from otp_service.routes.providers.smpp_settings import SmppSettings

PATIENCE_S = 15
AT_ONCE, FOR_LONG = timedelta(0), timedelta(hours=1)
_HEADER = struct.Struct(">IIII")  # length, command, status, sequence
_RESPONSE = 0x80000000


class Flapping:
    """An SMSC that binds whoever comes, and lets go of its bind when told to."""

    def __init__(self) -> None:
        self.binds: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                length, command, _, sequence = _HEADER.unpack(await reader.readexactly(_HEADER.size))
                await reader.readexactly(length - _HEADER.size)
                writer.write(_HEADER.pack(_HEADER.size + 5, command | _RESPONSE, 0, sequence) + b"smsc\0")
                self.binds.put_nowait(writer)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()


class Unjittered(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return 1.0


class Clock:
    """The binds' own; it goes when told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def nobody(route: str, receipts: list[Receipt], answers: list[Inbound]) -> None:
    raise AssertionError


async def until_health(binds: RouteBinds, *, ok: bool) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while binds.health().ok is not ok:  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.001)


@asynccontextmanager
async def bound_to(smsc: Flapping) -> AsyncIterator[RouteBinds]:
    server = await asyncio.start_server(smsc.serve, "127.0.0.1")
    settings = SmppSettings("127.0.0.1", server.sockets[0].getsockname()[1], "acme", "opensesame")
    pauses = Pauses(lost=(AT_ONCE, FOR_LONG))
    binds = RouteBinds("sms:one", settings, nobody, rng=Unjittered(0), pauses=pauses)
    binds.open()
    try:
        yield binds
    finally:
        server.close()
        await binds.close()


async def pauses_after(held: Sequence[float], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds until the next try, after each bind that held for so long. All but the last one come back at once."""
    clock, smsc = Clock(), Flapping()
    monkeypatch.setattr(smpp_binds, "_time", clock)
    with capture_logs() as logs:
        async with bound_to(smsc) as binds:
            for seconds in held:
                async with asyncio.timeout(PATIENCE_S):
                    lost = await smsc.binds.get()
                await until_health(binds, ok=True)
                clock.now += seconds
                before = len(logs)
                lost.close()
                await until_told(logs, before)
    return [line["again_in_s"] for line in logs if line["event"] == "smpp_not_bound"]


async def until_told(logs: Sequence[Mapping[str, object]], before: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not any(line["event"] == "smpp_not_bound" for line in logs[before:]):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("held", "pauses"),
    [
        pytest.param([0, 0], [0, 3_600], id="one that flaps is left alone"),
        pytest.param([29.999, 29.999], [0, 3_600], id="a moment short of steady"),
        pytest.param([30, 30, 30], [0, 0, 0], id="a steady one is made again at once each time"),
        pytest.param([0, 30, 0], [0, 0, 3_600], id="after a steady one the pauses begin anew"),
    ],
)
async def test_the_pauses_follow_how_long_a_bind_held(
    held: list[float], pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await pauses_after(held, monkeypatch) == pauses
