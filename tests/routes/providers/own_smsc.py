"""An SMSC of ours, which binds whoever comes and delivers what people write; its frames may be any bytes."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import smpp34

from otp_service.routes.providers.smpp_inbound import SAR_TOTAL_SEGMENTS
from otp_service.routes.providers.smpp_rules import MESSAGE_PAYLOAD

PATIENCE_S = 15
_HEADER = struct.Struct(">IIII")  # length, command, status, sequence
_RESPONSE, _DELIVER = 0x80000000, 0x05


def wrote(
    text: bytes = b"STOP",
    *,
    sender: str = "34600000017",
    ton: int = 1,
    coding: int = 0,
    esm_class: int = 0,
    payload: bytes = b"",
    segments: int = 0,
) -> smpp34.DeliverSm:
    """What somebody wrote; `payload` and `segments` are optional parameters."""
    tlvs = [smpp34.Tlv(MESSAGE_PAYLOAD, payload)] if payload else []
    tlvs += [smpp34.Tlv(SAR_TOTAL_SEGMENTS, bytes([segments]))] if segments else []
    return smpp34.DeliverSm(
        sender, "12345", text, source_addr_ton=ton, esm_class=esm_class, data_coding=coding, tlvs=tlvs
    )


class Smsc:
    """Listens on `port` and has one bind at a time; `answered` are the statuses of what it delivered."""

    def __init__(self) -> None:
        self.port = 0
        self.answered: asyncio.Queue[int] = asyncio.Queue()
        self._bound: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

    async def deliver(self, frame: bytes) -> None:
        """Write one `deliver_sm`, as soon as it is bound."""
        async with asyncio.timeout(PATIENCE_S):
            (await self._bound).write(frame)

    async def answer_to(self, pdu: smpp34.DeliverSm) -> int:
        """Deliver, and wait for the status that it is acknowledged with."""
        await self.deliver(pdu.encode())
        return await self.answer()

    async def answer(self) -> int:
        """The status of the next response."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.answered.get()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hold one connection until it ends."""
        try:
            while True:
                length, command, status, sequence = _HEADER.unpack(await reader.readexactly(_HEADER.size))
                await reader.readexactly(length - _HEADER.size)
                if command == _DELIVER | _RESPONSE:
                    self.answered.put_nowait(status)
                else:
                    writer.write(_HEADER.pack(_HEADER.size + 5, command | _RESPONSE, 0, sequence) + b"smsc\0")
                    if not self._bound.done():
                        self._bound.set_result(writer)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()


@asynccontextmanager
async def running() -> AsyncIterator[Smsc]:
    """An SMSC on a free port."""
    smsc = Smsc()
    server = await asyncio.start_server(smsc.serve, "127.0.0.1")
    smsc.port = server.sockets[0].getsockname()[1]
    try:
        yield smsc
    finally:
        server.close()
