"""Doors in front of PostgreSQL and Redis: what goes through them, and what does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
import redis
from django.conf import settings

from scheduler.drill import gates
from scheduler.drill.gates import Gate


def answers_of_postgres(url: str) -> int:
    with psycopg.connect(url, connect_timeout=5) as server:
        row = server.execute("SELECT 7").fetchone()
    assert row is not None
    return int(row[0])


async def test_postgres_answers_through_it() -> None:
    async with gates.to_postgres(settings.DATABASE_URL) as gate:
        url = gates.postgres_url(settings.DATABASE_URL, gate)
        assert await asyncio.to_thread(answers_of_postgres, url) == 7


async def test_redis_answers_through_it() -> None:
    async with gates.to_redis(settings.REDIS_URL) as gate:
        with redis.Redis.from_url(gates.redis_url(settings.REDIS_URL, gate)) as client:
            assert await asyncio.to_thread(client.ping)


@pytest.fixture
async def echo() -> AsyncIterator[Gate]:
    """A gate to a server that says everything again."""

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(repeat, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Gate(lambda: asyncio.open_connection("127.0.0.1", port)) as gate:
        yield gate


async def end_of(reader: asyncio.StreamReader) -> bytes:
    """What comes before the end; a reset is one."""
    try:
        return await asyncio.wait_for(reader.read(100), 10)
    except ConnectionResetError:
        return b""


async def test_a_shut_one_cuts_what_is_open_and_refuses_what_is_new(echo: Gate) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    writer.write(b"before")
    assert await reader.readexactly(6) == b"before"

    echo.shut()

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", echo.port)
    assert await end_of(reader) == b""
    writer.close()


async def test_an_opened_one_leads_through_at_the_same_port(echo: Gate) -> None:
    port = echo.port
    echo.shut()
    await echo.open()
    assert echo.port == port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"again")
    assert await reader.readexactly(5) == b"again"
    writer.close()


async def test_what_is_away_behind_it_ends_the_connection() -> None:
    async def nobody() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise ConnectionRefusedError

    async with Gate(nobody) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        assert await end_of(reader) == b""
        writer.close()


class _At(Gate):
    """A gate that stands at a port without listening."""

    def __init__(self, port: int) -> None:
        self.port = port


@pytest.mark.parametrize(
    ("given", "through"),
    [
        ("postgresql://u:p@db.example:6000/otp?sslmode=require", "postgresql://u:p@127.0.0.1:9/otp?sslmode=require"),
        ("postgresql://postgres@/otp?host=/run/pg&port=5432", "postgresql://postgres@127.0.0.1:9/otp"),
        ("postgres://db.example/otp", "postgres://127.0.0.1:9/otp"),
    ],
    ids=["with a log-in", "a socket", "without a log-in"],
)
def test_addresses_of_postgres_lead_through(given: str, through: str) -> None:
    assert gates.postgres_url(given, _At(9)) == through


@pytest.mark.parametrize(
    ("given", "through"),
    [
        ("redis://u:p%40@cache.example:7000/2", "redis://u:p%40@127.0.0.1:9/2"),
        ("redis://cache.example", "redis://127.0.0.1:9/0"),
        ("unix:///run/valkey.sock?db=3", "redis://127.0.0.1:9/3"),
        ("rediss://:p@cache.example/1", "rediss://:p@127.0.0.1:9/1"),
    ],
    ids=["with a log-in", "bare", "a socket", "TLS"],
)
def test_addresses_of_redis_lead_through(given: str, through: str) -> None:
    assert gates.redis_url(given, _At(9)) == through
