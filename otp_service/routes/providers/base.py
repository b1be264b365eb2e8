"""What every provider can do: one small class per kind of route, all of this shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

import aiohttp

from otp_service.core.outcomes import Receipt, StatusReport, SubmitResult
from otp_service.routes.claim import Claimed
from otp_service.routes.route_rules import RouteSpec


@dataclass(frozen=True, slots=True)
class Question:
    """An attempt that is asked about."""

    spec: RouteSpec
    attempt_uuid: UUID
    provider_message_id: str  # "" where none is known
    to: str = field(repr=False)
    submitted_at: datetime


@dataclass(frozen=True, slots=True, repr=False)
class Posted:
    """What somebody posted to a route's address for receipts. `url` is the whole one, as the poster sees it."""

    method: str
    url: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes


@dataclass(frozen=True, slots=True)
class Health:
    """What a route says of itself; `detail` is a sentence for people, without secrets."""

    ok: bool
    detail: str


@dataclass(frozen=True, slots=True, repr=False)
class Inbound:
    """Somebody wrote to us over a route: from which address, and what. Its repr shows neither."""

    sender: str
    text: str


class NotGenuine(Exception):
    """A post that its provider did not sign, or whose token is wrong."""


class Unreadable(Exception):
    """A genuine post that cannot be understood; the message is a sentence without personal data."""


class Provider(Protocol):
    """Speaks the protocol of one kind of route. It does not raise for what the other side or a network does."""

    async def submit(self, session: aiohttp.ClientSession, claimed: Claimed) -> SubmitResult:
        """Hand one attempt over."""


class OutsideProvider(Provider, Protocol):
    """A provider outside our own fleet: its routes have settings and credentials, and post receipts."""

    async def query(self, session: aiohttp.ClientSession, question: Question) -> StatusReport | None:
        """Ask where an attempt stands; None: a route of this kind cannot be asked."""

    def receipts(self, spec: RouteSpec, posted: Posted) -> Sequence[Receipt]:
        """What a post reports. Raises NotGenuine, Unreadable."""

    async def check(self, session: aiohttp.ClientSession, spec: RouteSpec) -> Health:
        """Whether the route could be used now, without sending anything."""


class HearingProvider(OutsideProvider, Protocol):
    """An outside provider that also posts what people write to us, to the same address as its receipts."""

    def inbound(self, spec: RouteSpec, posted: Posted) -> Sequence[Inbound]:
        """What people wrote, by a post; nothing for one that only reports. Raises NotGenuine."""
