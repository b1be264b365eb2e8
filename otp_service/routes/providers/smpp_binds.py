"""The binds of one SMPP route: kept up, bound again after growing pauses, and shared by its submissions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from uuid import UUID

import smpp34
import structlog

from otp_service.core.outcomes import Receipt, ReportedState
from otp_service.messages.recipient_rules import word
from otp_service.routes.providers.base import Health, Inbound
from otp_service.routes.providers.smpp_inbound import inbound
from otp_service.routes.providers.smpp_rules import (
    BIND_REFUSED,
    NO_BIND,
    ROK,
    RX_T_APPN,
    Pauses,
    is_receipt,
    jittered,
    message_id,
    pause,
    receipt,
    refusal,
    status_code,
)
from otp_service.routes.providers.smpp_session import BindRefused, Lost, Response, Session, connect
from otp_service.routes.providers.smpp_settings import SmppSettings

log = structlog.get_logger(__name__)

#: A bind that held for so long was a good one: what comes after it is no failure in a row.
STEADY = timedelta(seconds=30)
#: What is not taken within this is left to the SMSC, which delivers it again.
DELIVERED_TIMEOUT = timedelta(seconds=10)

#: Takes receipts of a route, and the STOP and START that people wrote over it; they are acknowledged when it returns,
#: and delivered again when it raises.
OnDelivered = Callable[[str, list[Receipt], list[Inbound]], Awaitable[None]]


class NotBound(Exception):
    """No bind is up: nothing was written. `status`: what the SMSC refused the last one with, 0 if it did not."""

    def __init__(self, status: int) -> None:
        super().__init__(f"0x{status:08x}")
        self.status = status


class WindowFull(Exception):
    """Every bind waits for as many responses as its window allows: nothing was written."""


class RouteBinds:
    """The binds of one route in this process. They are up between `open` and `close`, as far as the SMSC lets them."""

    def __init__(
        self, route: str, settings: SmppSettings, on_delivered: OnDelivered, *, rng: random.Random, pauses: Pauses
    ) -> None:
        self.settings = settings
        self._route, self._on_delivered = route, on_delivered
        self._rng, self._pauses = rng, pauses
        self._sessions: set[Session] = set()
        self._keepers: list[asyncio.Task[None]] = []
        self._telling: set[asyncio.Task[int]] = set()
        self._turn = asyncio.Lock()  # one bind at a time: what refuses one refuses all
        self._failures, self._not_before = 0, 0.0  # in a row; loop time before which nobody binds
        self._refused = 0  # the status of the last bind, if that was refused
        self._fault = "it is being bound"
        self.opening = True  # until the first bind is up, or has failed
        self._closing = False

    def open(self) -> None:
        """Begin to bind."""
        self._keepers = [asyncio.create_task(self._keep()) for _ in range(self.settings.binds)]

    async def close(self) -> None:
        """Unbind, after the responses that are still due."""
        self._closing = True
        await asyncio.gather(*(session.leave() for session in self._sessions))
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, *self._telling, return_exceptions=True)

    async def submit(self, frame: bytes, attempt_uuid: UUID) -> Response:
        """Write one `submit_sm` once, and wait for its response.

        Raises NotBound and WindowFull (nothing was written), Lost and TimeoutError (it may have been read).
        A response that comes after all is told as a receipt.
        """
        up = [session for session in self._sessions if session.bound]
        if not up:
            raise NotBound(self._refused)
        session = max(up, key=lambda each: each.places)
        if session.places <= 0:
            raise WindowFull
        response = await session.ask(
            frame, self.settings.response_timeout, lambda late: self._tell_late(attempt_uuid, late)
        )
        if response.status in NO_BIND:
            session.retire()
        return response

    def health(self) -> Health:
        """How many are up, and why not all."""
        up = sum(session.bound for session in self._sessions)
        detail = f"{up} of {self.settings.binds} binds are up"
        return Health(up > 0, f"{detail}." if up == self.settings.binds else f"{detail}: {self._fault}.")

    async def _keep(self) -> None:
        """One bind, again and again."""
        while not self._closing:
            async with self._turn:
                await asyncio.sleep(max(0.0, self._not_before - _time()))
                session = await self._bind()
            if session is not None:
                await self._hold(session)

    async def _bind(self) -> Session | None:
        try:
            session = await connect(self.settings, self._deliver)
        except (OSError, UnicodeError) as error:  # the latter: a host name that cannot be looked up
            self._failed(f"no connection, {type(error).__name__}")
            return None
        try:
            await session.bind()
        except BindRefused as refused:
            self._failed(f"the SMSC refused it with status {refused}", refused.status)
        except (Lost, OSError):
            self._failed("the SMSC did not answer")
        else:
            return session
        finally:
            if not session.bound:
                session.running.cancel()
        return None

    async def _hold(self, session: Session) -> None:
        since = _time()
        self._refused, self.opening = 0, False
        self._sessions.add(session)
        log.info("smpp_bound", route=self._route)
        try:
            await session.running
        finally:
            self._sessions.discard(session)
        if _time() - since >= STEADY.total_seconds():
            self._failures = 0
        if not self._closing:
            self._failed("the connection was lost")

    def _failed(self, fault: str, status: int = ROK) -> None:
        """The next bind has to wait, unless another that failed has seen to that."""
        if self._not_before > _time():
            return
        self._failures += 1
        self._fault, self._refused, self.opening = fault, status, False
        delay = jittered(pause(self._pauses, self._failures, status), self._rng).total_seconds()
        self._not_before = _time() + delay
        say = log.error if status in BIND_REFUSED else log.warning
        say("smpp_not_bound", route=self._route, fault=fault, again_in_s=round(delay, 1))

    async def _deliver(self, pdus: Sequence[smpp34.DeliverSm]) -> int:
        reports = [pdu for pdu in pdus if is_receipt(pdu)]
        receipts = [told for told in map(receipt, reports) if told is not None]
        if len(receipts) < len(reports):
            log.warning("smpp_receipts_without_an_id", route=self._route, receipts=len(reports) - len(receipts))
        if unclear := sum(told.state is ReportedState.UNKNOWN for told in receipts):
            log.info("smpp_receipts_unclear", route=self._route, receipts=unclear)
        written = [wrote for wrote in map(inbound, pdus) if wrote is not None]
        return await self._tell(receipts, [wrote for wrote in written if word(wrote.text) is not None])

    async def _tell(self, receipts: list[Receipt], answers: list[Inbound]) -> int:
        """The status that they are acknowledged with."""
        if not receipts and not answers:
            return ROK
        try:
            async with asyncio.timeout(DELIVERED_TIMEOUT.total_seconds()):
                await self._on_delivered(self._route, receipts, answers)
        except Exception as error:  # noqa: BLE001 - whatever fails there, the SMSC keeps them for another time
            log.error("smpp_receipts_not_taken", route=self._route, error=type(error).__name__)  # noqa: TRY400 - frames hold ids
            return RX_T_APPN
        return ROK

    def _tell_late(self, attempt_uuid: UUID, late: Response) -> None:
        """What was taken for unknown has been answered after all."""
        if late.status == ROK:
            told = Receipt(ReportedState.QUEUED, attempt_uuid, message_id(late.message_id))
        else:
            told = Receipt(
                ReportedState.NEVER, attempt_uuid, error_class=refusal(late.status), error_code=status_code(late.status)
            )
        task = asyncio.create_task(self._tell([told], []))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)


def _time() -> float:
    return asyncio.get_running_loop().time()
