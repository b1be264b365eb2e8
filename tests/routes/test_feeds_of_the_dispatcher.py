"""What a feed claims: flows that it knows, routes that have room, rates that are used up or given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import aiohttp
import pytest
import pytest_asyncio
import redis
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.db import OperationalError, connection

from otp_service.core.clock import utc_now
from otp_service.core.engine import Feed
from otp_service.core.outcomes import SubmitResult
from otp_service.messages.models import Flow
from otp_service.messages.rules import Lane
from otp_service.routes.bulkheads import Bulkheads
from otp_service.routes.claim import Claimed
from otp_service.routes.lane import MessageLane
from otp_service.routes.models import Route, RouteDay
from otp_service.routes.rates import Rates
from otp_service.routes.route_rules import RouteKind
from scheduler import dispatcher
from scheduler.rules import SlotSizes
from tests.factories import FlowFactory, HostFactory, QueuedFactory, RouteFactory, ServerFactory
from tests.routes.steps import ACCEPTED, NOT_CONNECTED, SIGNED_OUT, THROTTLED, UNKNOWN

pytestmark = pytest.mark.django_db(transaction=True)
OPTIONS = dispatcher.DispatcherOptions(SlotSizes(floor=2, shared=20, reserve=6, promo_floor=1))

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    def closing() -> T:
        try:
            return work()
        finally:
            connection.close()

    return await sync_to_async(closing, thread_sensitive=False)()


@pytest.fixture(autouse=True)
def _simulated(settings: Any) -> None:
    settings.SIMULATED_ROUTES = True


@pytest_asyncio.fixture
async def lane() -> AsyncIterator[MessageLane]:
    async with aiohttp.ClientSession() as session:
        made = dispatcher.make_lane(OPTIONS, session)
        try:
            yield made
        finally:
            await made.close()


def otp_and_rest(lane: MessageLane) -> tuple[Feed[Claimed], Feed[Claimed]]:
    otp, rest = lane.feeds
    return otp, rest


def queued(lane: str, count: int, **fields: object) -> Flow:
    """So many messages that only SMS may carry."""
    flow = FlowFactory.create(lane=lane, **{"channels": ["sms"], **fields})
    now = utc_now()
    QueuedFactory.create_batch(
        count, flow=flow, lane=lane, created_at=now, event_at=now, expires_at=now.replace(year=now.year + 1)
    )
    return flow


async def claimed(feed: Feed[Claimed], most: int = 100) -> list[str]:
    return sorted(one.lane.value for one in await feed.claim(most, {}))


async def test_each_feed_claims_its_own_lanes(lane: MessageLane) -> None:
    await in_thread(lambda: RouteFactory.create(name="sms:one"))
    for name in Lane:
        await in_thread(partial(queued, name.value, 2))
    await lane.open()
    otp, rest = otp_and_rest(lane)
    assert sorted(await claimed(rest) + await claimed(rest)) == ["promo", "promo", "transactional", "transactional"]
    assert await claimed(otp) == ["otp", "otp"]


async def test_promo_leaves_a_route_to_otp_that_it_could_fill(lane: MessageLane) -> None:
    await in_thread(lambda: RouteFactory.create(name="sms:one", in_flight_cap=10))
    await in_thread(lambda: queued("promo", 20))
    await in_thread(lambda: queued("otp", 20))
    await lane.open()
    otp, rest = otp_and_rest(lane)
    assert len(await claimed(rest)) == 7
    assert await claimed(rest) == []
    assert len(await claimed(otp)) == 3


async def test_what_a_rate_granted_and_nobody_used_is_given_back(lane: MessageLane) -> None:
    name = f"sms:{uuid4().hex}"
    await in_thread(lambda: RouteFactory.create(name=name, tps=0.001, daily_quota=5, settings={"latency_ms": 0}))
    await in_thread(lambda: queued("otp", 1))
    await lane.open()
    otp, _ = otp_and_rest(lane)
    (one,) = await otp.claim(100, {})
    await lane.call(one)
    await in_thread(lambda: queued("otp", 1))
    lane.wake()
    assert await claimed(otp) == []  # its one token is used
    with redis.Redis.from_url(django_settings.REDIS_URL) as store:
        await in_thread(lambda: store.delete(f"otp:rate:{name}"))
    assert await claimed(otp) == ["otp"]
    assert await in_thread(lambda: RouteDay.objects.get(route=name).used) == 2  # of up to 100 that were asked for


async def test_a_wake_up_shows_a_flow_that_was_empty_a_moment_ago(lane: MessageLane) -> None:
    await in_thread(lambda: RouteFactory.create(name="sms:one"))
    await lane.open()
    otp, _ = otp_and_rest(lane)
    assert await claimed(otp) == []
    await in_thread(lambda: queued("otp", 1))
    lane.wake()
    assert otp.wake.is_set()
    assert await claimed(otp) == ["otp"]


async def test_a_route_that_is_switched_off_is_claimed_for_no_more(lane: MessageLane) -> None:
    await in_thread(lambda: RouteFactory.create(name="sms:one"))
    await in_thread(lambda: queued("promo", 2))
    await lane.open()
    await in_thread(lambda: Route.objects.filter(name="sms:one").update(enabled=False))
    await lane.read_routes()
    _, rest = otp_and_rest(lane)
    assert await claimed(rest) == []
    await in_thread(lambda: Route.objects.filter(name="sms:one").update(enabled=True))
    await lane.read_routes()
    assert len(await claimed(rest)) == 2


async def test_what_was_claimed_is_sent_although_a_rate_cannot_be_given_back(
    lane: MessageLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_given: object, **_named: object) -> None:
        raise OperationalError

    await in_thread(lambda: RouteFactory.create(name="sms:one", daily_quota=50))
    await in_thread(lambda: queued("otp", 1))
    await lane.open()
    monkeypatch.setattr(Rates, "give_back", fails)
    otp, _ = otp_and_rest(lane)
    assert await claimed(otp) == ["otp"]


async def test_two_feeds_that_claim_at_once_give_a_route_no_more_than_its_cap(lane: MessageLane) -> None:
    await in_thread(lambda: RouteFactory.create(name="sms:one", in_flight_cap=10))
    await in_thread(lambda: queued("promo", 20))
    await in_thread(lambda: queued("otp", 20))
    await lane.open()
    otp, rest = otp_and_rest(lane)
    got = await asyncio.gather(rest.claim(100, {}), otp.claim(100, {}), rest.claim(100, {}))
    assert sum(map(len, got)) <= 10


def pool_of(servers: int) -> None:
    now = utc_now()
    host = HostFactory.create(last_seen_at=now)
    ServerFactory.create_batch(servers, host=host, next_send_date=now - timedelta(minutes=1))


async def test_a_promotion_leaves_servers_of_a_pool_to_otp_however_often_it_looks(lane: MessageLane) -> None:
    await in_thread(lambda: pool_of(10))
    await in_thread(lambda: queued("promo", 20, channels=["imessage"]))
    await lane.open()
    otp, rest = otp_and_rest(lane)
    got = [len(await claimed(rest)) for _ in range(6)]
    assert sum(got) == 7
    await in_thread(lambda: queued("otp", 3, channels=["imessage"]))
    lane.wake()
    assert await claimed(otp) == ["otp"] * 3


@pytest.mark.parametrize("most", [100, 12, 3])
async def test_a_pool_that_is_larger_than_a_claim_is_not_taken_for_empty(lane: MessageLane, most: int) -> None:
    await in_thread(lambda: pool_of(15))
    await in_thread(lambda: queued("promo", 30, channels=["imessage"]))
    await lane.open()
    _, rest = otp_and_rest(lane)
    got = [len(await claimed(rest, most)) for _ in range(8)]
    assert sum(got) == 11
    assert max(got) <= most


@pytest.mark.parametrize("limit", [{"in_flight_cap": 1}, {"tps": 0.001}, {"daily_quota": 1}])
async def test_promo_stands_back_while_an_otp_waits_for_the_one_call_that_there_is(
    lane: MessageLane, limit: dict[str, object]
) -> None:
    await in_thread(lambda: RouteFactory.create(name=f"sms:{uuid4().hex}", **limit))
    await in_thread(lambda: queued("promo", 5))
    await in_thread(lambda: queued("otp", 1))
    await lane.open()
    otp, rest = otp_and_rest(lane)
    assert not await otp.claim(0, {})  # it has seen the otp, and has no slot for it yet
    assert await claimed(rest) == []
    assert await claimed(otp) == ["otp"]


async def test_promo_takes_the_one_call_that_there_is_when_no_otp_waits(lane: MessageLane) -> None:
    await in_thread(lambda: RouteFactory.create(name="sms:one", in_flight_cap=1))
    await in_thread(lambda: queued("promo", 5))
    await lane.open()
    _, rest = otp_and_rest(lane)
    assert await claimed(rest) == ["promo"]


async def test_a_routes_cap_is_shared_by_the_dispatchers_that_live(lane: MessageLane) -> None:
    await in_thread(lambda: RouteFactory.create(name="sms:one", in_flight_cap=9))
    await in_thread(lambda: queued("otp", 9))
    await lane.open()
    lane.dispatchers = 3
    await lane.read_routes()
    otp, _ = otp_and_rest(lane)
    assert await claimed(otp) == ["otp"] * 3


class Answers:
    """A provider that answers always the same."""

    def __init__(self, result: SubmitResult) -> None:
        self._result = result

    async def submit(self, session: aiohttp.ClientSession, claimed: Claimed) -> SubmitResult:
        return self._result


@pytest.mark.parametrize(
    ("result", "in_health"),
    [
        pytest.param(ACCEPTED, True, id="it took the message"),
        pytest.param(SIGNED_OUT, True, id="a refusal is an answer"),
        pytest.param(THROTTLED, False, id="too many calls already"),
        pytest.param(NOT_CONNECTED, False, id="it is not there"),
        pytest.param(UNKNOWN, False, id="no clear answer"),
    ],
)
async def test_what_a_call_says_of_its_routes_health(
    result: SubmitResult, in_health: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bool] = []
    monkeypatch.setattr(Bulkheads, "ended", lambda _self, _key, _at, *, ok: said.append(ok))
    await in_thread(lambda: RouteFactory.create(name="sms:one"))
    await in_thread(lambda: queued("otp", 1))
    async with aiohttp.ClientSession() as session:
        lane = dispatcher.make_lane(OPTIONS, session, providers={RouteKind.SIMULATED: Answers(result)})
        try:
            await lane.open()
            otp, _ = otp_and_rest(lane)
            (one,) = await otp.claim(100, {})
            assert (await lane.call(one)).result == result
        finally:
            await lane.close()
    assert said == [in_health]
