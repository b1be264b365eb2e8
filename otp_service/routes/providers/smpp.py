"""An SMSC, over binds of our own: SMPP 3.4."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

import aiohttp
import structlog

from otp_service.core.clock import rng as draws
from otp_service.core.clock import utc_now
from otp_service.core.outcomes import ErrorClass, Receipt, StatusReport, Submission, SubmitResult
from otp_service.routes.claim import Claimed
from otp_service.routes.providers.answers import not_sent
from otp_service.routes.providers.base import Health, NotGenuine, Posted, Question
from otp_service.routes.providers.smpp_binds import NotBound, OnDelivered, RouteBinds, WindowFull
from otp_service.routes.providers.smpp_rules import (
    BIND_REFUSED,
    REFUSALS,
    ROK,
    Pauses,
    message_id,
    refusal,
    status_code,
    submission,
)
from otp_service.routes.providers.smpp_session import Lost, Response
from otp_service.routes.providers.smpp_settings import CREDENTIALS, SETTINGS, SmppSettings, read_settings
from otp_service.routes.route_rules import RouteKind, RouteSpec

__all__ = ["CREDENTIALS", "SETTINGS", "Smpp", "SmppSettings", "read_settings"]

log = structlog.get_logger(__name__)


class Smpp:
    """Hands attempts over on the binds that this process holds: see `hold`.

    `on_delivered(route, receipts, answers)` is given what the SMSCs report, and the STOP and START that people write.
    They are acknowledged when it returns; when it raises, or takes longer than DELIVERED_TIMEOUT, they come again.
    """

    def __init__(
        self,
        on_delivered: OnDelivered,
        *,
        clock: Callable[[], datetime] = utc_now,
        rng: random.Random = draws,
        pauses: Pauses = Pauses(),  # noqa: B008 - frozen
    ) -> None:
        self._on_delivered = on_delivered
        self._clock, self._rng, self._pauses = clock, rng, pauses
        self._held: dict[str, RouteBinds] = {}
        self._unreadable: set[str] = set()

    async def hold(self, specs: Iterable[RouteSpec]) -> None:
        """Hold binds for the enabled SMPP routes among these, and for no others. Waits until others are unbound.

        To be called with every look at the table of routes, one call at a time: what has not changed is left alone.
        A route whose settings cannot be read has no binds: `submit` and `check` say so.
        """
        given = [spec for spec in specs if spec.kind is RouteKind.SMPP and spec.enabled]
        wanted = dict(_readable(given))
        self._unreadable = {spec.name for spec in given} - wanted.keys()
        over = [name for name, binds in self._held.items() if wanted.get(name) != binds.settings]
        await asyncio.gather(*(self._held.pop(name).close() for name in over))
        for name in wanted.keys() - self._held.keys():
            binds = RouteBinds(name, wanted[name], self._on_delivered, rng=self._rng, pauses=self._pauses)
            binds.open()
            self._held[name] = binds

    def is_opening(self, route: str) -> bool:
        """Whether it is not known yet if the route's binds come up: they are about to be made, for the first time."""
        binds = self._held.get(route)
        return route not in self._unreadable and (binds is None or binds.opening)

    async def close(self) -> None:
        """Unbind everywhere, after the responses that are still due."""
        await self.hold(())

    async def submit(self, session: aiohttp.ClientSession, claimed: Claimed) -> SubmitResult:
        """Hand one attempt over. It is written once, or not at all."""
        send, binds = claimed.send, self._held.get(claimed.route)
        if self._clock() >= min(send.submit_by, send.expires_at):
            return not_sent(ErrorClass.EXPIRED)
        if binds is None:
            return _not_held(claimed.spec)
        try:
            frame = submission(send, send.sender or next(iter(claimed.spec.sender_names), ""))
        except ValueError:
            return not_sent(ErrorClass.ROUTE_REJECTED, "the sender name cannot be written")
        return await _submit(binds, frame, send.attempt_uuid)

    async def query(self, session: aiohttp.ClientSession, question: Question) -> StatusReport | None:
        """Nothing: an SMSC reports by itself."""
        return None

    def receipts(self, spec: RouteSpec, posted: Posted) -> Sequence[Receipt]:
        """Raises NotGenuine: an SMSC reports over a bind, and posts nothing."""
        raise NotGenuine

    async def check(self, session: aiohttp.ClientSession, spec: RouteSpec) -> Health:
        """The state of the route's binds in this process."""
        return self.health(spec)

    def health(self, spec: RouteSpec) -> Health:
        """The same."""
        binds = self._held.get(spec.name)
        if binds is not None:
            return binds.health()
        try:
            read_settings(spec.settings, spec.credentials)
        except ValueError as error:
            return Health(False, str(error))
        return Health(False, "This process holds no binds of the route.")


def _readable(specs: Iterable[RouteSpec]) -> Iterable[tuple[str, SmppSettings]]:
    for spec in specs:
        with contextlib.suppress(ValueError):
            yield spec.name, read_settings(spec.settings, spec.credentials)


def _not_held(spec: RouteSpec) -> SubmitResult:
    try:
        read_settings(spec.settings, spec.credentials)
    except ValueError as error:
        return not_sent(ErrorClass.ROUTE_REJECTED, str(error))
    return not_sent(ErrorClass.CONNECTION_REFUSED, "this process holds no binds of the route")


async def _submit(binds: RouteBinds, frame: bytes, attempt_uuid: UUID) -> SubmitResult:
    try:
        return _result(await binds.submit(frame, attempt_uuid))
    except NotBound as missing:
        error_class = ErrorClass.ROUTE_REJECTED if missing.status in BIND_REFUSED else ErrorClass.CONNECTION_REFUSED
        why = f"not bound, {_words(missing.status)}"
        return replace(not_sent(error_class, why), error_code=status_code(missing.status))
    except WindowFull:
        return not_sent(ErrorClass.THROTTLED, "the windows of all binds are full")
    except (Lost, OSError) as error:
        cause = type(error).__name__
        return SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT, raw=cause)


def _result(response: Response) -> SubmitResult:
    if response.status == ROK:
        return SubmitResult(Submission.ACCEPTED, provider_message_id=message_id(response.message_id))
    if response.status not in REFUSALS:
        log.warning("smpp_status_unknown", status=_words(response.status))
    return SubmitResult(
        Submission.REFUSED,
        error_class=refusal(response.status),
        error_code=status_code(response.status),
        raw=_words(response.status),
    )


def _words(status: int) -> str:
    return f"command_status 0x{status:08x}"
