"""The slot engine: claim work, make calls, settle what came of them. Plain asyncio.

It knows nothing of messages. An adapter gives it feeds (each a claim loop of its own, so that urgent work
never waits behind a large claim), a call, and a settle. What a claim returns is committed already; what a
call returns is settled in batches. A slot is one call in flight.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

import structlog

log = structlog.get_logger(__name__)

_ERROR_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)  # seconds between tries while the database does not answer
_CLAIM_GAP = 0.01  # seconds between two claims of one feed, so that freed slots are refilled in batches


class Job(Protocol):
    """What is claimed: one call, of one kind (`lane`), which occupies a slot until it ends."""

    @property
    def lane(self) -> str: ...


J = TypeVar("J", bound=Job)  # a claimed job
O = TypeVar("O")  # what came of its call  # noqa: E741 - the pair J, O reads as job and outcome

#: By lane, how many calls may start now, from how many are in flight: the slots' rule.
Rooms = Callable[[Mapping[str, int]], Mapping[str, int]]


@dataclass(slots=True, eq=False)
class Feed(Generic[J]):
    """One claim loop, for some lanes, the most urgent first.

    `claim(most, in_flight)` returns at most `most` jobs, committed, that fit the slots beside what is in flight
    by lane; `wake` makes it look at once. `short`: it may have more than there was room for.
    """

    name: str
    lanes: tuple[str, ...]
    claim: Callable[[int, Mapping[str, int]], Awaitable[Sequence[J]]]
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    freed: asyncio.Event = field(default_factory=asyncio.Event)  # a slot, or a route's room, since its last look
    short: bool = False


class Engine(Generic[J, O]):
    """Runs feeds, calls and settling until `stop` is set; then lets calls end within `grace`.

    Feeds come in order: while an earlier one is short of room, a later one takes no slot that becomes free.
    """

    def __init__(
        self,
        *,
        feeds: Sequence[Feed[J]],
        call: Callable[[J], Awaitable[O]],
        settle: Callable[[Sequence[tuple[J, O]]], Awaitable[None]],
        rooms: Rooms,
        is_transient: Callable[[Exception], bool],
        poll: timedelta = timedelta(milliseconds=200),
        settle_every: timedelta = timedelta(milliseconds=20),
        settle_batch: int = 500,
        settlers: int = 1,
        claim_batch: int = 400,
        grace: timedelta = timedelta(seconds=15),
    ) -> None:
        self.in_flight: Counter[str] = Counter()  # calls by lane
        self._held: Counter[str] = Counter()  # by lane, what a running claim may bring
        self.settle_lag = 0.0  # seconds from the end of the oldest call of the last batch until it was written
        self._rooms = rooms
        self._claim_batch = claim_batch
        self._feeds = feeds
        self._call = call
        self._settle = settle
        self._is_transient = is_transient
        self._poll = poll.total_seconds()
        self._settle_every = settle_every.total_seconds()
        self._settle_batch = settle_batch
        self._settlers = settlers
        self._grace = grace.total_seconds()
        self._calls: set[asyncio.Task[None]] = set()
        self._done: asyncio.Queue[tuple[float, J, O]] = asyncio.Queue()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`; returns when everything that ended within the grace is settled."""
        settling = [asyncio.create_task(self._settle_loop(), name="settle") for _ in range(self._settlers)]
        feeding = [asyncio.create_task(self._feed_loop(feed, stop), name=feed.name) for feed in self._feeds]
        try:
            await asyncio.gather(*feeding)
            await self._drain()
        finally:
            for task in (*feeding, *self._calls):
                task.cancel()
            await asyncio.gather(*feeding, *self._calls, return_exceptions=True)
            for task in settling:
                task.cancel()
            await asyncio.gather(*settling, return_exceptions=True)

    async def _feed_loop(self, feed: Feed[J], stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            feed.wake.clear()
            feed.freed.clear()
            try:
                room, jobs = await self._claim(feed)
            except Exception as error:  # noqa: BLE001 - whatever fails here, the loop must live: the next claim decides
                log.warning("claim_failed", feed=feed.name, error=type(error).__name__)
                await _first_of(stop, feed.wake, timeout=_ERROR_PAUSES[min(failures, len(_ERROR_PAUSES) - 1)])
                failures += 1
                continue
            failures = 0
            if jobs:
                # A full batch: so much was free that there may be room for another.
                await asyncio.sleep(0 if len(jobs) == self._claim_batch else _CLAIM_GAP)
                continue
            if room:  # nothing waits, or what waits has no way out: the end of a call may change that
                await _first_of(stop, feed.wake, timeout=_CLAIM_GAP)
            if not (feed.wake.is_set() or stop.is_set()):
                await _first_of(stop, feed.wake, feed.freed, timeout=self._poll)

    async def _claim(self, feed: Feed[J]) -> tuple[int, Sequence[J]]:
        """Claim what there is room for, and start it; returns the room, and what was claimed.

        The room is held while the claim runs, so that two feeds never fill the same slots.
        """
        if any(earlier.short for earlier in self._feeds[: self._feeds.index(feed)]):
            return 0, []
        in_flight = self.in_flight + self._held
        rooms = self._rooms(in_flight)
        lane = max(feed.lanes, key=lambda lane: rooms[lane])
        room = min(rooms[lane], self._claim_batch)
        feed.short = not room
        if not room:
            return 0, []
        self._held[lane] += room
        try:
            jobs = await feed.claim(room, in_flight)
        finally:
            self._held[lane] -= room
        feed.short = len(jobs) == room
        for job in jobs:
            self._start(job)
        if len(jobs) < room:
            self._tell_freed()  # what this claim held may be what another feed waits for
        return room, jobs

    def _start(self, job: J) -> None:
        self.in_flight[job.lane] += 1
        task = asyncio.create_task(self._one_call(job))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _one_call(self, job: J) -> None:
        try:
            outcome = await self._call(job)
            self._done.put_nowait((time.monotonic(), job, outcome))
        finally:
            self.in_flight[job.lane] -= 1
            self._tell_freed()

    def _tell_freed(self) -> None:
        for feed in self._feeds:
            feed.freed.set()

    async def _settle_loop(self) -> None:
        while True:
            batch = [await self._done.get()]
            await asyncio.sleep(self._settle_every)
            while len(batch) < self._settle_batch and not self._done.empty():
                batch.append(self._done.get_nowait())
            await self._settle_until_written([(job, outcome) for _, job, outcome in batch])
            self.settle_lag = time.monotonic() - batch[0][0]
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
