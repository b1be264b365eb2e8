"""A route that fails is left alone by dispatchers, tried again by a few probes, and trusted again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from itertools import cycle
from typing import Any, TypeVar
from uuid import uuid4

import aiohttp
import pytest
import redis
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.db import connection

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult
from otp_service.messages.models import Attempt, Flow, Message
from otp_service.routes import breakers
from otp_service.routes.breaker_models import Breaker, ProbeTicket
from otp_service.routes.breaker_rules import PAUSES
from otp_service.routes.claim import Claimed
from otp_service.routes.lane import LONGEST_REST, MessageLane
from otp_service.routes.models import Route, RouteDay
from otp_service.routes.rates import Rates
from otp_service.routes.route_rules import RouteKind
from scheduler import dispatcher
from scheduler.rules import SlotSizes
from tests.factories import FlowFactory, QueuedFactory, RouteFactory
from tests.routes.steps import ACCEPTED, UNKNOWN

pytestmark = pytest.mark.django_db(transaction=True)

OPTIONS = dispatcher.DispatcherOptions(SlotSizes(floor=50, shared=50, reserve=10, promo_floor=5))
#: Its next route is asked for at once.
REJECTED = SubmitResult(Submission.REFUSED, error_class=ErrorClass.ROUTE_REJECTED)

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


class Answers:
    """A provider that takes everything, but on one route answers what it is told to, in turn."""

    def __init__(self, route: str) -> None:
        self._route = route
        self.says(ACCEPTED)

    def says(self, *results: SubmitResult) -> None:
        """From now on, again and again."""
        self._results: Iterator[SubmitResult] = cycle(results)

    async def submit(self, session: aiohttp.ClientSession, claimed: Claimed) -> SubmitResult:
        return next(self._results) if claimed.route == self._route else ACCEPTED


class Way:
    """A dispatcher, the route that it prefers, and the one behind it."""

    def __init__(self, lane: MessageLane, name: str, provider: Answers) -> None:
        self.lane, self.name, self.provider = lane, name, provider

    @property
    def behind(self) -> str:
        return f"{self.name}-behind"

    async def send(self, lane: str = "otp", count: int = 0) -> Counter[str]:
        """Accept so many messages, and let the dispatcher claim, call and settle once; by route, how many went."""
        claimed = await self.claim(lane, count)
        await self.lane.settle([(one, await self.lane.call(one)) for one in claimed])
        return Counter(one.route for one in claimed)

    async def claim(self, lane: str = "otp", count: int = 0) -> list[Claimed]:
        if count:
            await in_thread(partial(queued, lane, count))
        self.lane.wake()
        feed = next(feed for feed in self.lane.feeds if lane in feed.lanes)
        return list(await feed.claim(100, {}))

    async def look(self) -> Breaker:
        """What the dispatcher does every second."""
        (work,) = [work for name, _, work in self.lane.chores() if name == "breakers"]
        await work()
        return await in_thread(lambda: Breaker.objects.filter(route=self.name).first() or Breaker(route=self.name))

    async def open(self) -> Breaker:
        """Let it fail until its breaker opens."""
        self.provider.says(REJECTED)
        await self.send(count=20)
        await self.send()
        self.provider.says(ACCEPTED)
        return await self.look()

    async def pause_ends(self) -> Breaker:
        await in_thread(lambda: Breaker.objects.filter(route=self.name).update(until=utc_now()))
        return await self.look()


def queued(lane: str, count: int, channels: Sequence[str] = ("sms",)) -> Flow:
    """So many messages; only SMS may carry them, if nothing else is said."""
    now = utc_now()
    flow = FlowFactory.create(lane=lane, channels=list(channels))
    times = {"created_at": now, "event_at": now, "expires_at": now + timedelta(minutes=5), "first_attempt_by": None}
    QueuedFactory.create_batch(count, flow=flow, lane=lane, **times)
    return flow


@pytest.fixture
def name() -> str:
    return f"sms:{uuid4().hex}"


@asynccontextmanager
async def dispatcher_of(name: str) -> AsyncIterator[Way]:
    provider = Answers(name)
    async with aiohttp.ClientSession() as session:
        lane = dispatcher.make_lane(OPTIONS, session, providers={RouteKind.SIMULATED: provider})
        try:
            await lane.open()
            yield Way(lane, name, provider)
        finally:
            await lane.close()


@pytest.fixture
async def routes(name: str) -> None:
    await in_thread(lambda: RouteFactory.create(name=name, priority=1))
    await in_thread(lambda: RouteFactory.create(name=f"{name}-behind"))


@pytest.fixture
async def way(name: str, routes: None) -> AsyncIterator[Way]:
    async with dispatcher_of(name) as made:
        yield made


async def test_half_of_twenty_calls_that_fail_open_it_and_messages_go_over_the_next_route(way: Way) -> None:
    way.provider.says(REJECTED, ACCEPTED)
    assert await way.send(count=20) == {way.name: 20}
    row = await way.look()
    assert (row.state, row.generation, row.pause) == ("open", 1, PAUSES[0])
    assert await way.send(count=3) == {way.behind: 10 + 3}
    refusals = await in_thread(lambda: Attempt.objects.filter(route=way.behind, number=1).first().refusals)  # type: ignore[union-attr]  # there are three
    assert refusals == {way.name: "breaker_open"}
    assert way.lane.stats()["breakers"] == {way.name: "open", way.behind: "closed"}


@pytest.mark.parametrize(("bad", "good"), [(9, 11), (9, 10)], ids=["less than half of twenty", "of fewer than twenty"])
async def test_less_does_not_open_it(way: Way, bad: int, good: int) -> None:
    way.provider.says(*[REJECTED] * bad, *[ACCEPTED] * good)
    await way.send(count=bad + good)
    assert (await way.look()).state == "closed"


async def test_one_time_out_never_opens_it(way: Way) -> None:
    way.provider.says(UNKNOWN)
    await way.send(count=1)
    assert (await way.look()).state == "closed"
    way.provider.says(ACCEPTED)
    assert await way.send(count=19) == {way.name: 19}
    assert (await way.look()).state == "closed"


async def test_it_carries_nothing_until_its_pause_is_over_and_then_five_probes_close_it(way: Way) -> None:
    await way.open()
    assert await way.send("promo", 3) == {way.behind: 3}
    assert (await way.pause_ends()).state == "half_open"
    assert await way.send(count=12) == {way.name: 5, way.behind: 7}
    assert (await way.look()).state == "closed"
    tickets = await in_thread(lambda: list(ProbeTicket.objects.values_list("good", flat=True)))
    assert tickets == [True] * 5
    (one,) = await way.claim(count=1)
    assert (one.route, one.generation, one.ticket) == (way.name, 3, None)


async def test_probes_that_fail_open_it_for_longer(way: Way) -> None:
    await way.open()
    for pause in PAUSES[1:]:
        await way.pause_ends()
        way.provider.says(REJECTED)
        await way.send(count=5)
        row = await way.look()
        assert (row.state, row.pause) == ("open", pause)


async def test_calls_of_before_it_opened_do_not_open_it_again(way: Way) -> None:
    way.provider.says(REJECTED)
    late = await way.claim(count=30)
    await way.open()
    await way.pause_ends()
    await way.send(count=5)
    assert (await way.look()).state == "closed"
    way.provider.says(REJECTED)
    await way.lane.settle([(one, await way.lane.call(one)) for one in late])
    assert (await way.look()).state == "closed"


async def test_no_rate_and_no_quota_is_asked_for_while_it_is_open(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    take = Rates.take

    def noted(self: Rates, wanted: Mapping[str, int], *given: Any, **named: Any) -> dict[str, int]:
        asked.append(wanted[name])
        return take(self, wanted, *given, **named)

    await in_thread(lambda: RouteFactory.create(name=name, priority=1, daily_quota=1_000))
    await in_thread(lambda: RouteFactory.create(name=f"{name}-behind"))
    async with dispatcher_of(name) as way:
        await way.open()
        monkeypatch.setattr(Rates, "take", noted)
        await way.send("promo", 3)
        await way.pause_ends()
        await way.send(count=8)
    assert asked == [0, 5]
    assert await in_thread(lambda: RouteDay.objects.get(route=name).used) == 20 + 5


async def test_an_empty_redis_neither_closes_nor_freezes_it(way: Way) -> None:
    await way.open()
    assert await in_thread(lambda: forget(way.name)) > 0
    assert (await way.look()).state == "open"
    assert (await way.pause_ends()).state == "half_open"
    await way.send(count=5)
    await in_thread(lambda: forget(way.name))
    assert (await way.look()).state == "closed"


def forget(name: str) -> int:
    """As FLUSHALL would, of this route."""
    with redis.Redis.from_url(django_settings.REDIS_URL) as store:
        return int(store.delete(*store.scan_iter(f"otp:breaker:*{name}:*"), "-"))


async def test_probes_of_a_dispatcher_that_was_killed_make_place_for_others(way: Way) -> None:
    await way.open()
    await way.pause_ends()
    killed = await way.claim(count=5)
    assert [one.route for one in killed] == [way.name] * 5
    async with dispatcher_of(way.name) as other:
        assert await other.send(count=5) == {way.behind: 5}
        await in_thread(lambda: ProbeTicket.objects.update(expires_at=utc_now()))
        assert await other.send(count=5) == {way.name: 5}
        assert (await other.look()).state == "closed"


async def test_two_dispatchers_share_five_probes(way: Way) -> None:
    await way.open()
    await way.pause_ends()
    async with dispatcher_of(way.name) as other:
        await in_thread(partial(queued, "otp", 30))
        got = await asyncio.gather(way.claim(), other.claim())
    routes = Counter(one.route for batch in got for one in batch)
    assert routes[way.name] == 5
    tickets = await in_thread(lambda: set(ProbeTicket.objects.values_list("attempt_id", flat=True)))
    assert tickets == {one.attempt_id for batch in got for one in batch if one.route == way.name}


async def test_tickets_that_a_claim_has_no_use_for_are_given_back(way: Way) -> None:
    await way.open()
    await way.pause_ends()
    assert await way.send(count=2) == {way.name: 2}
    assert await in_thread(ProbeTicket.objects.count) == 2


async def test_an_isolated_route_is_not_used_by_a_dispatcher_that_starts(name: str, routes: None) -> None:
    await in_thread(lambda: breakers.isolate(name, by="ada", reason="no balance", now=utc_now()))
    async with dispatcher_of(name) as way:
        for lane in ("otp", "promo"):
            assert await way.send(lane, 1) == {way.behind: 1}
        await in_thread(lambda: breakers.enable(name, by="ada", reason="paid", now=utc_now()))
        await way.look()
        assert await way.send(count=25) == {name: 25}


async def test_messages_of_an_isolated_route_wait_where_there_is_no_other(name: str) -> None:
    await in_thread(lambda: RouteFactory.create(name=name))
    await in_thread(lambda: breakers.isolate(name, by="ada", reason="no balance", now=utc_now()))
    async with dispatcher_of(name) as way:
        assert await way.send(count=2) == {}
        # They were not even claimed, to be put back.
        assert await in_thread(lambda: set(Message.objects.values_list("status", flat=True))) == {"queued"}


async def test_an_otp_that_has_no_other_way_probes_an_open_route(name: str) -> None:
    """The other route is there, and serves other numbers."""
    await in_thread(lambda: RouteFactory.create(name=name, priority=1))
    await in_thread(lambda: RouteFactory.create(name=f"{name}-behind", prefixes=["+1"]))
    async with dispatcher_of(name) as way:
        await in_thread(partial(queued, "otp", 20))
        way.provider.says(UNKNOWN)
        await way.send()
        assert (await way.look()).state == "open"
        assert await way.send("promo", 3) == {}
        way.provider.says(ACCEPTED)
        probes = await way.claim(count=8)
        assert [one.route for one in probes] == [name] * 5
        assert len({one.ticket for one in probes} - {None}) == 5
        await way.lane.settle([(one, await way.lane.call(one)) for one in probes])
        assert (await way.look()).state == "open"  # until its pause is over
        assert await way.send(count=2) == {name: 2}


async def test_an_otp_whose_pool_has_no_server_to_spare_probes_an_open_route(name: str) -> None:
    await in_thread(lambda: RouteFactory.create(name=name))
    async with dispatcher_of(name) as way:
        await way.open()
        await in_thread(partial(queued, "transactional", 2, ("imessage", "sms")))
        assert await way.send("transactional") == {}
        flow = await in_thread(partial(queued, "otp", 8, ("imessage", "sms")))
        assert await way.send() == {name: 5}
        attempt = await in_thread(lambda: Attempt.objects.filter(message__flow=flow).first())
        assert attempt is not None
        assert attempt.refusals == {f"imessage:{flow.pools[0]}": "no_capacity"}


async def test_an_otp_that_has_another_way_leaves_an_open_route_alone(way: Way) -> None:
    await way.open()
    assert await way.send(count=8) == {way.behind: 8}
    assert await in_thread(ProbeTicket.objects.count) == 0


async def test_a_route_that_asks_for_time_gets_it_from_all_messages(way: Way) -> None:
    """The dispatcher that was told leaves it alone: others go over the next route meanwhile."""
    busy = SubmitResult(Submission.REFUSED, error_class=ErrorClass.THROTTLED, retry_after=timedelta(hours=1))
    way.provider.says(busy)
    assert await way.send(count=1) == {way.name: 1}
    assert await way.send(count=3) == {way.behind: 3}
    assert way.lane._rest_until[way.name] <= time.monotonic() + LONGEST_REST.total_seconds()
    way.lane._rest_until[way.name] = time.monotonic()
    way.provider.says(ACCEPTED)
    assert await way.send(count=3) == {way.name: 3}


async def test_one_that_only_says_no_is_asked_again(way: Way) -> None:
    way.provider.says(SubmitResult(Submission.REFUSED, error_class=ErrorClass.THROTTLED))
    assert await way.send(count=1) == {way.name: 1}
    assert await way.send(count=1) == {way.name: 1}


async def test_nothing_is_claimed_for_routes_that_are_closed(way: Way) -> None:
    """Nor put back all the time until they open."""
    now = utc_now()
    closed = {"opens_at": (now + timedelta(hours=1)).time(), "closes_at": (now + timedelta(hours=2)).time()}
    await in_thread(lambda: Route.objects.update(**closed))
    await way.lane.read_routes()
    assert await way.claim("promo", 3) == []
    assert await in_thread(lambda: set(Message.objects.values_list("status", flat=True))) == {"queued"}
