"""The SMPP routes of one dispatcher: which of them it owns, their binds, and what is delivered over them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from uuid import UUID

import structlog
from django.db import DatabaseError, InterfaceError, transaction

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import Receipt
from otp_service.messages import recipients
from otp_service.messages.rules import Lane
from otp_service.routes import receipts, route_owners
from otp_service.routes.database_threads import DatabaseThreads
from otp_service.routes.providers.base import Inbound
from otp_service.routes.providers.smpp import Smpp
from otp_service.routes.providers.smpp_rules import Pauses
from otp_service.routes.route_owners import Binds, Owners
from otp_service.routes.route_rules import RouteKind, RouteSpec

log = structlog.get_logger(__name__)

#: How long before another may take a route nothing is claimed for it any more, so that what was claimed finds binds.
CLAIMS_END = timedelta(seconds=5)
#: How long before that its binds are given up.
BINDS_END = timedelta(seconds=3)


class SmppRoutes:
    """Times are monotonic seconds. A route whose lanes this dispatcher does not all serve is never its own."""

    def __init__(
        self,
        dispatcher: UUID,
        lanes: Collection[Lane],
        *,
        pauses: Pauses = Pauses(),  # noqa: B008 - frozen
    ) -> None:
        self.provider = Smpp(self._apply, pauses=pauses)
        self._dispatcher, self._lanes = dispatcher, lanes
        self._renewing, self._receiving = DatabaseThreads("owners"), DatabaseThreads("receipts")
        self._owners, self._ends_at = Owners(), 0.0

    async def renew(self, specs: Iterable[RouteSpec], *, at: float, dispatchers: int) -> None:
        """Own routes for some time from `at` on, which is before this call. Raises what the database raises.

        Where it does not answer, they are our own until that time ends.
        """
        routes = {spec.name: self._binds(spec) for spec in specs if self._may_own(spec)}
        me = self._dispatcher
        self._owners = await self._renewing.run(lambda: route_owners.take(me, routes, dispatchers=dispatchers))
        self._ends_at = at + route_owners.LIFE.total_seconds()

    def _may_own(self, spec: RouteSpec) -> bool:
        lanes_served = all(lane in self._lanes for lane in Lane if spec.carries(lane))
        return spec.kind is RouteKind.SMPP and spec.enabled and lanes_served

    def _binds(self, spec: RouteSpec) -> Binds:
        health = self.provider.health(spec)
        return Binds(health.ok, health.detail)

    def may_carry(self, spec: RouteSpec, *, at: float) -> bool:
        """Whether this dispatcher may claim for the route now; always where it is not one over SMPP."""
        return spec.kind is not RouteKind.SMPP or (self._owns(spec, at) and not self.provider.is_opening(spec.name))

    def leaves(self, specs: Sequence[RouteSpec], *, at: float) -> bool:
        """Whether messages wait for their owner. `specs`: possible ways of theirs, the preferred one first.

        So they do where another dispatcher holds one of those that come first, or where this one is just binding, and
        no other of these is open to it: else all but one dispatcher would send over backups.
        """
        first = [spec for spec in specs if (spec.channel, spec.priority) == (specs[0].channel, specs[0].priority)]
        ours = [spec for spec in first if spec.kind is RouteKind.SMPP]
        return any(self._is_awaited(spec, at) for spec in ours) and not any(self.may_carry(s, at=at) for s in ours)

    def elsewhere(self, specs: Iterable[RouteSpec], *, at: float) -> frozenset[str]:
        """Those that another dispatcher holds, or that this one is just binding: see `leaves`."""
        return frozenset(spec.name for spec in specs if self._is_awaited(spec, at))

    def _is_awaited(self, spec: RouteSpec, at: float) -> bool:
        return spec.name in self._owners.others or (self._owns(spec, at) and self.provider.is_opening(spec.name))

    def _owns(self, spec: RouteSpec, at: float, margin: timedelta = CLAIMS_END) -> bool:
        return spec.name in self._owners.own and at < self._ends_at - margin.total_seconds()

    async def hold(self, specs: Iterable[RouteSpec], *, at: float) -> None:
        """Hold the binds of our own routes, and no others. One call at a time; the database is not asked."""
        await self.provider.hold(spec for spec in specs if self._owns(spec, at, BINDS_END))

    async def close(self) -> None:
        """Unbind, after the responses that are still due; then leave the routes to others, at once if possible."""
        await self.provider.close()
        if self._owners.own:
            try:
                await self._renewing.run(lambda: route_owners.give_up(self._dispatcher))
            except (DatabaseError, InterfaceError) as error:
                log.warning("routes_not_given_up", error=type(error).__name__)  # others wait until its time ends
        for threads in (self._renewing, self._receiving):
            threads.close()

    async def _apply(self, route: str, told: list[Receipt], answers: list[Inbound]) -> None:
        """Returns when they are committed: only then are they acknowledged."""
        await self._receiving.run(lambda: _write(route, told, answers))


def _write(route: str, told: list[Receipt], answers: list[Inbound]) -> None:
    now = utc_now()
    with transaction.atomic():
        receipts.apply_route_receipts(route, told, now=now)
        recipients.note_answers([(answer.sender, answer.text) for answer in answers], now=now)
