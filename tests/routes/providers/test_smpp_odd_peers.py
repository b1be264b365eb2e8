"""SMSCs that do not keep to the protocol, and the requests of those that do."""

from __future__ import annotations

import asyncio
import random
import struct
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from otp_service.core.outcomes import Receipt
from otp_service.routes.providers.base import Inbound
from otp_service.routes.providers.smpp_binds import NotBound, RouteBinds
from otp_service.routes.providers.smpp_rules import Pauses, submission
from otp_service.routes.providers.smpp_session import Lost
from otp_service.routes.providers.smpp_settings import SmppSettings
from tests.routes.providers.test_smpp_rules import ATTEMPT

PATIENCE_S = 15
NEVER_AGAIN = Pauses(lost=(timedelta(hours=1),))
SUBMIT, NACK = 0x80000004, 0x80000000


def pdu(command: int, sequence: int, status: int = 0, body: bytes = b"") -> bytes:
    return struct.pack(">IIII", 16 + len(body), command, status, sequence) + body


class Odd:
    """Binds, and answers whatever comes next with what `reply` makes of its sequence number; keeps all it gets."""

    def __init__(self, reply: Callable[[int], bytes]) -> None:
        self._reply = reply
        self.got: list[tuple[int, int, int]] = []  # command, status, sequence
        self.news = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                length, command, status, sequence = struct.unpack(">IIII", await reader.readexactly(16))
                await reader.readexactly(length - 16)
                self.got.append((command, status, sequence))
                self.news.set()
                usual = command in {0x06, 0x09}  # unbind, bind
                writer.write(pdu(command | NACK, sequence, body=b"odd\0") if usual else self._reply(sequence))
        except (asyncio.IncompleteReadError, OSError):
            writer.close()


@asynccontextmanager
async def bound_to(odd: Odd) -> AsyncIterator[RouteBinds]:
    async def nobody(route: str, receipts: list[Receipt], answers: list[Inbound]) -> None:
        raise AssertionError

    server = await asyncio.start_server(odd.serve, "127.0.0.1")
    settings = SmppSettings("127.0.0.1", server.sockets[0].getsockname()[1], "acme", "opensesame")
    binds = RouteBinds("sms:one", settings, nobody, rng=random.Random(1), pauses=NEVER_AGAIN)
    binds.open()
    async with asyncio.timeout(PATIENCE_S):
        while not binds.health().ok:  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.005)
    try:
        yield binds
    finally:
        server.close()
        await binds.close()


async def submit(binds: RouteBinds) -> int:
    async with asyncio.timeout(PATIENCE_S):
        return (await binds.submit(submission(ATTEMPT, ""), uuid.uuid4())).status


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(lambda sequence: b"\0\0\0\x0f" + pdu(SUBMIT, sequence)[4:], id="a length that cannot be"),
        pytest.param(lambda sequence: b"\xff" * 16, id="a length without end"),
        pytest.param(lambda sequence: b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
        pytest.param(lambda sequence: pdu(0x06, 1), id="it unbinds"),
    ],
)
async def test_what_cannot_be_understood_ends_the_connection(reply: Callable[[int], bytes]) -> None:
    async with bound_to(Odd(reply)) as binds:
        with pytest.raises(Lost):
            await submit(binds)
        assert not binds.health().ok
        with pytest.raises(NotBound):
            await submit(binds)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(lambda sequence: pdu(NACK, sequence), id="a rejection without a status"),
        pytest.param(lambda sequence: pdu(0x80000015, sequence), id="the response to something else"),
    ],
)
async def test_an_answer_that_says_nothing_is_none_and_the_bind_stays(reply: Callable[[int], bytes]) -> None:
    async with bound_to(Odd(reply)) as binds:
        with pytest.raises(Lost):
            await submit(binds)
        assert binds.health().ok


async def test_a_rejection_as_a_pdu_is_a_refusal() -> None:
    async with bound_to(Odd(lambda sequence: pdu(NACK, sequence, 0x02))) as binds:
        assert await submit(binds) == 0x02


@pytest.mark.parametrize(
    ("request_of_theirs", "answer"),
    [
        pytest.param(pdu(0x15, 77), (0x80000015, 0), id="a sign of life"),
        pytest.param(pdu(0x05, 77, body=b"\0"), (0x80000005, 0x65), id="a delivery that is cut short"),
        pytest.param(pdu(0x0103, 77), (NACK, 0x03), id="a command that we do not know"),
    ],
)
async def test_a_request_of_theirs_is_answered(request_of_theirs: bytes, answer: tuple[int, int]) -> None:
    odd = Odd(lambda sequence: request_of_theirs + pdu(SUBMIT, sequence) if sequence != 77 else b"")
    async with bound_to(odd) as binds:
        assert await submit(binds) == 0
        async with asyncio.timeout(PATIENCE_S):
            while (*answer, 77) not in odd.got:
                odd.news.clear()
                await odd.news.wait()


async def test_cancelling_passes_through_and_the_bind_stays() -> None:
    odd = Odd(lambda sequence: b"")
    async with bound_to(odd) as binds:
        call = asyncio.create_task(submit(binds))
        while len(odd.got) < 2:
            odd.news.clear()
            await odd.news.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert binds.health().ok
