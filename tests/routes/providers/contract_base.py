"""What the parts of the providers' contract share."""

from __future__ import annotations

import datetime as dt
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import aiohttp
import pytest

from otp_service.core.clock import utc_now
from otp_service.core.http import Timeouts
from otp_service.core.outcomes import Receipt, SubmitResult, Submittable
from otp_service.messages.rules import Lane
from otp_service.routes.claim import Claimed
from otp_service.routes.providers.base import OutsideProvider, Posted, Question
from otp_service.routes.route_rules import RouteSpec
from tests.servers.relay import peers
from tests.servers.relay.contract_base import HASTY, NEAR, NUMBER, PATIENT, TEXT, Refused

__all__ = ["HASTY", "NEAR", "NUMBER", "PATIENT", "RECEIPTS_URL", "TEXT", "Refused"]

RECEIPTS_URL = "https://otp.example.com/webhooks/providers/sms:one/"
ATTEMPT = uuid.UUID("6f1c9a52-3c1e-4f7e-9a7b-0d7a7c3b2e11")  # of every payload that names one
_PAYLOADS = Path(__file__).parent / "payloads"


def payload(provider: str, case: str) -> bytes:
    """A real payload, as it came in; `case` is the file's name."""
    return (_PAYLOADS / provider / case).read_bytes()


@dataclass(frozen=True, slots=True)
class Reported:
    """What a provider posted, and what it means."""

    name: str
    payload: bytes
    receipts: Sequence[Receipt]


def a_send(**changes: object) -> Submittable:
    now = utc_now()
    values: dict[str, object] = {
        "attempt_uuid": uuid.uuid4(),
        "to": NUMBER,
        "text": TEXT,
        "expires_at": now + dt.timedelta(minutes=5),
        "submit_by": now + dt.timedelta(seconds=30),
    }
    return Submittable(**{**values, **changes})  # type: ignore[arg-type]  # the values are of many types


def a_claim(spec: RouteSpec, send: Submittable | None = None) -> Claimed:
    return Claimed(
        attempt_id=1,
        token=uuid.uuid4(),
        lane=Lane.OTP,
        spec=spec,
        host=None,
        send=send or a_send(),
        give_up_at=float("inf"),
        accepted_at=None,
        claimed_at=utc_now(),
    )


def a_question(spec: RouteSpec, provider_message_id: str = "SM1", attempt_uuid: uuid.UUID = ATTEMPT) -> Question:
    return Question(spec, attempt_uuid, provider_message_id, to=NUMBER, submitted_at=utc_now())


class ProviderContractBase(ABC):
    """The hooks and the tables that a provider's tests give."""

    #: A reply that accepts, and the provider's id in it ("" where it gives none).
    ACCEPTANCE: ClassVar[tuple[peers.Reply, str]]
    #: Replies that are no, and how they are understood.
    REFUSALS: ClassVar[Sequence[Refused]]
    #: Replies with a status that accepts, and no acceptance.
    NONSENSE: ClassVar[Sequence[peers.Reply]]
    #: Genuine posts, and what they mean.
    REPORTS: ClassVar[Sequence[Reported]]
    #: Payloads of genuine posts that cannot be understood.
    UNREADABLE: ClassVar[Sequence[bytes]]
    CAN_BE_ASKED: ClassVar[bool]

    @abstractmethod
    def provider_with(self, timeouts: Timeouts) -> OutsideProvider:
        """The provider under test, with these time limits."""

    @abstractmethod
    def spec_of(self, base_url: str) -> RouteSpec:
        """A route whose provider is at this address; with credentials, a sender name and RECEIPTS_URL."""

    @abstractmethod
    def posted(self, spec: RouteSpec, payload: bytes) -> Posted:
        """A genuine post with this payload (a body, or the query of an address)."""

    @abstractmethod
    def forged(self, spec: RouteSpec, payload: bytes) -> Mapping[str, Posted]:
        """Posts with this payload that somebody else made, by name."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        tables = {"refused": "REFUSALS", "reported": "REPORTS", "nonsense": "NONSENSE", "unreadable": "UNREADABLE"}
        for argument in tables.keys() & set(metafunc.fixturenames):
            rows = getattr(self, tables[argument])
            metafunc.parametrize(argument, rows, ids=[getattr(row, "name", f"{n}") for n, row in enumerate(rows)])

    async def submit_to(
        self, reply: peers.Reply, session: aiohttp.ClientSession, timeouts: Timeouts = PATIENT
    ) -> SubmitResult:
        async with peers.peer(reply) as peer:
            return await self.provider_with(timeouts).submit(session, a_claim(self.spec_of(peer.base_url)))
