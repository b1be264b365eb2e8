"""Small servers that misbehave: what they send is bytes, so that no library makes it right again."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Request:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Peer:
    """A running server and what it was asked."""

    port: int
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def peer(reply: Reply) -> AsyncIterator[Peer]:
    """Serve on a free port; every request is read whole, then `reply` does as it likes."""
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.connections += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                served.requests.append(await _read(reader))
                served.was_asked.set()
                await reply(writer)
        finally:
            writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.add(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    served = Peer(server.sockets[0].getsockname()[1])
    try:
        yield served
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    method, path, _version = first.split(" ")
    headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
    length = int(headers.get("content-length", "0"))
    return Request(method, path, headers, await reader.readexactly(length))


def says(raw: bytes) -> Reply:
    """Answer with these bytes, and close."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()

    return reply


def answers(status: int, body: bytes = b"", **headers: str) -> Reply:
    """Answer properly; `Retry_After="3"` makes a header `Retry-After`."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return says("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


async def stays_silent(writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def resets(writer: asyncio.StreamWriter) -> None:
    """Cut the connection with a RST."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def drips(writer: asyncio.StreamWriter) -> None:
    """Promise an answer, and send it a byte at a time without end."""
    writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def floods(writer: asyncio.StreamWriter) -> None:
    """Answer 202 with a body without end."""
    writer.write(b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        await writer.drain()


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
