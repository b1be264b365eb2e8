"""The seam to relay hosts reads no more than it should, and believes nothing that is cut."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from otp_service.core.http import DEFAULT_TIMEOUTS, RESPONSE_LIMIT, Answer, Call, NoAnswer, exchange
from tests.servers.relay.peers import Reply, answers, floods, peer, says

OBJECT = b'{"state": "sent"}'


async def answer_of(reply: Reply, session: aiohttp.ClientSession) -> Answer:
    async with peer(reply) as host, asyncio.timeout(DEFAULT_TIMEOUTS.total.total_seconds() - 1):
        answer = await exchange(session, Call("GET", host.base_url), DEFAULT_TIMEOUTS)
    assert isinstance(answer, Answer)
    return answer


async def test_reads_an_answer_up_to_the_limit(session: aiohttp.ClientSession) -> None:
    answer = await answer_of(answers(200, OBJECT.ljust(RESPONSE_LIMIT)), session)

    assert answer.whole
    assert answer.document() == {"state": "sent"}


async def test_stops_reading_a_flood_at_the_limit(session: aiohttp.ClientSession) -> None:
    answer = await answer_of(floods, session)

    assert not answer.whole
    assert len(answer.body) == RESPONSE_LIMIT


@pytest.mark.parametrize(
    "reply",
    [
        answers(200, OBJECT.ljust(RESPONSE_LIMIT + 1)),
        says(b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n" + OBJECT),
    ],
    ids=["too long", "cut by the network"],
)
async def test_does_not_believe_an_answer_of_which_some_is_missing(
    session: aiohttp.ClientSession, reply: Reply
) -> None:
    answer = await answer_of(reply, session)

    assert answer.body.startswith(OBJECT)
    assert answer.document() is None


async def test_shows_neither_body_nor_signature_in_a_repr(session: aiohttp.ClientSession) -> None:
    call = Call("POST", "http://127.0.0.1", b"code 483920", {"webhook-signature": "v1,abc"})

    assert "483920" not in repr(call)
    assert "v1,abc" not in repr(call)
    assert "sent" not in repr(await answer_of(answers(200, OBJECT), session))


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
async def test_a_call_is_made_once_though_its_connection_breaks(session: aiohttp.ClientSession, method: str) -> None:
    """Some gateways take messages by GET: a second one would be a second message."""
    async with peer(says(b"")) as host:
        answer = await exchange(session, Call(method, host.base_url), DEFAULT_TIMEOUTS)

    assert answer == NoAnswer(left=True, cause="ServerDisconnectedError")
    assert len(host.requests) == 1
