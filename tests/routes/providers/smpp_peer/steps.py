"""What the tests over real binds do again and again."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import itertools
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, cast

import aiohttp

from otp_service.core.outcomes import ErrorClass, Receipt, Submission, SubmitResult, Submittable
from otp_service.messages.rules import Channel, Lane
from otp_service.routes.claim import Claimed
from otp_service.routes.providers.base import Inbound
from otp_service.routes.providers.smpp import Smpp
from otp_service.routes.providers.smpp_rules import Pauses
from otp_service.routes.route_rules import RouteKind, RouteSpec
from tests.conftest import NOON
from tests.routes.providers.smpp_peer.peer import PASSWORD, PATIENCE_S, Peer

NO_SESSION = cast("aiohttp.ClientSession", None)
QUICK = Pauses(lost=(dt.timedelta(milliseconds=50),))
UNKNOWN = SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT)
LATER = NOON + dt.timedelta(minutes=5)
NO_TIME = 100  # ms, the shortest time for a response that may be set

_numbers = itertools.count(1)


class Told:
    """Who is given receipts and answers: keeps them, fails when told to, and takes as long as it is held."""

    def __init__(self) -> None:
        self.receipts: list[Receipt] = []
        self.answers: list[tuple[str, str]] = []  # from whom, what
        self.routes: set[str] = set()
        self.fault: Exception | None = None
        self.free = asyncio.Event()
        self.free.set()
        self.asked = asyncio.Event()
        self._news = asyncio.Event()

    async def __call__(self, route: str, receipts: list[Receipt], answers: list[Inbound]) -> None:
        self.asked.set()
        await self.free.wait()
        if self.fault:
            raise self.fault
        self.routes.add(route)
        self.receipts += receipts
        self.answers += [(answer.sender, answer.text) for answer in answers]
        self._news.set()

    async def first(self) -> Receipt:
        async with asyncio.timeout(PATIENCE_S):
            await self._news.wait()
        return self.receipts[0]


def route(peer: Peer, *, password: str = PASSWORD, enabled: bool = True, **settings: Any) -> RouteSpec:
    return RouteSpec(
        "sms:one",
        Channel.SMS,
        RouteKind.SMPP,
        enabled=enabled,
        settings={"host": "127.0.0.1", "port": peer.port, "system_id": "acme", **settings},
        credentials={"password": password},
        sender_names=("ACME",),
    )


def claimed(
    spec: RouteSpec,
    text: str = "Your code is 123456",
    *,
    submit_by: dt.datetime = LATER,
    expires_at: dt.datetime = LATER,
) -> Claimed:
    attempt_uuid = uuid.UUID(int=next(_numbers))
    send = Submittable(attempt_uuid, "+34600000000", text, expires_at=expires_at, submit_by=submit_by)
    until = time.monotonic() + 60
    return Claimed(1, uuid.uuid4(), Lane.OTP, spec, None, send, give_up_at=until, accepted_at=None, claimed_at=NOON)


async def until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Poll for what nobody announces."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.005)


async def is_up(smpp: Smpp, spec: RouteSpec) -> bool:
    return (await smpp.check(NO_SESSION, spec)).ok


async def bound(smpp: Smpp, spec: RouteSpec) -> RouteSpec:
    """Hold the route's binds, and wait until one is up."""
    await smpp.hold([spec])
    await until(lambda: is_up(smpp, spec))
    return spec


async def submit(smpp: Smpp, spec: RouteSpec, text: str = "Your code is 123456") -> SubmitResult:
    return await smpp.submit(NO_SESSION, claimed(spec, text))


def bare(result: SubmitResult) -> SubmitResult:
    return dataclasses.replace(result, raw="")
