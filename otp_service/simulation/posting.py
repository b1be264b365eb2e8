"""How a simulated host posts its events: signed, in lists when many wait, and repeated until they are taken."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from dataclasses import dataclass, field
from datetime import timedelta

import aiohttp

from otp_service.core.clock import utc_now
from otp_service.core.signing import signature_headers

logger = logging.getLogger(__name__)

#: Pauses between repetitions; the last one again and again.
RETRY_DELAYS = (
    timedelta(milliseconds=200),
    timedelta(milliseconds=500),
    timedelta(seconds=1),
    timedelta(seconds=2),
    timedelta(seconds=5),
)
REPEAT_FOR = timedelta(minutes=10)  # then an event is given up
BATCH_LIMIT = 100  # events in one call
POST_TIMEOUT = timedelta(seconds=10)

_TRY_AGAIN_LATER = frozenset({408, 429})  # the only 4xx that are worth repeating


@dataclass(slots=True, repr=False)
class Posting:
    """One event on its way. `tried` is set after the first call that carried it, however that ended."""

    event: dict[str, object]
    give_up_at: float  # on the loop's clock
    tried: asyncio.Event = field(default_factory=asyncio.Event)


class Outbox:
    """The events of one host, in order, one call at a time."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, secret: str, delays: tuple[timedelta, ...] = RETRY_DELAYS
    ) -> None:
        self.secret = secret
        self._session = session
        self._url = url
        self._delays = delays
        self._queue: asyncio.Queue[Posting] = asyncio.Queue()
        self._failures = 0  # in a row

    @property
    def is_behind(self) -> bool:
        """Whether events wait while calls fail."""
        return self._failures > 0

    def put(self, event: dict[str, object]) -> Posting:
        """Post an event as soon as those before it are gone."""
        posting = Posting(event, give_up_at=asyncio.get_running_loop().time() + REPEAT_FOR.total_seconds())
        self._queue.put_nowait(posting)
        return posting

    async def run(self) -> None:
        """Post for ever."""
        while True:
            batch = [await self._queue.get()]
            while len(batch) < BATCH_LIMIT and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            await self._deliver(batch)

    async def _deliver(self, batch: list[Posting]) -> None:
        call_id = str(batch[0].event["id"]) if len(batch) == 1 else str(uuid.uuid4())
        events = [posting.event for posting in batch]
        body = json.dumps(events[0] if len(events) == 1 else events).encode()
        give_up_at = batch[-1].give_up_at
        while not await self._is_taken(call_id, body, batch):
            if asyncio.get_running_loop().time() >= give_up_at:
                logger.warning("gave up a call with %d events", len(batch))
                return
            await asyncio.sleep(self._pause().total_seconds())

    async def _is_taken(self, call_id: str, body: bytes, batch: list[Posting]) -> bool:
        status = await self._post(call_id, body)
        for posting in batch:
            posting.tried.set()
        if not _is_final(status):
            self._failures += 1
            return False
        if status is not None and status >= 400:
            logger.warning("a call with %d events was refused with %d", len(batch), status)
        self._failures = 0
        return True

    async def _post(self, call_id: str, body: bytes) -> int | None:
        # Signed anew for every repetition: the receiver refuses old timestamps.
        headers = signature_headers([self.secret], message_id=call_id, now=utc_now(), body=body)
        try:
            async with self._session.post(
                self._url,
                data=body,
                headers={**headers, "Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=POST_TIMEOUT.total_seconds()),
                allow_redirects=False,
            ) as response:
                return response.status
        except (aiohttp.ClientError, OSError):
            return None

    def _pause(self) -> timedelta:
        return self._delays[min(self._failures, len(self._delays)) - 1]


def _is_final(status: int | None) -> bool:
    """Taken, or refused for good; anything else is worth repeating."""
    return status is not None and (200 <= status < 300 or (400 <= status < 500 and status not in _TRY_AGAIN_LATER))
