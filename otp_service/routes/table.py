"""The routes as they stand in the database, for those who plan and claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

import structlog
from django.conf import settings
from django.db.models import QuerySet

from otp_service.core.crypto import CryptoError
from otp_service.messages.rules import Channel, Lane
from otp_service.routes.eligibility import Hours, Terms
from otp_service.routes.models import Route
from otp_service.routes.parts import Encoding
from otp_service.routes.route_rules import RouteKind, RouteSpec, possible

log = structlog.get_logger(__name__)


def load() -> dict[str, RouteSpec]:
    """Every route by name. A pool that numbers go to and that has no row is as a new row would be.

    Simulated routes are left out unless `SIMULATED_ROUTES` is on: they deliver nothing. So is a route whose
    credentials cannot be opened: it must not stop the others.
    """
    return {row.name: _spec(row, credentials) for row, credentials in _readable(_rows(Route.objects.all()))}


def load_with_terms() -> dict[str, tuple[RouteSpec, Terms]]:
    """The same routes, each with what it may carry."""
    rows = _readable(_rows(Route.objects.all()))
    return {row.name: (_spec(row, credentials), _terms(row)) for row, credentials in rows}


def load_one(name: str) -> RouteSpec | None:
    """What `load` has of this name; no other route's credentials are read."""
    if "\0" in name:  # no name has one, and PostgreSQL refuses to look for it
        return None
    rows = [row for row in _rows(Route.objects.filter(name=name)) if row.name == name]
    return next((_spec(row, credentials) for row, credentials in _readable(rows)), None)


def unserved(channels: Sequence[str], *, lane: str, pools: Sequence[str]) -> list[str]:
    """Those of the channels that no enabled route serves. No credentials are read."""
    specs = [_spec(row, {}) for row in _rows(Route.objects.defer("credentials"))]
    return [each for each in channels if not possible(specs, channels=[each], pools=pools, lane=Lane(lane))]


def _rows(stored: QuerySet[Route]) -> list[Route]:
    rows = {row.name: row for row in (*_pools(), *stored)}
    return [row for row in rows.values() if row.kind != RouteKind.SIMULATED or settings.SIMULATED_ROUTES]


def _readable(rows: list[Route]) -> Iterator[tuple[Route, Mapping[str, str]]]:
    for row in rows:
        try:
            yield row, row.given_credentials
        except CryptoError as error:
            log.error("route_unreadable", route=row.name, error=str(error))  # noqa: TRY400 - frames may hold others'


def ensure_pools() -> None:
    """A row for every pool that numbers go to, so that people see it in the admin. Rows that are there stay."""
    Route.objects.bulk_create(_pools(), ignore_conflicts=True)


def _pools() -> Iterator[Route]:
    regions = sorted({region for regions in settings.POOLS_BY_PREFIX.values() for region in regions})
    for region in regions:
        name = f"{Channel.IMESSAGE}:{region}"
        yield Route(name=name, channel=Channel.IMESSAGE.value, kind=RouteKind.IMESSAGE_POOL.value)


def _spec(row: Route, credentials: Mapping[str, str]) -> RouteSpec:
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
        credentials=credentials,
        sender_names=tuple(row.sender_names),
        receipts_url=_receipts_url(row),
    )


def _receipts_url(row: Route) -> str:
    is_own = row.kind in {RouteKind.IMESSAGE_POOL, RouteKind.SIMULATED}
    return "" if is_own or not settings.PUBLIC_URL else f"{settings.PUBLIC_URL}/webhooks/providers/{row.name}/"


def _terms(row: Route) -> Terms:
    opens, closes = row.opens_at, row.closes_at
    return Terms(
        prefixes=tuple(row.prefixes),
        encodings=frozenset(map(Encoding, row.encodings)),
        max_parts=row.max_parts,
        delivery=timedelta(seconds=row.delivery_s),
        has_receipts=row.has_receipts,
        receipt_wait=None if row.receipt_wait_s is None else timedelta(seconds=row.receipt_wait_s),
        can_query=row.can_query,
        hours=Hours(opens, closes) if opens is not None and closes is not None else None,
        cost_per_part=row.cost_per_part,
        currency=row.currency,
        weight=row.weight,
    )
