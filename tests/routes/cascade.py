"""A message on its way over several routes, step by step, with a provider that answers by a script."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp

from otp_service.core.outcomes import (
    ErrorClass,
    Receipt,
    ReportedState,
    StatusReport,
    Submission,
    SubmitResult,
)
from otp_service.messages.models import Flow, Message
from otp_service.messages.rules import Lane
from otp_service.routes import claim as claiming
from otp_service.routes import resolve, route_rules, table
from otp_service.routes.choose import Ways
from otp_service.routes.claim import Claimed
from otp_service.routes.eligibility import Standing
from otp_service.routes.providers.base import Provider, Question
from otp_service.routes.receipts import apply_route_receipts
from otp_service.routes.route_rules import RouteKind
from servers.relay.base import RelayAdapter
from tests.draws import Lowest
from tests.factories import NOON, FlowFactory, QueuedFactory, RouteFactory
from tests.routes.scripted_host import UNANSWERED
from tests.routes.steps import settled

SECOND = dt.timedelta(seconds=1)


def refused(error_class: ErrorClass, code: int | None = None, **more: Any) -> SubmitResult:
    return SubmitResult(Submission.REFUSED, error_class=error_class, error_code=code, **more)


@dataclass
class ScriptedProvider:
    """Says `status` of whatever it is asked about; sends nothing."""

    status: StatusReport = UNANSWERED
    asked: list[Question] = field(default_factory=list)

    async def submit(self, session: aiohttp.ClientSession, claimed: Claimed) -> SubmitResult:
        raise AssertionError("who only asks must never send")

    async def query(self, session: aiohttp.ClientSession, question: Question) -> StatusReport | None:
        self.asked.append(question)
        return self.status


@dataclass
class Cascade:
    """One message and the clock. Its routes: `sms:one` before `sms:two`, `voice:one` after them."""

    message: Message
    now: dt.datetime = NOON
    provider: ScriptedProvider = field(default_factory=ScriptedProvider)
    standings: Mapping[str, Standing] = field(default_factory=dict)

    def goes(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds * SECOND

    def claims(self, *, without_room: Sequence[str] = ()) -> Claimed | None:
        """The next attempt, None where there is nothing to claim, or no way."""
        flow = self.message.flow
        found = table.load_with_terms()
        specs = {name: spec for name, (spec, _) in found.items()}
        names = route_rules.possible(specs.values(), channels=flow.channels, pools=flow.pools, lane=Lane(flow.lane))
        ways = Ways(
            {flow.pk: tuple(specs[name] for name in names)},
            {name: dict.fromkeys(Lane, 0 if name in without_room else 1_000) for name in specs},
            {name: terms for name, (_, terms) in found.items()},
            self.standings,
        )
        return next(iter(claiming.claim([(flow.pk, 10)], ways, now=self.now, rng=Lowest()).claimed), None)

    def attempts(self, result: SubmitResult) -> str:
        """Claim, and end the call so; returns the route."""
        one = self.claims()
        assert one is not None, self.row().refusals
        settled(one, result, now=self.now)
        return one.route

    def resolves(self) -> int:
        """Ask about what is due, and write what comes of it; returns how many attempts were looked at."""
        checks = resolve.claim_checks(now=self.now, routes=table.load_with_terms())
        reports = asyncio.run(self._answers(checks))
        resolve.apply_answers(list(zip(checks, reports, strict=True)), now=self.now, rng=Lowest())
        return len(checks)

    async def _answers(self, checks: Sequence[resolve.Check]) -> list[StatusReport]:
        providers = dict.fromkeys(RouteKind, cast("Provider", self.provider))
        session, adapter = cast("aiohttp.ClientSession", None), cast("RelayAdapter", None)
        return [await resolve.ask(check, adapter, providers, session) for check in checks]

    def reports(self, state: ReportedState, number: int, **more: Any) -> int:
        """Its provider says so of the attempt of this number."""
        attempt = self.message.attempts.get(number=number)
        return apply_route_receipts(attempt.route, [Receipt(state, attempt.uuid, **more)], now=self.now)

    def row(self) -> Message:
        return Message.objects.get(pk=self.message.pk)

    def states(self) -> list[tuple[str, str]]:
        """Route and state of its attempts."""
        return list(self.message.attempts.order_by("number").values_list("route", "state"))


def two_sms_routes(**fields: Any) -> None:
    """`sms:one` is tried before `sms:two`."""
    RouteFactory.create(name="sms:one", priority=1, **fields)
    RouteFactory.create(name="sms:two", **fields)


def on_its_way(*, channels: Sequence[str] = ("sms",), lane: str = "otp", **fields: Any) -> Cascade:
    """A message that waits to be claimed."""
    flow: Flow = FlowFactory.create(channels=list(channels), lane=lane)
    return Cascade(QueuedFactory.create(flow=flow, lane=lane, **fields))
