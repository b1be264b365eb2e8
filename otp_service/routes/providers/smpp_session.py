"""One bound connection to an SMSC: asks, answers, and ends.

The library writes and reads the PDUs; the connection is ours, so that a receipt is acknowledged only when somebody
has taken it, and a response has its time.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import smpp34

from otp_service.routes.providers.smpp_rules import MSGQFUL, ROK, RX_P_APPN, RX_T_APPN
from otp_service.routes.providers.smpp_settings import SmppSettings

CONNECT_TIMEOUT = timedelta(seconds=5)
_UNBIND_TIMEOUT = timedelta(seconds=2)
_DELIVERED_AT_ONCE = 100
_DELIVERED_WAITING = 1_000
_LATE_LIMIT = 1_000  # requests past their time whose response is still of interest

_HEADER = struct.Struct(">IIII")  # length, command, status, sequence
_LONGEST_PDU = 70_000  # octets: `message_payload` has 64 Ki at most
_LAST_SEQUENCE = 0x7FFFFFFF

_RESPONSE = 0x80000000  # a bit
_GENERIC_NACK = 0x80000000
_DELIVER_SM = 0x05
_UNBIND = 0x06
_BIND_TRANSCEIVER = 0x09
_ENQUIRE_LINK = 0x15
_ALERT_NOTIFICATION = 0x102  # has no response
_INVCMDID = 0x03
_VERSION = 0x34


@dataclass(frozen=True, slots=True)
class Response:
    """What the SMSC answered."""

    status: int
    body: bytes = field(default=b"", repr=False)

    @property
    def message_id(self) -> str:
        """Of a `submit_sm_resp`; "" if it gave none."""
        return self.body.partition(b"\0")[0].decode("latin-1").strip()


class Lost(Exception):
    """The connection ended before a response came that could be understood: what was asked may have been read."""


class BindRefused(Exception):
    """The SMSC answered a bind with `status`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"0x{status:08x}")
        self.status = status


#: Takes what was delivered, and says with which status it is to be acknowledged.
Deliver = Callable[[Sequence[smpp34.DeliverSm]], Awaitable[int]]
OnLate = Callable[[Response], None]


