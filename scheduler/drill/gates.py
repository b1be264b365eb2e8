"""Doors in front of PostgreSQL and Redis: what is behind them goes on, and one run alone is shut out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from psycopg.conninfo import conninfo_to_dict
from redis.connection import parse_url

_HERE = "127.0.0.1"
_CHUNK = 65_536
_POSTGRES_PORT, _REDIS_PORT = 5432, 6379

#: How the server behind a gate is reached.
Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Gate:
    """A port of 127.0.0.1 that leads to a server; `shut` cuts every connection and refuses new ones."""

    def __init__(self, connect: Connect) -> None:
        self.port = 0
        self._connect = connect
        self._server: asyncio.Server | None = None
        self._led: set[asyncio.Task[None]] = set()  # connections that are open

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut()
        await asyncio.gather(*self._led, return_exceptions=True)

    async def open(self) -> None:
        """Let through, at the same port as before."""
        self._server = await asyncio.start_server(self._welcome, _HERE, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def shut(self) -> None:
        """The server is away, as far as this side knows."""
        if self._server is not None:
            self._server.close()
        for led in self._led:
            led.cancel()

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        led = asyncio.create_task(self._lead(reader, writer))
        self._led.add(led)
        led.add_done_callback(self._led.discard)
        led.add_done_callback(lambda _led: writer.transport.abort())  # also of one that had not begun

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back: asyncio.StreamWriter | None = None
        try:
            there, back = await self._connect()
            await asyncio.gather(_pour(reader, back), _pour(there, writer))
        except OSError:
            return  # nobody is there
        finally:
            if back is not None:
                back.transport.abort()


async def _pour(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Until one side ends; then the other is ended too."""
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()
    sink.close()


def to_postgres(url: str) -> Gate:
    """A gate to the server of an address as libpq reads it."""
    said = conninfo_to_dict(url)
    host, port = str(said.get("host") or "localhost"), int(said.get("port") or _POSTGRES_PORT)
    if host.startswith("/"):
        return Gate(lambda: asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}"))
    return Gate(lambda: asyncio.open_connection(host, port))


def postgres_url(url: str, gate: Gate) -> str:
    """The same database, through the gate."""
    parts = urlsplit(url)
    query = urlencode([pair for pair in parse_qsl(parts.query) if pair[0] not in {"host", "hostaddr", "port"}])
    return urlunsplit(parts._replace(netloc=_netloc(parts.netloc, gate), query=query))


def to_redis(url: str) -> Gate:
    """A gate to the server of an address as redis-py reads it."""
    said = _read_redis(url)
    if path := said.get("path"):
        return Gate(lambda: asyncio.open_unix_connection(path))
    return Gate(lambda: asyncio.open_connection(said.get("host") or "localhost", said.get("port") or _REDIS_PORT))


def redis_url(url: str, gate: Gate) -> str:
    """The same Redis, through the gate."""
    said = _read_redis(url)
    scheme = "redis" if said.get("path") else urlsplit(url).scheme
    user, password = quote(said.get("username") or "", safe=""), quote(said.get("password") or "", safe="")
    log_in = f"{user}:{password}@" if password else ""
    return f"{scheme}://{log_in}{_HERE}:{gate.port}/{said.get('db') or 0}"


def _read_redis(url: str) -> dict[str, Any]:
    return dict(parse_url(url))  # type: ignore[no-untyped-call]  # it has no types


def _netloc(given: str, gate: Gate) -> str:
    log_in, at, _ = given.rpartition("@")
    return f"{log_in}{at}{_HERE}:{gate.port}"
