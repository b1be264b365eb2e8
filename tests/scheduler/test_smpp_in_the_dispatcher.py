"""SMPP routes in a whole dispatcher, with an SMSC from another project."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection
from django.db.models import F, QuerySet

from otp_service.core.clock import utc_now
from otp_service.messages import expiry, queue
from otp_service.messages.models import Attempt, Message
from otp_service.messages.rules import Lane
from otp_service.routes import receipts, route_owners, rules
from otp_service.routes.owner_models import RouteOwner
from otp_service.routes.providers.smpp_routes import SmppRoutes
from otp_service.routes.route_owners import Binds
from otp_service.routes.route_rules import RouteSpec
from scheduler import dispatcher
from scheduler.rules import SlotSizes
from tests import deadline
from tests.factories import AttemptFactory, FlowFactory, HostFactory, QueuedFactory, RouteFactory, ServerFactory
from tests.routes.providers.smpp_peer.conftest import peer
from tests.routes.providers.smpp_peer.peer import PASSWORD, Peer
from tests.routes.providers.smpp_peer.steps import QUICK, is_up, until

__all__ = ["peer"]  # the fixture

pytestmark = pytest.mark.django_db(transaction=True)

SIZES = SlotSizes(floor=2, shared=20, reserve=6, promo_floor=1)
OTHER = uuid.UUID(int=2)
#: Of this file alone: what is known of how a route does is kept in Redis, by its name.
ONE, BACKUP = "sms:smpp-in-the-dispatcher", "sms:smpp-in-the-dispatcher-backup"
SHORT = dt.timedelta(milliseconds=50)


async def in_thread(work: Callable[[], Any]) -> Any:
    def closing() -> Any:
        try:
            return work()
        finally:
            connection.close()

    return await sync_to_async(closing, thread_sensitive=False)()


async def eventually(look: Callable[[], Any]) -> Any:
    return await in_thread(lambda: deadline.eventually(look, within_s=20))


@asynccontextmanager
async def working() -> AsyncIterator[None]:
    """A dispatcher at work, which binds again after short pauses."""
    options = dispatcher.DispatcherOptions(SIZES)
    async with aiohttp.ClientSession() as session:
        smpp = SmppRoutes(options.id, options.lanes, pauses=QUICK)
        lane = dispatcher.make_lane(options, session, smpp=smpp)
        stop = asyncio.Event()
        running = asyncio.create_task(dispatcher.work(lane, options, stop))
        try:
            yield
        finally:
            stop.set()
            await running
            await lane.close()


def a_route(peer: Peer, *, priority: int = 0, **settings: Any) -> None:
    RouteFactory.create(
        name=ONE,
        kind="smpp",
        priority=priority,
        settings={"host": "127.0.0.1", "port": peer.port, "system_id": "acme", **settings},
        credentials=json.dumps({"password": PASSWORD}),
    )


def accept(*texts: str, lane: str = "transactional") -> list[Message]:
    now = utc_now()
    flow = FlowFactory.create(lane=lane, channels=["sms"])
    later = now + dt.timedelta(minutes=5)
    times = {"created_at": now, "event_at": now, "expires_at": later, "first_attempt_by": None}
    messages: list[Message] = [
        QueuedFactory.create(flow=flow, lane=lane, channels=["sms"], text=text, **times) for text in texts
    ]
    queue.wake()
    return messages


def status_of(message: Message) -> str:
    message.refresh_from_db()
    return message.status


def ended(text: str, state: str) -> dict[str, Any]:
    """A receipt as an SMSC delivers it, for its first message."""
    told = f"id:00A1 sub:001 dlvrd:001 submit date:2611301200 done date:2611301201 stat:{state} err:000 text:{text}"
    return {"esm_class": 4, "source_addr": "34600000000", "destination_addr": "ACME", "short_message": told}


async def test_a_message_is_sent_and_what_the_smsc_reports_is_committed_before_it_is_acknowledged(peer: Peer) -> None:
    await in_thread(lambda: a_route(peer))
    async with working():
        (message,) = await in_thread(lambda: accept("Your code is 123456", lane="otp"))
        (got,) = await peer.until_got("submit")
        await eventually(lambda: status_of(message) == "submitted")
        await peer.order("deliver", fields=ended("Your", "DELIVRD"))
        (answer,) = await peer.until_got("deliver_answer")
        assert await in_thread(lambda: status_of(message)) == "delivered"
    assert answer["status"] == 0
    assert (got["to"], got["text"]) == ("34600000000", "Your code is 123456")
    assert len(peer.got("unbind")) == 1
    assert not await in_thread(RouteOwner.objects.exists)


async def test_a_receipt_that_cannot_be_written_is_left_to_the_smsc(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = receipts.apply_route_receipts

    def refuse(*_args: Any, **_kwargs: Any) -> int:
        raise OperationalError

    await in_thread(lambda: a_route(peer))
    async with working():
        (message,) = await in_thread(lambda: accept("Your parcel is there"))
        await eventually(lambda: status_of(message) == "submitted")
        monkeypatch.setattr(receipts, "apply_route_receipts", refuse)
        await peer.order("deliver", fields=ended("Your", "DELIVRD"))
        await peer.until_got("deliver_answer")
        assert await in_thread(lambda: status_of(message)) == "submitted"
        monkeypatch.setattr(receipts, "apply_route_receipts", whole)
        await peer.order("deliver", fields=ended("Your", "DELIVRD"))
        answers = await peer.until_got("deliver_answer", 2)
        assert await in_thread(lambda: status_of(message)) == "delivered"
    assert [answer["status"] for answer in answers] == [0x64, 0]


async def test_an_smsc_that_dies_in_the_middle_sees_nothing_twice_and_nothing_is_silently_unsent(peer: Peer) -> None:
    hung, refused = ([f"{word} {number}" for number in range(4)] for word in ("hung", "refused"))
    await in_thread(lambda: a_route(peer, binds=2))
    async with working():
        await in_thread(lambda: accept("before"))
        await peer.until_got("submit")
        await peer.order("swallow", times=len(hung))
        await in_thread(lambda: accept(*hung))
        await peer.until_got("submit", 1 + len(hung))
        await peer.die()
        await in_thread(lambda: accept(*refused))
        await eventually(lambda: of_class("connection_refused").values("message").distinct().count() == len(refused))
        await peer.start()
        await in_thread(lambda: accept("after"))
        await eventually(lambda: not Message.objects.exclude(status="submitted").exists())

    texts = await in_thread(lambda: {message.pk: message.text for message in Message.objects.all()})
    states = await in_thread(lambda: list(Attempt.objects.values_list("message", "state")))
    taken = Counter((texts[message], state) for message, state in states if state != "not_submitted")
    unknown = [(text, "unknown") for text in hung]
    accepted = [(text, "accepted") for text in ("before", *refused, "after")]
    assert taken == Counter([*unknown, *accepted])
    assert Counter(line["text"] for line in peer.got("submit")) == Counter(texts.values())


def of_class(error_class: str) -> QuerySet[Attempt]:
    return Attempt.objects.filter(error_class=error_class)


async def test_a_full_window_and_a_throttling_smsc_are_nobodys_fault(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "LATER_PAUSES", (SHORT,))
    await in_thread(lambda: a_route(peer, window=1))
    await peer.order("swallow", times=1)
    async with working():
        first, second = await in_thread(lambda: accept("first", "second"))
        await peer.until_got("submit")
        await eventually(lambda: of_class("throttled").exists())
        await peer.order("refuse", status=0x58)
        await peer.order("answer_swallowed")
        await eventually(lambda: not Message.objects.exclude(status="submitted").exists())
    for message in (first, second):
        await in_thread(message.refresh_from_db)
        assert message.attempts_charged == 1
    ends = await in_thread(lambda: set(Attempt.objects.values_list("state", "error_class", "error_code")))
    throttled = {("not_submitted", "throttled", None), ("not_submitted", "throttled", 0x58)}
    assert ends == throttled | {("accepted", "", None)}
    assert len(peer.got("submit")) == 3


# Whose messages they are


@pytest.fixture
async def mine(peer: Peer) -> AsyncIterator[tuple[Any, SmppRoutes]]:
    """A lane that has read one SMPP route and a backup, and its SMPP routes."""
    await in_thread(lambda: a_route(peer, priority=1))
    await in_thread(lambda: RouteFactory.create(name=BACKUP, settings={"latency_ms": 0}))
    options = dispatcher.DispatcherOptions(SIZES)
    async with aiohttp.ClientSession() as session:
        smpp = SmppRoutes(options.id, options.lanes, pauses=QUICK)
        lane = dispatcher.make_lane(options, session, smpp=smpp)
        yield lane, smpp
        await lane.close()


@pytest.fixture(autouse=True)
def _simulated(settings: Any) -> None:
    settings.SIMULATED_ROUTES = True


def taken_by_another() -> None:
    route_owners.take(OTHER, {ONE: Binds(True, "")}, dispatchers=1)


async def has_failed(smpp: SmppRoutes, spec: RouteSpec) -> bool:
    return not smpp.provider.is_opening(spec.name)


async def claimed(lane: Any) -> list[str]:
    lane.wake()
    return [claimed.route for claimed in await lane.feeds[0].claim(10, {})]


async def test_messages_wait_for_the_owner_of_their_route_until_its_time_is_over(
    mine: tuple[Any, SmppRoutes],
) -> None:
    lane, smpp = mine
    await in_thread(taken_by_another)
    await lane.open()
    await lane.hold_binds()
    await in_thread(lambda: accept("text", lane="otp"))
    assert await claimed(lane) == []
    await lane.read_routes()
    assert await claimed(lane) == []
    await in_thread(lambda: RouteOwner.objects.update(until=F("until") - route_owners.LIFE))
    await lane.read_routes()
    await lane.hold_binds()
    await until(lambda: is_up(smpp.provider, lane._specs[ONE]))
    assert await claimed(lane) == [ONE]


async def test_a_route_that_nobody_can_own_is_passed_over(mine: tuple[Any, SmppRoutes]) -> None:
    """As where each dispatcher serves some lanes only."""
    lane, smpp = mine
    smpp._lanes = (Lane.OTP,)
    await lane.open()
    await in_thread(lambda: accept("text", lane="otp"))
    assert await claimed(lane) == [BACKUP]
    assert not await in_thread(RouteOwner.objects.exists)


async def test_nothing_is_claimed_before_it_is_known_whether_binds_come_up(
    mine: tuple[Any, SmppRoutes], peer: Peer
) -> None:
    lane, smpp = mine
    await lane.open()
    spec = lane._specs[ONE]
    await in_thread(lambda: accept("text", lane="otp"))
    assert await claimed(lane) == []
    await peer.die()
    await lane.hold_binds()
    await until(lambda: has_failed(smpp, spec))
    assert await claimed(lane) == [ONE]


async def test_claims_end_before_binds_and_binds_before_another_may_take_the_route(
    mine: tuple[Any, SmppRoutes], peer: Peer
) -> None:
    lane, smpp = mine
    await lane.open()
    spec = lane._specs[ONE]
    await smpp.renew([spec], at=100.0, dispatchers=1)
    await smpp.hold([spec], at=100.0)
    await peer.until_got("bind")
    await until(lambda: is_up(smpp.provider, spec))
    edges = [smpp.may_carry(spec, at=at) for at in (100.0, 104.99, 105.0)]
    assert edges == [True, True, False]
    await smpp.hold([spec], at=106.99)
    assert smpp.provider.health(spec).ok
    await smpp.hold([spec], at=107.0)
    assert not smpp.provider.health(spec).ok
    assert len(await peer.until_got("unbind")) == 1


async def test_what_failed_over_imessage_is_left_to_the_owner_of_the_next_route(mine: tuple[Any, SmppRoutes]) -> None:
    """Though its flow is claimed from here, and a backup has room."""
    lane, _ = mine
    await in_thread(taken_by_another)
    await in_thread(one_that_is_not_on_imessage)
    await lane.open()
    await lane.hold_binds()
    assert await claimed(lane) == []
    await in_thread(lambda: RouteOwner.objects.update(until=F("until") - route_owners.LIFE))
    await in_thread(lambda: Message.objects.update(run_after=utc_now()))
    await in_thread(lambda: expiry.stage_due(now=utc_now()))
    await lane.read_routes()
    await lane.hold_binds()
    await until(lambda: is_up(lane._smpp.provider, lane._specs[ONE]))
    assert await claimed(lane) == [ONE]


def one_that_is_not_on_imessage() -> None:
    now = utc_now()
    host = HostFactory.create(last_seen_at=now)
    first, _ = ServerFactory.create_batch(2, host=host, region="es")
    flow = FlowFactory.create(lane="otp", channels=["imessage", "sms"])
    ends = now + dt.timedelta(minutes=5)
    times = {"created_at": now, "event_at": now, "expires_at": ends, "first_attempt_by": None}
    been = {"attempts_made": 1, "attempts_charged": 1}
    message = QueuedFactory.create(flow=flow, lane="otp", channels=["imessage", "sms"], **times, **been)
    cause = {"state": "failed", "error_class": "recipient_unreachable", "finished_at": now}
    AttemptFactory.create(message=message, server=first, **cause)
