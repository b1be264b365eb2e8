"""The slot engine: claim work, make calls, settle what came of them. Plain asyncio.

It knows nothing of messages. An adapter gives it feeds (each a claim loop of its own, so that urgent work
never waits behind a large claim), a call, and a settle. What a claim returns is committed already; what a
call returns is settled in batches. A slot is one call in flight.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, TypeVar

import structlog

log = structlog.get_logger(__name__)

J = TypeVar("J")  # a claimed job
O = TypeVar("O")  # what came of its call  # noqa: E741 - the pair J, O reads as job and outcome

_ERROR_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)  # seconds between tries while the database does not answer
_CLAIM_GAP = 0.01  # seconds between two claims of one feed, so that freed slots are refilled in batches


@dataclass(slots=True)
class Slots:
    """Calls that may be in flight. `floor` ones are for urgent work only; urgent work borrows shared ones.

    Work that is not urgent leaves the last `reserve` shared slots free.
    """

    floor: int
    shared: int
    reserve: int = 0
    floor_used: int = 0
    shared_used: int = 0

    def room(self, *, urgent: bool) -> int:
        """How many calls may start now."""
        if urgent:
            return self.floor - self.floor_used + self.shared - self.shared_used
        return max(0, self.shared - self.shared_used - self.reserve)

    def take(self, *, urgent: bool) -> bool:
        """Occupy one slot; returns whether it is a floor slot. Only within `room`."""
        from_floor = urgent and self.floor_used < self.floor
        if from_floor:
            self.floor_used += 1
        else:
            self.shared_used += 1
        return from_floor

    def free(self, *, from_floor: bool) -> None:
        """Give one slot back."""
        if from_floor:
            self.floor_used -= 1
        else:
            self.shared_used -= 1


@dataclass(slots=True, eq=False)
class Feed(Generic[J]):
    """One claim loop. `claim(room)` returns at most `room` jobs, committed; `wake` makes it look at once."""

    name: str
    urgent: bool
    claim: Callable[[int], Awaitable[Sequence[J]]]
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class Engine(Generic[J, O]):
    """Runs feeds, calls and settling until `stop` is set; then lets calls end within `grace`."""

    def __init__(
        self,
        *,
        feeds: Sequence[Feed[J]],
        call: Callable[[J], Awaitable[O]],
        settle: Callable[[Sequence[tuple[J, O]]], Awaitable[None]],
        slots: Slots,
        is_transient: Callable[[Exception], bool],
        poll: timedelta = timedelta(milliseconds=200),
        settle_every: timedelta = timedelta(milliseconds=20),
        settle_batch: int = 500,
        grace: timedelta = timedelta(seconds=15),
    ) -> None:
        self.slots = slots
        self._feeds = feeds
        self._call = call
        self._settle = settle
        self._is_transient = is_transient
        self._poll = poll.total_seconds()
        self._settle_every = settle_every.total_seconds()
        self._settle_batch = settle_batch
        self._grace = grace.total_seconds()
        self._calls: set[asyncio.Task[None]] = set()
        self._done: asyncio.Queue[tuple[J, O]] = asyncio.Queue()
        self._slot_freed = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`; returns when everything that ended within the grace is settled."""
        settling = asyncio.create_task(self._settle_loop(), name="settle")
        feeding = [asyncio.create_task(self._feed_loop(feed, stop), name=feed.name) for feed in self._feeds]
        try:
            await asyncio.gather(*feeding)
            await self._drain()
        finally:
            for task in (*feeding, *self._calls):
                task.cancel()
            await asyncio.gather(*feeding, *self._calls, return_exceptions=True)
            settling.cancel()
            await asyncio.gather(settling, return_exceptions=True)

    async def _feed_loop(self, feed: Feed[J], stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            feed.wake.clear()
            self._slot_freed.clear()
            room = self.slots.room(urgent=feed.urgent)
            try:
                jobs = await feed.claim(room) if room else []
            except Exception as error:  # noqa: BLE001 - whatever fails here, the loop must live: the next claim decides
                log.warning("claim_failed", feed=feed.name, error=type(error).__name__)
                await _first_of(stop, timeout=_ERROR_PAUSES[min(failures, len(_ERROR_PAUSES) - 1)])
                failures += 1
                continue
            failures = 0
            for job in jobs:
                self._start(job, feed)
            if jobs:
                await asyncio.sleep(_CLAIM_GAP)
            elif room:
                await _first_of(stop, feed.wake, timeout=self._poll)
            else:
                await _first_of(stop, self._slot_freed, timeout=self._poll)

    def _start(self, job: J, feed: Feed[J]) -> None:
        from_floor = self.slots.take(urgent=feed.urgent)
        task = asyncio.create_task(self._one_call(job, from_floor=from_floor))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _one_call(self, job: J, *, from_floor: bool) -> None:
        try:
            outcome = await self._call(job)
            self._done.put_nowait((job, outcome))
        finally:
            self.slots.free(from_floor=from_floor)
            self._slot_freed.set()

    async def _settle_loop(self) -> None:
        while True:
            batch = [await self._done.get()]
            await asyncio.sleep(self._settle_every)
            while len(batch) < self._settle_batch and not self._done.empty():
                batch.append(self._done.get_nowait())
            await self._settle_until_written(batch)
            for _ in batch:
                self._done.task_done()

    async def _settle_until_written(self, batch: Sequence[tuple[J, O]]) -> None:
        """Keep what came of calls until it is written. One result that cannot be written holds up no other."""
        failures = 0
        while True:
            try:
                await self._settle(batch)
            except Exception as error:  # noqa: BLE001 - what came of a call is kept, whatever is wrong with its neighbours
                if not self._is_transient(error):
                    await self._settle_apart(batch, error)
                    return
                log.warning("settle_failed", jobs=len(batch), error=type(error).__name__)
                await asyncio.sleep(_ERROR_PAUSES[min(failures, len(_ERROR_PAUSES) - 1)])
                failures += 1
            else:
                return

    async def _settle_apart(self, batch: Sequence[tuple[J, O]], error: Exception) -> None:
        if len(batch) == 1:
            log.error("settle_refused", error=type(error).__name__, left_to="its lease")
            return
        for one in batch:
            await self._settle_until_written([one])

    async def _drain(self) -> None:
        """Let calls end and their results be written, within the grace. The rest is found by its lease."""
        deadline = time.monotonic() + self._grace
        if self._calls:
            log.info("draining", calls=len(self._calls))
            await asyncio.wait(set(self._calls), timeout=self._grace)
        try:
            await asyncio.wait_for(self._done.join(), timeout=max(0.5, deadline - time.monotonic()))
        except TimeoutError:
            log.warning("drain_incomplete", calls=len(self._calls), unsettled=self._done.qsize())


async def _first_of(*events: asyncio.Event, timeout: float) -> None:  # noqa: ASYNC109 - a bound, not an error
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