class Session:
    """A connection; `running` ends when it does."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, settings: SmppSettings, deliver: Deliver
    ) -> None:
        self._reader, self._writer = reader, writer
        self._settings, self._deliver = settings, deliver
        self._sequence = 0
        self._open: dict[int, tuple[int, asyncio.Future[Response]]] = {}  # by sequence number: a command, its answer
        self._late: dict[int, tuple[int, OnLate]] = {}
        self._delivered: asyncio.Queue[tuple[int, smpp34.DeliverSm]] = asyncio.Queue(_DELIVERED_WAITING)
        self._idle = asyncio.Event()
        self._leaving: asyncio.Task[None] | None = None
        self._bound = False
        self.running = asyncio.ensure_future(self._run())

    @property
    def bound(self) -> bool:
        """Whether it may be asked something now."""
        return self._bound and not self._writer.is_closing()

    @property
    def places(self) -> int:
        """How many more requests its window has room for."""
        return self._settings.window - len(self._open)

    async def bind(self) -> None:
        """Log in. Raises BindRefused, Lost, TimeoutError."""
        settings = self._settings
        words = (settings.system_id, settings.password, settings.system_type)
        body = b"".join(word.encode() + b"\0" for word in words) + bytes([_VERSION, 0, 0, 0])
        response = await self.ask(_frame(_BIND_TRANSCEIVER, body=body), CONNECT_TIMEOUT)
        if response.status != ROK:
            raise BindRefused(response.status)
        self._bound = True

    async def ask(self, frame: bytes, within: timedelta, on_late: OnLate | None = None) -> Response:
        """Write one request and wait for its response. Raises Lost, TimeoutError: either way it may have been read.

        `on_late` is called with a response that comes after its time.
        """
        if self._writer.is_closing():
            raise Lost
        sequence = self._sequence = self._sequence % _LAST_SEQUENCE + 1
        command = int.from_bytes(frame[4:8], "big")
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._open[sequence] = command, answer
        self._writer.write(frame[:12] + sequence.to_bytes(4, "big") + frame[16:])
        try:
            async with asyncio.timeout(within.total_seconds()):
                return await answer
        except TimeoutError:
            if on_late is not None:
                self._expect_late(sequence, command, on_late)
            raise
        finally:
            del self._open[sequence]
            if not self._open:
                self._idle.set()

    async def leave(self) -> None:
        """Ask nothing more, wait for what is open, unbind and end."""
        self._bound = False
        self._idle.clear()
        try:
            if self._open:
                async with asyncio.timeout(self._settings.response_timeout.total_seconds()):
                    await self._idle.wait()
            await self.ask(_frame(_UNBIND), _UNBIND_TIMEOUT)
        except (Lost, OSError):
            pass  # it ends either way
        finally:
            self._writer.close()

    def retire(self) -> None:
        """Leave, without waiting for it."""
        self._bound = False
        self._leaving = self._leaving or asyncio.ensure_future(self.leave())

    async def _run(self) -> None:
        """Hold the connection until either side ends it; every request that is open then ends with Lost."""
        work = [asyncio.ensure_future(each) for each in (self._read(), self._hand_over(), self._enquire())]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._end()
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    def _end(self) -> None:
        self._bound = False
        self._writer.close()
        for _, answer in self._open.values():
            if not answer.done():
                answer.set_exception(Lost())

    async def _read(self) -> None:
        """Until the connection ends, or nothing that follows could be understood."""
        try:
            while True:
                head = await self._reader.readexactly(_HEADER.size)
                length, command, status, sequence = _HEADER.unpack(head)
                if not _HEADER.size <= length <= _LONGEST_PDU:
                    return
                body = await self._reader.readexactly(length - _HEADER.size)
                if not self._take(command, status, sequence, body):
                    return
                await self._writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            return

    def _take(self, command: int, status: int, sequence: int, body: bytes) -> bool:
        """Act on one PDU; False where it ends the connection."""
        if command & _RESPONSE:
            self._answered(command, sequence, Response(status, body))
        elif command == _DELIVER_SM:
            self._queue(sequence, _HEADER.pack(len(body) + _HEADER.size, command, status, sequence) + body)
        elif command in {_ENQUIRE_LINK, _UNBIND}:
            self._reply(command, sequence)
        elif command != _ALERT_NOTIFICATION:
            self._writer.write(_frame(_GENERIC_NACK, _INVCMDID, sequence))
        return command != _UNBIND

    def _answered(self, command: int, sequence: int, response: Response) -> None:
        if sequence in self._late:
            asked, on_late = self._late.pop(sequence)
            if _is_clear(asked, command, response):
                on_late(response)
        elif sequence in self._open:
            asked, answer = self._open[sequence]
            if answer.done():
                return
            if _is_clear(asked, command, response):
                answer.set_result(response)
            else:
                answer.set_exception(Lost())

    def _expect_late(self, sequence: int, command: int, on_late: OnLate) -> None:
        if len(self._late) >= _LATE_LIMIT:
            del self._late[next(iter(self._late))]
        self._late[sequence] = command, on_late

    def _queue(self, sequence: int, frame: bytes) -> None:
        try:
            pdu = smpp34.decode(frame)
            assert isinstance(pdu, smpp34.DeliverSm), "decoded by its command"
            self._delivered.put_nowait((sequence, pdu))
        except smpp34.SmppError:
            self._reply(_DELIVER_SM, sequence, RX_P_APPN)
        except asyncio.QueueFull:
            self._reply(_DELIVER_SM, sequence, MSGQFUL)

    async def _hand_over(self) -> None:
        """Acknowledge what was delivered, in its order, when it has been taken."""
        while True:
            batch = [await self._delivered.get()]
            while len(batch) < _DELIVERED_AT_ONCE and not self._delivered.empty():
                batch.append(self._delivered.get_nowait())
            status = RX_T_APPN
            try:
                status = await self._deliver([pdu for _, pdu in batch])
            finally:
                for sequence, _ in batch:
                    self._reply(_DELIVER_SM, sequence, status)

    async def _enquire(self) -> None:
        """Ask for a sign of life again and again; returns when none comes."""
        while True:
            await asyncio.sleep(self._settings.enquire_every.total_seconds())
            try:
                await self.ask(_frame(_ENQUIRE_LINK), self._settings.response_timeout)
            except (Lost, OSError):
                return

    def _reply(self, command: int, sequence: int, status: int = ROK) -> None:
        body = b"\0" if command == _DELIVER_SM else b""  # an empty message_id
        self._writer.write(_frame(command | _RESPONSE, status, sequence, body))


async def connect(settings: SmppSettings, deliver: Deliver) -> Session:
    """A connection that is not bound yet. Raises OSError, of which TimeoutError is one."""
    context = ssl.create_default_context() if settings.tls else None
    async with asyncio.timeout(CONNECT_TIMEOUT.total_seconds()):
        reader, writer = await asyncio.open_connection(settings.host, settings.port, ssl=context)
    return Session(reader, writer, settings, deliver)


def _is_clear(asked: int, command: int, response: Response) -> bool:
    """Whether it answers what was asked: with the response to that, or a rejection of it as a PDU."""
    return command == asked | _RESPONSE or (command == _GENERIC_NACK and response.status != ROK)


def _frame(command: int, status: int = ROK, sequence: int = 0, body: bytes = b"") -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), command, status, sequence) + body
