"""What the parts of the adapters' contract share."""

from __future__ import annotations

import datetime as dt
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import aiohttp
import pytest

from otp_service.core.clock import utc_now
from otp_service.core.http import Timeouts
from otp_service.core.outcomes import (
    ErrorClass,
    StatusReport,
    Submission,
    SubmitResult,
    Submittable,
)
from servers.relay.base import HostAddress, RelayAdapter
from tests.servers.relay import peers

PATIENT = Timeouts()
HASTY = Timeouts(total=dt.timedelta(seconds=0.5))  # only towards hosts that never finish an answer
NEAR = Timeouts(connect=dt.timedelta(seconds=0.3))  # only towards hosts that cannot be reached

TEXT = "Your code is 483920"
NUMBER = "+34600000017"
SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
OTHER_SECRET = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="


@dataclass(frozen=True, slots=True)
class WorkingHost:
    """A host that works, and how to see what it sent. The other units are for the promises that need them."""

    address: HostAddress
    unit: int
    sent: Callable[[uuid.UUID], int]  # how often an attempt left
    slow_unit: int = 0  # accepts, and has not sent for a while
    signed_out_unit: int = 0
    unknown_unit: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A reply to a submission, and what it means."""

    name: str
    reply: peers.Reply
    error_class: ErrorClass
    error_code: int | None = None
    retry_after: dt.timedelta | None = None
    submission: Submission = Submission.REFUSED
    tolerance: dt.timedelta = dt.timedelta(0)  # of `retry_after`


def a_send(unit: int | None = 228) -> Submittable:
    now = utc_now()
    return Submittable(
        attempt_uuid=uuid.uuid4(),
        to=NUMBER,
        text=TEXT,
        expires_at=now + dt.timedelta(minutes=5),
        submit_by=now + dt.timedelta(seconds=30),
        unit=unit,
    )


class ContractBase(ABC):
    """Subclasses give `adapter_with`, the fixture `host`, and the tables of their protocol's replies."""

    #: Replies that are no, and how they are understood.
    REFUSALS: ClassVar[Sequence[Refused]]
    #: Bodies that make no sense with the status that accepts.
    NONSENSE: ClassVar[Sequence[bytes]]
    ACCEPTING_STATUS: ClassVar[int]
    #: What cannot authenticate a call of ours.
    UNUSABLE_SECRETS: ClassVar[tuple[str, ...]] = ("whsec_%%%",)

    @abstractmethod
    def adapter_with(self, timeouts: Timeouts) -> RelayAdapter:
        """The adapter under test, with these time limits."""

    async def ask(
        self,
        session: aiohttp.ClientSession,
        address: HostAddress,
        attempt_uuid: uuid.UUID,
        timeouts: Timeouts = PATIENT,
    ) -> StatusReport:
        """Ask about an attempt of `a_send`. A protocol that must know more of it than its id overrides this."""
        return await self.adapter_with(timeouts).query(session, address, attempt_uuid)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "refused" in metafunc.fixturenames:
            metafunc.parametrize("refused", self.REFUSALS, ids=[refused.name for refused in self.REFUSALS])
        if "nonsense" in metafunc.fixturenames:
            metafunc.parametrize("nonsense", self.NONSENSE, ids=[repr(body[:20]) for body in self.NONSENSE])

    async def submit_to(
        self, reply: peers.Reply, session: aiohttp.ClientSession, timeouts: Timeouts = PATIENT
    ) -> SubmitResult:
        async with peers.peer(reply) as peer:
            return await self.adapter_with(timeouts).submit(session, self.address_of(peer.base_url), a_send())

    def address_of(self, base_url: str) -> HostAddress:
        return HostAddress(host_id=1, number=7, base_url=base_url, secrets=(SECRET,))
