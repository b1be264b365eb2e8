"""The slot engine, with work that is not messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from otp_service.core.engine import Engine, Feed, Slots

Settle = Callable[[Sequence[tuple[str, str]]], Awaitable[None]]


@dataclass
class Desk:
    """Work that waits, and what became of it. Calls end when `let_go` is set."""

    waiting: list[str]
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    started: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def claim(self, room: int) -> Sequence[str]:
        taken, self.waiting = self.waiting[:room], self.waiting[room:]
        return taken

    async def call(self, job: str) -> str:
        self.started.append(job)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await self._tell()
        await self.let_go.wait()
        self.in_flight -= 1
        return job.upper()

    async def settle(self, batch: Sequence[tuple[str, str]]) -> None:
        self.settled += [outcome for _, outcome in batch]
        await self._tell()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5), self.changed:
            await self.changed.wait_for(condition)

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()


def engine(
    desk: Desk, *feeds: Feed[str], slots: Slots, settle: Settle | None = None, grace: float = 5
) -> Engine[str, str]:
    return Engine(
        feeds=feeds,
        call=desk.call,
        settle=settle or desk.settle,
        slots=slots,
        is_transient=lambda error: isinstance(error, ConnectionError),
        poll=timedelta(milliseconds=20),
        settle_every=timedelta(milliseconds=1),
        grace=timedelta(seconds=grace),
    )


async def stopped(running: asyncio.Task[None], stop: asyncio.Event) -> None:
    stop.set()
    async with asyncio.timeout(10):
        await running


async def test_runs_no_more_calls_than_there_are_slots() -> None:
    desk, stop = Desk([f"job {n}" for n in range(10)]), asyncio.Event()
    running = asyncio.create_task(engine(desk, Feed("rest", False, desk.claim), slots=Slots(0, 3)).run(stop))
    await desk.until(lambda: len(desk.started) == 3)
    desk.let_go.set()
    await desk.until(lambda: len(desk.settled) == 10)
    await stopped(running, stop)
    assert desk.most_in_flight == 3


async def test_work_that_is_not_urgent_leaves_the_floor_and_the_reserve_free() -> None:
    desk, stop = Desk([f"job {n}" for n in range(10)]), asyncio.Event()
    running = asyncio.create_task(engine(desk, Feed("rest", False, desk.claim), slots=Slots(2, 5, reserve=2)).run(stop))
    await desk.until(lambda: len(desk.started) == 3)
    desk.let_go.set()
    await stopped(running, stop)
    assert desk.most_in_flight == 3


async def test_urgent_work_starts_while_everything_else_hangs() -> None:
    desk, stop = Desk([f"promo {n}" for n in range(20)]), asyncio.Event()
    urgent: list[str] = []

    async def claim_urgent(room: int) -> Sequence[str]:
        taken, urgent[:] = urgent[:room], urgent[room:]
        return taken

    otp = Feed("otp", True, claim_urgent)
    running = asyncio.create_task(
        engine(desk, otp, Feed("rest", False, desk.claim), slots=Slots(1, 4, reserve=2)).run(stop)
    )
    await desk.until(lambda: desk.in_flight == 2)  # all that promo may hold
    urgent += ["otp 1", "otp 2", "otp 3"]
    otp.wake.set()
    await desk.until(lambda: desk.in_flight == 5)  # one on the floor, two borrowed from the reserve
    assert sorted(desk.started[2:]) == ["otp 1", "otp 2", "otp 3"]
    desk.let_go.set()
    await stopped(running, stop)


async def test_a_wake_up_starts_work_without_waiting_for_the_poll() -> None:
    desk, stop = Desk([]), asyncio.Event()
    looked = asyncio.Event()

    async def claim(room: int) -> Sequence[str]:
        looked.set()
        return await desk.claim(room)

    feed = Feed("otp", True, claim)
    slow_poll = Engine[str, str](
        feeds=[feed],
        call=desk.call,
        settle=desk.settle,
        slots=Slots(1, 1),
        is_transient=lambda _error: True,
        poll=timedelta(hours=1),
    )
    running = asyncio.create_task(slow_poll.run(stop))
    async with asyncio.timeout(5):
        await looked.wait()
    for _ in range(5):
        await asyncio.sleep(0)  # it has found nothing, and goes to wait
    desk.waiting.append("job")
    feed.wake.set()
    await desk.until(lambda: desk.started == ["job"])
    desk.let_go.set()
    await stopped(running, stop)


async def test_stopping_lets_calls_end_and_settles_them() -> None:
    desk, stop = Desk(["job"]), asyncio.Event()
    running = asyncio.create_task(engine(desk, Feed("rest", False, desk.claim), slots=Slots(0, 1)).run(stop))
    await desk.until(lambda: desk.started == ["job"])
    stop.set()
    desk.waiting.append("too late")
    await asyncio.sleep(0)
    desk.let_go.set()
    await stopped(running, stop)
    assert desk.settled == ["JOB"]
    assert desk.waiting == ["too late"]


async def test_stopping_does_not_wait_longer_than_the_grace_for_a_hanging_call() -> None:
    desk, stop = Desk(["job"]), asyncio.Event()
    running = asyncio.create_task(
        engine(desk, Feed("rest", False, desk.claim), slots=Slots(0, 1), grace=0.05).run(stop)
    )
    await desk.until(lambda: desk.started == ["job"])
    await stopped(running, stop)
    assert desk.settled == []


async def test_a_result_is_kept_until_the_database_takes_it() -> None:
    desk, stop = Desk(["job"]), asyncio.Event()
    desk.let_go.set()
    refusals = [ConnectionError(), ConnectionError()]

    async def settle(batch: Sequence[tuple[str, str]]) -> None:
        if refusals:
            raise refusals.pop()
        await desk.settle(batch)

    running = asyncio.create_task(
        engine(desk, Feed("rest", False, desk.claim), slots=Slots(0, 1), settle=settle).run(stop)
    )
    await desk.until(lambda: desk.settled == ["JOB"])
    await stopped(running, stop)


async def test_one_result_that_cannot_be_written_holds_up_no_other() -> None:
    desk, stop = Desk(["good", "poison", "fine"]), asyncio.Event()
    desk.let_go.set()

    async def settle(batch: Sequence[tuple[str, str]]) -> None:
        if any(job == "poison" for job, _ in batch):
            raise ValueError
        await desk.settle(batch)

    running = asyncio.create_task(
        engine(desk, Feed("rest", False, desk.claim), slots=Slots(0, 3), settle=settle).run(stop)
    )
    await desk.until(lambda: sorted(desk.settled) == ["FINE", "GOOD"])
    await stopped(running, stop)


async def test_a_claim_that_fails_is_tried_again() -> None:
    desk, stop = Desk(["job"]), asyncio.Event()
    desk.let_go.set()
    refusals = [ConnectionError()]

    async def claim(room: int) -> Sequence[str]:
        if refusals:
            raise refusals.pop()
        return await desk.claim(room)

    running = asyncio.create_task(engine(desk, Feed("rest", False, claim), slots=Slots(0, 1)).run(stop))
    await desk.until(lambda: desk.settled == ["JOB"])
    await stopped(running, stop)


@pytest.mark.parametrize(
    ("slots", "urgent", "room"),
    [
        pytest.param(Slots(2, 5, 1), True, 7, id="urgent: floor and shared"),
        pytest.param(Slots(2, 5, 1), False, 4, id="others: shared without the reserve"),
        pytest.param(Slots(2, 5, 1, floor_used=2, shared_used=5), True, 0, id="nothing is left for urgent"),
        pytest.param(Slots(2, 5, 1, shared_used=4), False, 0, id="the reserve is not for others"),
        pytest.param(Slots(2, 5, 1, shared_used=5), False, 0, id="never negative when urgent work holds the reserve"),
    ],
)
def test_room(slots: Slots, *, urgent: bool, room: int) -> None:
    assert slots.room(urgent=urgent) == room
