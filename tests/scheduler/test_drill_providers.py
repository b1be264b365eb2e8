"""What the simulated provider does on demand: refuse, hang up, answer late, and hold its receipts."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs

import aiohttp
import pytest
from aiohttp import web

from otp_service.simulation.ledger import text_digest
from otp_service.simulation.twilio_api import Behaviour, TwilioApi

LONG = 30.0  # seconds; a test that waits so long has failed


@dataclass
class Listener:
    """Takes receipts."""

    url: str = ""
    statuses: list[str] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, request: web.Request) -> web.Response:
        form = parse_qs(await request.text())
        async with self.changed:
            self.statuses += form["MessageStatus"]
            self.changed.notify_all()
        return web.Response()

    async def wait_for(self, count: int) -> Counter[str]:
        async with asyncio.timeout(LONG), self.changed:
            await self.changed.wait_for(lambda: len(self.statuses) >= count)
        return Counter(self.statuses)


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    application = web.Application()
    application.router.add_post("/receipts", listener.take)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    listener.url = f"http://127.0.0.1:{runner.addresses[0][1]}/receipts"
    yield listener
    await runner.cleanup()


@pytest.fixture
async def api() -> AsyncIterator[TwilioApi]:
    async with TwilioApi("AC1", "token", step=dt.timedelta(milliseconds=1)) as api:
        yield api


def log_in(api: TwilioApi) -> dict[str, str]:
    return {"Authorization": aiohttp.encode_basic_auth(api.account_sid, api.auth_token)}


async def submit(
    api: TwilioApi, session: aiohttp.ClientSession, text: str = "Your code is 1", callback: str = ""
) -> int:
    form = {"To": "+34600000000", "From": "Acme", "Body": text, "StatusCallback": callback}
    url, timeout = f"{api.base_url}/2010-04-01/Accounts/AC1/Messages.json", aiohttp.ClientTimeout(total=LONG)
    async with session.post(url, data=form, headers=log_in(api), timeout=timeout) as answer:
        return answer.status


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG):
        while not condition():  # noqa: ASYNC110 - what is looked at tells nobody that it changed
            await asyncio.sleep(0)


async def test_refuses_whatever_is_submitted_and_says_when_to_come_again(
    api: TwilioApi, session: aiohttp.ClientSession
) -> None:
    api.behaviour = Behaviour(refuse_all=(429, 20429), retry_after_s=7)
    url = f"{api.base_url}/2010-04-01/Accounts/AC1/Messages.json"
    async with session.post(url, data={"To": "+34600000000"}, headers=log_in(api)) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "7")
        assert (await answer.json())["code"] == 20429
    assert not api.messages


async def test_says_nothing_of_when_to_come_again_unless_told(api: TwilioApi, session: aiohttp.ClientSession) -> None:
    api.behaviour = Behaviour(refuse_all=(401, 20003))
    url = f"{api.base_url}/2010-04-01/Accounts/AC1/Messages.json"
    async with session.post(url, headers=log_in(api)) as answer:
        assert answer.status == 401
        assert "Retry-After" not in answer.headers


async def test_hangs_up_and_listens_again_at_the_same_port(api: TwilioApi, session: aiohttp.ClientSession) -> None:
    port = api.port
    assert await submit(api, session) == 201  # its connection is kept open

    await api.hang_up()
    with pytest.raises(aiohttp.ClientOSError):  # the one that was kept open, or a new one
        await submit(api, session)
    with pytest.raises(aiohttp.ClientConnectorError):
        await submit(api, session)

    await api.listen()
    assert (api.port, await submit(api, session)) == (port, 201)


async def test_has_the_message_before_it_says_so(api: TwilioApi, session: aiohttp.ClientSession) -> None:
    api.behaviour = Behaviour(answers_after=dt.timedelta(seconds=LONG))
    waiting = asyncio.create_task(submit(api, session))
    await until(lambda: len(api.ledger) == 1)
    assert not waiting.done()
    waiting.cancel()


async def test_the_ledger_tells_copies_by_their_text_and_by_our_attempt(
    api: TwilioApi, session: aiohttp.ClientSession, listener: Listener
) -> None:
    await submit(api, session, "Your code is 1", f"{listener.url}?attempt=first")
    await submit(api, session, "Your code is 1")
    await until(lambda: len(api.ledger) == 2)
    assert [message.text_sha256 for message in api.ledger] == [text_digest("Your code is 1")] * 2
    assert [message.attempt for message in api.messages.values()] == ["first", ""]


async def test_holds_receipts_and_posts_copies_of_them_when_told(
    api: TwilioApi, session: aiohttp.ClientSession, listener: Listener
) -> None:
    api.behaviour = Behaviour(holds_receipts=True)
    for _ in range(3):
        await submit(api, session, callback=listener.url)
    await until(lambda: all(message.status == "delivered" for message in api.messages.values()))
    assert not listener.statuses

    await api.release_receipts(copies=2, rng=random.Random(1))

    assert await listener.wait_for(12) == {"sent": 6, "delivered": 6}
    assert listener.statuses != ["sent", "delivered"] * 6
    await submit(api, session, callback=listener.url)
    assert await listener.wait_for(14) == {"sent": 7, "delivered": 7}


async def test_counts_the_receipts_that_nobody_takes(api: TwilioApi, session: aiohttp.ClientSession) -> None:
    await submit(api, session, callback="http://127.0.0.1:1/receipts")
    await until(lambda: api.receipts_lost == 2)
