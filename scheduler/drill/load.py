"""The run's client: it posts otp and promo over HTTP, at set times, and repeats what was not answered."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import aiohttp

from otp_service.messages.rules import Channel, Lane
from otp_service.simulation.ledger import text_digest
from scheduler.drill.children import DrillError
from scheduler.drill.journal import Accepted

OTP_PER_S, PROMO_PER_S = 4.0, 2.0
#: A code that nobody can tell the fate of is over soon: the drill waits for its end.
OTP_LIFE_S = 60
_REPEAT_EVERY_S, _REPEAT_FOR_S = 0.25, 30.0
#: The service is away, or busy with the same key: the client comes again.
_AGAIN = frozenset({409, 429, 500, 502, 503, 504})
_TIMEOUT = aiohttp.ClientTimeout(total=5)
_FIRST_NUMBER = 34_610_000_000


class Load:
    """Posts messages, each to a number and with a text of its own."""

    def __init__(self, session: aiohttp.ClientSession, base: str, key: str, sender_names: Sequence[str] = ()) -> None:
        self.accepted: list[Accepted] = []
        self.turned_away = 0  # answers that said: come again
        self._session = session
        self._base = base
        self._headers = {"Authorization": f"Bearer {key}"}
        self._numbers = itertools.count(1)
        self._names: Iterator[str] = itertools.cycle(sender_names or ("",))

    async def steady(self, stop: asyncio.Event) -> None:
        """Otp and promo at their rates until `stop`; returns when all of them are answered."""
        async with asyncio.TaskGroup() as posts:
            streams = ((Lane.OTP, OTP_PER_S), (Lane.PROMO, PROMO_PER_S))
            await asyncio.gather(*(self._stream(posts, lane, per_s, stop) for lane, per_s in streams))

    async def _stream(self, posts: asyncio.TaskGroup, lane: Lane, per_s: float, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for number in itertools.count(1):
            posts.create_task(self.post(lane, sender_name=next(self._names) if lane is Lane.OTP else ""))
            left = begun + number / per_s - loop.time()
            try:
                await asyncio.wait_for(stop.wait(), max(0.0, left))
            except TimeoutError:
                continue
            return

    async def post(self, lane: Lane, *, sender_name: str = "") -> None:
        """Post one until it is accepted. Raises DrillError where it is refused for good, or never answered."""
        body = self._body(lane, sender_name)
        headers = {**self._headers, "Idempotency-Key": str(body["text"])}
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + _REPEAT_FOR_S
        while loop.time() < give_up_at:
            status, answer = await self._call("/api/v1/messages/", body, headers)
            if status == 202:
                self._note(body, answer["id"])
                return
            if status is not None and status not in _AGAIN:
                raise DrillError(f"A message of the drill was refused with {status}: {answer.get('code')}")
            self.turned_away += 1
            await asyncio.sleep(_REPEAT_EVERY_S)
        raise DrillError(f"A message of the drill was not accepted within {_REPEAT_FOR_S:g} s.")

    async def flood(self, count: int, lane: Lane, *, ttl_s: int) -> None:
        """Post so many at once. Raises DrillError where one is refused."""
        bodies = [{**self._body(lane, ""), "ttl_s": ttl_s} for _ in range(count)]
        status, answer = await self._call("/api/v1/messages/batch/", {"messages": bodies}, self._headers)
        results = answer.get("results", ())
        if status != 200 or any(result["result"] != "accepted" for result in results):
            raise DrillError(f"A batch of the drill was answered with {status}, or partly refused.")
        for body, result in zip(bodies, results, strict=True):
            self._note(body, result["id"])

    def _body(self, lane: Lane, sender_name: str) -> dict[str, Any]:
        number = next(self._numbers)
        own: dict[str, Any] = {"sender_name": sender_name} if sender_name else {}
        if lane is Lane.OTP:
            own["ttl_s"] = OTP_LIFE_S
        text = f"Your code is {number:06d}"
        return {
            "to": f"+{_FIRST_NUMBER + number}",
            "text": text,
            "lane": lane.value,
            "channels": [Channel.SMS.value],
            **own,
        }

    def _note(self, body: dict[str, Any], message_id: str) -> None:
        self.accepted.append(
            Accepted(message_id, Lane(body["lane"]), text_digest(body["text"]), body.get("sender_name", ""))
        )

    async def _call(self, path: str, body: Any, headers: dict[str, str]) -> tuple[int | None, dict[str, Any]]:
        """The status and the answer; None where there was none."""
        try:
            async with self._session.post(self._base + path, json=body, headers=headers, timeout=_TIMEOUT) as answer:
                return answer.status, await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None, {}
