"""Messages on the slot engine: claim, call and settle, each database step in a thread of its own.

One thread is one connection: claiming otp never waits behind a larger claim, and settling behind neither.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, TypeVar

import aiohttp
import structlog
from django.db import DatabaseError, InterfaceError, OperationalError, connection

from otp_service.core.clock import utc_now
from otp_service.core.engine import Feed
from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult
from otp_service.messages import expiry
from otp_service.messages.rules import Lane
from otp_service.routes import claim, receipts, resolve, submissions
from otp_service.routes.claim import Claimed
from otp_service.routes.submissions import Submitted
from servers import selection
from servers.hosts import mark_seen
from servers.relay.base import RelayAdapter

log = structlog.get_logger(__name__)

T = TypeVar("T")

URGENT: tuple[Lane, ...] = (Lane.OTP,)
NOT_URGENT: tuple[Lane, ...] = (Lane.TRANSACTIONAL, Lane.PROMO)

#: Flow as the planner gets it: id, lane, pools in order, ready rows.
ReadyFlow = tuple[int, Lane, tuple[str, ...], int]
Planner = Callable[[Sequence[ReadyFlow], int, Mapping[str, int]], list[tuple[int, int]]]

#: Questions to hosts about silent attempts that may be in flight: in all, and to one host (up to twice as many,
#: as they are taken in lots of this size).
_QUESTIONS_AT_ONCE, _QUESTIONS_PER_HOST = 200, 4


class DatabaseThread:
    """A thread with a database connection of its own; a connection that failed is closed and made anew."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` there."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, _guarded, work)

    def close(self) -> None:
        """Close the connection and end the thread."""
        self._executor.submit(lambda: connection.close())  # noqa: PLW0108 - looked up in that thread: it is its own
        self._executor.shutdown(wait=True)


def _guarded(work: Callable[[], T]) -> T:
    try:
        return work()
    except DatabaseError:
        connection.close_if_unusable_or_obsolete()
        raise
    except InterfaceError:
        connection.close()
        raise


def is_transient(error: Exception) -> bool:
    """Whether the database may say otherwise later: away, restarting, or a deadlock's victim."""
    return isinstance(error, OperationalError | InterfaceError)


class MessageLane:
    """The engine's adapter for messages."""

    def __init__(self, *, session: aiohttp.ClientSession, adapter: RelayAdapter, planner: Planner) -> None:
        self._session = session
        self._adapter = adapter
        self._planner = planner
        self._questions: dict[asyncio.Task[None], int] = {}  # → host id
        self._urgent, self._rest, self._settling, self._chores = (
            DatabaseThread(name) for name in ("claim-otp", "claim-rest", "settle", "chores")
        )

    def feeds(self) -> list[Feed[Claimed]]:
        """Two claim loops: otp, and everything else."""
        return [
            Feed("otp", urgent=True, claim=lambda room: self._claim(self._urgent, URGENT, room)),
            Feed("rest", urgent=False, claim=lambda room: self._claim(self._rest, NOT_URGENT, room)),
        ]

    async def _claim(self, thread: DatabaseThread, lanes: Sequence[Lane], room: int) -> Sequence[Claimed]:
        return await thread.run(lambda: self._claim_now(lanes, room))

    def _claim_now(self, lanes: Sequence[Lane], room: int) -> list[Claimed]:
        flows = claim.flows_with_ready_rows(lanes, most=room)
        if not flows:
            return []
        now = utc_now()
        plan = self._planner(flows, room, selection.free_by_pool(now=now))
        return claim.claim(plan, now=now)

    async def call(self, claimed: Claimed) -> Submitted:
        """Hand one attempt to its host. Whatever goes wrong is an outcome, never an exception."""
        started = time.monotonic()
        if started > claimed.give_up_at:
            # This process was frozen: its lease is over and the attempt may have been rescued.
            result = SubmitResult(Submission.NOT_CONNECTED, error_class=ErrorClass.EXPIRED)
            return Submitted(claimed, result, timedelta())
        try:
            result = await self._adapter.submit(self._session, claimed.host, claimed.send)
        except Exception as error:  # noqa: BLE001 - a fault of ours leaves it open whether something was sent
            # No traceback: its frames hold the text.
            log.error("submit_fault", attempt=str(claimed.send.attempt_uuid), error=type(error).__name__)  # noqa: TRY400
            result = SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT)
        return Submitted(claimed, result, timedelta(seconds=time.monotonic() - started))

    async def settle(self, batch: Sequence[tuple[Claimed, Submitted]]) -> None:
        """Write what came of a batch of calls, and that their hosts answered."""
        await self._settling.run(lambda: _settle([submitted for _, submitted in batch], utc_now()))

    def chores(self) -> list[tuple[str, timedelta, Callable[[], Awaitable[Any]]]]:
        """What runs beside the claims: `(name, period, work)`. Each does one batch, and is safe beside itself."""
        return [
            ("stage", timedelta(milliseconds=200), lambda: self._chore(lambda: expiry.stage_due(now=utc_now()))),
            ("expire", timedelta(seconds=1), lambda: self._chore(lambda: expiry.expire_due(now=utc_now()))),
            ("rescue", timedelta(seconds=1), lambda: self._chore(lambda: submissions.rescue(now=utc_now()))),
            ("orphans", timedelta(seconds=5), lambda: self._chore(lambda: receipts.match_all_orphans(now=utc_now()))),
            ("resolve", timedelta(milliseconds=500), self._resolve),
        ]

    async def _chore(self, work: Callable[[], int]) -> int:
        return await self._chores.run(work)

    async def _resolve(self) -> int:
        """Start asking hosts about attempts that do not report. A host that hangs holds up no other."""
        room = _QUESTIONS_AT_ONCE - len(self._questions)
        if room <= 0:
            return 0
        asked = Counter(self._questions.values())
        busy = [host_id for host_id, questions in asked.items() if questions >= _QUESTIONS_PER_HOST]
        checks = await self._chores.run(
            lambda: resolve.claim_checks(now=utc_now(), batch=min(room, _QUESTIONS_PER_HOST), without_hosts=busy)
        )
        for check in checks:
            question = asyncio.create_task(self._ask(check))
            self._questions[question] = check.host.host_id
            question.add_done_callback(self._questions.pop)
        return len(checks)

    async def _ask(self, check: resolve.Check) -> None:
        """One question. An answer that is not written is asked for again at the attempt's next time."""
        try:
            report = await resolve.ask(check, self._adapter, self._session)
            await self._chores.run(lambda: resolve.apply_answers([(check, report)], now=utc_now()))
        except Exception as error:  # noqa: BLE001 - one attempt's trouble is not another's
            log.warning("question_failed", attempt=str(check.attempt_uuid), error=type(error).__name__)

    async def close(self) -> None:
        """Drop the questions and end the threads."""
        questions = list(self._questions)
        for question in questions:
            question.cancel()
        await asyncio.gather(*questions, return_exceptions=True)
        for thread in (self._urgent, self._rest, self._settling, self._chores):
            thread.close()


_HOST_ANSWERED = frozenset({Submission.ACCEPTED, Submission.REFUSED})


def _settle(batch: Sequence[Submitted], now: datetime) -> None:
    submissions.settle(batch, now=now)
    for host_id in {done.claimed.host.host_id for done in batch if done.result.submission in _HOST_ANSWERED}:
        mark_seen(host_id, now=now)
