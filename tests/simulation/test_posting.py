"""Webhooks of simulated hosts: signed (the sink checks each with the library), repeated until taken, in lists."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import timedelta

import aiohttp
import pytest

from otp_service.core.signing import new_secret
from otp_service.simulation import posting
from otp_service.simulation.posting import Outbox
from tests.servers.relay.peers import free_port
from tests.simulation.play import HOST, Play
from tests.simulation.sink import Sink, listening


def an_event(number: int) -> dict[str, object]:
    return {"id": str(uuid.UUID(int=number)), "type": "moon_phase", "number": number}


SOON = (timedelta(milliseconds=5),)


class Poster:
    """An outbox at work."""

    def __init__(self, session: aiohttp.ClientSession, sink: Sink) -> None:
        self.outbox = Outbox(session, f"{sink.base}/webhooks/relay/7/", sink.secret, delays=SOON)
        self.task = asyncio.create_task(self.outbox.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_posts_to_the_hosts_own_path(play: Play, sink: Sink) -> None:
    await play.submit()
    await sink.wait_for(2)

    assert {call.path for call in sink.calls} == {f"/webhooks/relay/{HOST}/"}


async def test_heartbeats_come_again_and_again_without_a_unit(play: Play, sink: Sink) -> None:
    first, second = (await sink.wait_for(2, "heartbeat"))[:2]

    assert first["unit"] is None
    assert first["data"] == {"queue": 0, "version": "simulator"}
    assert first["id"] != second["id"]


@pytest.mark.parametrize("status", [500, 503, 429, 408, 302])
async def test_repeats_a_call_that_was_not_taken_with_the_same_id_and_events(status: int) -> None:
    async with listening(Sink(new_secret())) as sink, aiohttp.ClientSession() as session:
        sink.answer = lambda nth: status if nth < 3 else 200
        poster = Poster(session, sink)
        posted = poster.outbox.put(an_event(1))
        await sink.until(lambda: len(sink.calls) == 3)
        poster.outbox.put(an_event(2))
        await sink.until(lambda: len(sink.calls) == 4)
        await poster.stop()

    assert posted.tried.is_set()
    assert [event["number"] for event in sink.events()] == [1, 1, 1, 2]
    assert len({call.headers["webhook-id"] for call in sink.calls[:3]}) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 413])
async def test_does_not_repeat_what_was_refused(status: int) -> None:
    async with listening(Sink(new_secret())) as sink, aiohttp.ClientSession() as session:
        sink.answer = lambda _nth: status
        poster = Poster(session, sink)
        poster.outbox.put(an_event(1))
        await sink.until(lambda: len(sink.calls) == 1)
        poster.outbox.put(an_event(2))
        await sink.until(lambda: len(sink.calls) == 2)
        await poster.stop()

    assert [event["number"] for event in sink.events()] == [1, 2]


async def test_delivers_all_in_order_when_the_receiver_comes_back() -> None:
    sink, port = Sink(new_secret()), free_port()
    sink.base = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession() as session:
        poster = Poster(session, sink)
        first = poster.outbox.put(an_event(1))
        for number in range(2, 252):
            poster.outbox.put(an_event(number))
        async with asyncio.timeout(5):
            await first.tried.wait()
        assert poster.outbox.is_behind
        async with listening(sink, port):
            await sink.wait_for(251)
            await poster.stop()

    assert [event["number"] for event in sink.events()] == list(range(1, 252))
    assert max(len(call.events) for call in sink.calls) == posting.BATCH_LIMIT
    assert not poster.outbox.is_behind


async def test_gives_up_what_has_waited_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "REPEAT_FOR", timedelta(0))
    async with listening(Sink(new_secret())) as sink, aiohttp.ClientSession() as session:
        sink.answer = lambda nth: 500 if nth == 1 else 200
        poster = Poster(session, sink)
        poster.outbox.put(an_event(1))
        await sink.until(lambda: len(sink.calls) == 1)
        poster.outbox.put(an_event(2))
        await sink.until(lambda: len(sink.calls) == 2)
        await poster.stop()

    assert [event["number"] for event in sink.events()] == [1, 2]


async def test_one_event_is_an_object_and_several_are_a_list() -> None:
    async with listening(Sink(new_secret())) as sink, aiohttp.ClientSession() as session:
        outbox = Outbox(session, f"{sink.base}/x", sink.secret)
        alone: Callable[[], bool] = lambda: len(sink.calls) == 1  # noqa: E731 - a condition with a name
        task = asyncio.create_task(outbox.run())
        outbox.put(an_event(1))
        await sink.until(alone)
        outbox.put(an_event(2))
        outbox.put(an_event(3))
        await sink.wait_for(3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert not sink.calls[0].is_list
    assert sink.calls[1].is_list
    assert len(sink.calls) == 2
