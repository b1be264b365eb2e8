"""The slot engine, with work that is not messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from otp_service.core.engine import Engine, Feed, Rooms


@dataclass(frozen=True)
class Job:
    """One call of a lane."""

    name: str
    lane: str = "rest"


Settle = Callable[[Sequence[tuple[Job, str]]], Awaitable[None]]


def jobs(count: int, lane: str = "rest") -> list[Job]:
    return [Job(f"{lane} {n}", lane) for n in range(count)]


@dataclass
class Desk:
    """Work that waits, and what became of it. Calls end when `let_go` is set."""

    waiting: list[Job]
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    started: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def claim(self, most: int, _in_flight: Mapping[str, int]) -> Sequence[Job]:
        taken, self.waiting = self.waiting[:most], self.waiting[most:]
        return taken

    async def call(self, job: Job) -> str:
        self.started.append(job.name)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await self._tell()
        await self.let_go.wait()
        self.in_flight -= 1
        return job.name.upper()

    async def settle(self, batch: Sequence[tuple[Job, str]]) -> None:
        self.settled += [outcome for _, outcome in batch]
        await self._tell()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5), self.changed:
            await self.changed.wait_for(condition)

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()


def slots(most: int, *, left_to_otp: int = 0) -> Rooms:
    """So many calls at once, of which `rest` leaves some to otp."""

    def rooms(in_flight: Mapping[str, int]) -> Mapping[str, int]:
        free = most - in_flight.get("otp", 0) - in_flight.get("rest", 0)
        return {"otp": max(0, free), "rest": max(0, free - left_to_otp)}

    return rooms


def engine(
    desk: Desk,
    *feeds: Feed[Job],
    rooms: Rooms,
    settle: Settle | None = None,
    grace: float = 5,
    poll: timedelta = timedelta(milliseconds=20),
    settlers: int = 1,
) -> Engine[Job, str]:
    return Engine(
        feeds=feeds,
        call=desk.call,
        settle=settle or desk.settle,
        rooms=rooms,
        is_transient=lambda error: isinstance(error, ConnectionError),
        poll=poll,
        settle_every=timedelta(milliseconds=1),
        settlers=settlers,
        grace=timedelta(seconds=grace),
    )


def rest(desk: Desk) -> Feed[Job]:
    return Feed("rest", ("rest",), desk.claim)


async def stopped(running: asyncio.Task[None], stop: asyncio.Event) -> None:
    stop.set()
    async with asyncio.timeout(10):
        await running


async def test_runs_no_more_calls_than_there_are_slots() -> None:
    desk, stop = Desk(jobs(10)), asyncio.Event()
    running = asyncio.create_task(engine(desk, rest(desk), rooms=slots(3)).run(stop))
    await desk.until(lambda: len(desk.started) == 3)
    desk.let_go.set()
    await desk.until(lambda: len(desk.settled) == 10)
    await stopped(running, stop)
    assert desk.most_in_flight == 3


async def test_urgent_work_starts_while_everything_else_hangs() -> None:
    desk, stop = Desk(jobs(20)), asyncio.Event()
    urgent = Desk([])
    otp = Feed("otp", ("otp",), urgent.claim)
    running = asyncio.create_task(engine(desk, otp, rest(desk), rooms=slots(5, left_to_otp=3)).run(stop))
    await desk.until(lambda: desk.in_flight == 2)  # all that the rest may hold
    urgent.waiting += jobs(3, "otp")
    otp.wake.set()
    await desk.until(lambda: desk.in_flight == 5)
    assert sorted(desk.started[2:]) == ["otp 0", "otp 1", "otp 2"]
    desk.let_go.set()
    await stopped(running, stop)


async def test_two_feeds_that_claim_at_once_never_fill_the_same_slots() -> None:
    desk, stop = Desk([]), asyncio.Event()
    asked: dict[str, int] = {}
    both = asyncio.Event()

    def slow(lane: str) -> Callable[[int, Mapping[str, int]], Awaitable[Sequence[Job]]]:
        async def claim(most: int, _in_flight: Mapping[str, int]) -> Sequence[Job]:
            if lane in asked:
                return []
            asked[lane] = most
            if len(asked) == 1:
                async with asyncio.timeout(5):
                    await both.wait()  # the other feed looks for room while this claim runs
            return jobs(most, lane)

        return claim

    feeds = [Feed("otp", ("otp",), slow("otp")), Feed("rest", ("rest",), slow("rest"))]
    running = asyncio.create_task(engine(desk, *feeds, rooms=slots(8, left_to_otp=3)).run(stop))
    for _ in range(20):
        await asyncio.sleep(0)
    assert asked == {"otp": 8}  # the rest found no room, and did not ask
    both.set()
    desk.let_go.set()
    await desk.until(lambda: len(desk.settled) >= 8)
    await stopped(running, stop)
    assert desk.most_in_flight <= 8


async def test_a_slot_that_becomes_free_is_the_earlier_feeds_while_that_is_short() -> None:
    desk, urgent = Desk(jobs(6)), Desk(jobs(3, "otp"))
    otp, other = Feed("otp", ("otp",), urgent.claim), rest(desk)
    one = engine(desk, otp, other, rooms=slots(2))
    desk.let_go.set()

    async def got(feed: Feed[Job]) -> list[str]:
        _, taken = await one._claim(feed)
        await desk.until(lambda: not desk.in_flight and not one.in_flight.total())
        return [job.name for job in taken]

    assert await got(otp) == ["otp 0", "otp 1"]  # all that it asked for: there may be more
    assert await got(other) == []
    assert await got(otp) == ["otp 2"]
    assert await got(other) == ["rest 0", "rest 1"]


async def test_the_end_of_a_call_is_a_reason_to_look_again() -> None:
    desk, stop = Desk([]), asyncio.Event()
    ways = 1  # a way out that is free again when the call on it ends

    async def claim(_most: int, in_flight: Mapping[str, int]) -> Sequence[Job]:
        return await desk.claim(ways - in_flight["rest"], in_flight)

    desk.waiting = jobs(2)
    one = engine(desk, Feed("rest", ("rest",), claim), rooms=slots(10), poll=timedelta(hours=1))
    running = asyncio.create_task(one.run(stop))
    await desk.until(lambda: desk.started == ["rest 0"])
    for _ in range(5):
        await asyncio.sleep(0)
    desk.let_go.set()
    await desk.until(lambda: desk.settled == ["REST 0", "REST 1"])
    await stopped(running, stop)


async def test_a_feed_without_room_takes_no_other_feeds_news_of_a_freed_slot() -> None:
    desk, urgent, stop = Desk(jobs(9)), Desk(jobs(2, "otp")), asyncio.Event()

    def rooms(in_flight: Mapping[str, int]) -> Mapping[str, int]:
        return {"otp": 5, "rest": 1 - in_flight["rest"]}

    async def one_at_a_time(_most: int, in_flight: Mapping[str, int]) -> Sequence[Job]:
        found = await urgent.claim(1 - in_flight["otp"], in_flight)
        if not found:
            looked_in_vain.set()
        return found

    looked_in_vain = asyncio.Event()
    ends = {name: asyncio.Event() for name in ("otp 0", "otp 1", "rest 0")}

    async def call(job: Job) -> str:
        desk.started.append(job.name)
        await desk._tell()
        await ends[job.name].wait()
        return job.name

    one = engine(desk, Feed("otp", ("otp",), one_at_a_time), rest(desk), rooms=rooms, poll=timedelta(hours=1))
    one._call = call
    running = asyncio.create_task(one.run(stop))
    await desk.until(lambda: sorted(desk.started) == ["otp 0", "rest 0"])
    async with asyncio.timeout(5):
        await looked_in_vain.wait()
    ends["otp 0"].set()  # before it waits for that
    await desk.until(lambda: desk.started[2:] == ["otp 1"])
    for end in ends.values():
        end.set()
    await stopped(running, stop)


async def test_a_wake_up_starts_work_without_waiting_for_the_poll() -> None:
    desk, stop = Desk([]), asyncio.Event()
    looked = asyncio.Event()

    async def claim(most: int, in_flight: Mapping[str, int]) -> Sequence[Job]:
        looked.set()
        return await desk.claim(most, in_flight)

    feed = Feed("otp", ("otp",), claim)
    running = asyncio.create_task(engine(desk, feed, rooms=slots(2), poll=timedelta(hours=1)).run(stop))
    async with asyncio.timeout(5):
        await looked.wait()
    for _ in range(5):
        await asyncio.sleep(0)  # it has found nothing, and goes to wait
    desk.waiting.append(Job("job", "otp"))
    feed.wake.set()
    await desk.until(lambda: desk.started == ["job"])
    desk.let_go.set()
    await stopped(running, stop)


async def test_stopping_lets_calls_end_and_settles_them() -> None:
    desk, stop = Desk([Job("job")]), asyncio.Event()
    running = asyncio.create_task(engine(desk, rest(desk), rooms=slots(1)).run(stop))
    await desk.until(lambda: desk.started == ["job"])
    stop.set()
    too_late = Job("too late")
    desk.waiting.append(too_late)
    await asyncio.sleep(0)
    desk.let_go.set()
    await stopped(running, stop)
    assert desk.settled == ["JOB"]
    assert desk.waiting == [too_late]


async def test_stopping_does_not_wait_longer_than_the_grace_for_a_hanging_call() -> None:
    desk, stop = Desk([Job("job")]), asyncio.Event()
    running = asyncio.create_task(engine(desk, rest(desk), rooms=slots(1), grace=0.05).run(stop))
    await desk.until(lambda: desk.started == ["job"])
    await stopped(running, stop)
    assert desk.settled == []


async def test_a_result_is_kept_until_the_database_takes_it() -> None:
    desk, stop = Desk([Job("job")]), asyncio.Event()
    desk.let_go.set()
    refusals = [ConnectionError(), ConnectionError()]

    async def settle(batch: Sequence[tuple[Job, str]]) -> None:
        if refusals:
            raise refusals.pop()
        await desk.settle(batch)

    running = asyncio.create_task(engine(desk, rest(desk), rooms=slots(1), settle=settle).run(stop))
    await desk.until(lambda: desk.settled == ["JOB"])
    await stopped(running, stop)


async def test_a_batch_is_settled_while_another_waits_for_its_commit() -> None:
    desk, stop = Desk(jobs(2)), asyncio.Event()
    being_written, committed = asyncio.Event(), asyncio.Event()

    async def call(job: Job) -> str:
        if job.name == "rest 1":
            await being_written.wait()
        return job.name

    async def settle(batch: Sequence[tuple[Job, str]]) -> None:
        if batch[0][1] == "rest 0":
            being_written.set()
            await committed.wait()
        await desk.settle(batch)

    one = engine(desk, rest(desk), rooms=slots(2), settle=settle, settlers=2)
    one._call = call
    running = asyncio.create_task(one.run(stop))
    await desk.until(lambda: desk.settled == ["rest 1"])
    committed.set()
    await stopped(running, stop)
    assert desk.settled == ["rest 1", "rest 0"]


async def test_one_result_that_cannot_be_written_holds_up_no_other() -> None:
    desk, stop = Desk([Job("good"), Job("poison"), Job("fine")]), asyncio.Event()
    desk.let_go.set()

    async def settle(batch: Sequence[tuple[Job, str]]) -> None:
        if any(job.name == "poison" for job, _ in batch):
            raise ValueError
        await desk.settle(batch)

    running = asyncio.create_task(engine(desk, rest(desk), rooms=slots(3), settle=settle).run(stop))
    await desk.until(lambda: sorted(desk.settled) == ["FINE", "GOOD"])
    await stopped(running, stop)


async def test_a_claim_that_fails_is_tried_again_and_holds_no_slot() -> None:
    desk, stop = Desk([Job("job")]), asyncio.Event()
    desk.let_go.set()
    refusals = [ConnectionError()]

    async def claim(most: int, in_flight: Mapping[str, int]) -> Sequence[Job]:
        if refusals:
            raise refusals.pop()
        return await desk.claim(most, in_flight)

    one = engine(desk, Feed("rest", ("rest",), claim), rooms=slots(1))
    running = asyncio.create_task(one.run(stop))
    await desk.until(lambda: desk.settled == ["JOB"])
    await stopped(running, stop)
    assert +one.in_flight == {}
