"""The routes as they stand in the database, for those who plan and claim."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.conf import settings

from otp_service.messages.rules import Channel, Lane
from otp_service.routes.models import Route
from otp_service.routes.route_rules import RouteKind, RouteSpec


def load() -> dict[str, RouteSpec]:
    """Every route by name. A pool that numbers go to and that has no row is as a new row would be.

    Simulated routes are left out unless `SIMULATED_ROUTES` is on: they deliver nothing.
    """
    rows = {row.name: row for row in (*_pools(), *Route.objects.all())}
    specs = {name: _spec(row) for name, row in rows.items()}
    return {
        name: spec for name, spec in specs.items() if spec.kind is not RouteKind.SIMULATED or settings.SIMULATED_ROUTES
    }


def ensure_pools() -> None:
    """A row for every pool that numbers go to, so that people see it in the admin. Rows that are there stay."""
    Route.objects.bulk_create(_pools(), ignore_conflicts=True)


def _pools() -> Iterator[Route]:
    regions = sorted({region for regions in settings.POOLS_BY_PREFIX.values() for region in regions})
    for region in regions:
        name = f"{Channel.IMESSAGE}:{region}"
        yield Route(name=name, channel=Channel.IMESSAGE.value, kind=RouteKind.IMESSAGE_POOL.value)


def _spec(row: Route) -> RouteSpec:
    return RouteSpec(
        name=row.name,
        channel=Channel(row.channel),
        kind=RouteKind(row.kind),
        enabled=row.enabled,
        lanes=frozenset(map(Lane, row.lanes)),
        expected=timedelta(milliseconds=row.expected_ms),
        in_flight_cap=row.in_flight_cap,
        tps=row.tps,
        daily_quota=row.daily_quota,
        priority=row.priority,
        settings=row.settings,
    )
