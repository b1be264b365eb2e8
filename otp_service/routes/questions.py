"""Questions about attempts that do not report, many at once: a host or a provider that hangs holds up no other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

import aiohttp
import structlog

from otp_service.core.clock import utc_now
from otp_service.routes import resolve
from otp_service.routes.eligibility import Terms
from otp_service.routes.providers.base import Provider
from otp_service.routes.route_rules import RouteKind, RouteSpec
from servers.relay.base import RelayAdapter

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: Questions that may be in flight: in all, to one host, and over one route (and a lot more, as they are taken in lots).
_AT_ONCE, _PER_HOST, _PER_ROUTE = 200, 4, 32
_LOT = _PER_HOST


class Runner(Protocol):
    """Runs a database step in a thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Questions:
    """Those of one dispatcher."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        adapter: RelayAdapter,
        providers: Mapping[RouteKind, Provider],
        run: Runner,
    ) -> None:
        self._session = session
        self._adapter = adapter
        self._providers = providers
        self._run = run
        self._asked: dict[asyncio.Task[None], int | str] = {}  # → the host's id, or the route's name

    async def ask(self, routes: Mapping[str, tuple[RouteSpec, Terms]]) -> int:
        """Start asking about what is due; returns how many attempts that are."""
        room = _AT_ONCE - len(self._asked)
        if room <= 0:
            return 0
        asked = Counter(self._asked.values())
        busy = [
            owner for owner, count in asked.items() if count >= (_PER_HOST if isinstance(owner, int) else _PER_ROUTE)
        ]
        batch = min(room, _LOT)
        checks = await self._run(lambda: resolve.claim_checks(now=utc_now(), routes=routes, batch=batch, without=busy))
        for check in checks:
            question = asyncio.create_task(self._ask(check))
            self._asked[question] = check.owner
            question.add_done_callback(self._asked.pop)
        return len(checks)

    async def _ask(self, check: resolve.Check) -> None:
        """One question. An answer that is not written is asked for again at the attempt's next time."""
        try:
            report = await resolve.ask(check, self._adapter, self._providers, self._session)
            await self._run(lambda: resolve.apply_answers([(check, report)], now=utc_now()))
        except Exception as error:  # noqa: BLE001 - one attempt's trouble is not another's
            log.warning("question_failed", attempt=str(check.attempt_uuid), error=type(error).__name__)

    async def close(self) -> None:
        """Drop them."""
        asked = list(self._asked)
        for question in asked:
            question.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
