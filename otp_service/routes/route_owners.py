"""Who holds the binds of which SMPP route: a provider allows only so many, so one dispatcher at a time has them.

A route that nobody holds goes to a dispatcher that holds less than its share of the routes. One that holds more, as
others came later, gives none up: nothing is rebalanced but by a stop or a crash.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet
from django.db.models.functions import Now

from otp_service.routes.models import Dispatcher
from otp_service.routes.owner_models import LONGEST_DETAIL, RouteOwner

#: How long a dispatcher that is not heard of any more keeps its routes; they are renewed every 2 s.
LIFE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Binds:
    """What an owner says of a route's binds; `detail` is a sentence for people, without secrets."""

    up: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Owners:
    """Routes of this dispatcher, for LIFE from the moment before it asked, and those of others that live."""

    own: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()


def take(me: UUID, routes: Mapping[str, Binds], *, dispatchers: int) -> Owners:
    """Renew what this dispatcher holds of these routes, and take what is free of its share among `dispatchers`."""
    if not routes:
        return Owners()
    owners = _owners(routes)
    wanted = to_take(me, routes, owners, dispatchers=dispatchers)
    own = _take(me, {name: routes[name] for name in wanted}) if wanted else frozenset()
    others = {name for name, owner in owners.items() if owner != me} | (wanted - own)
    return Owners(own, frozenset(others))


def to_take(me: UUID, routes: Collection[str], owners: Mapping[str, UUID], *, dispatchers: int) -> set[str]:
    """What to ask for: the routes that are ours, and free ones up to our share. `owners`: those that live."""
    own = {name for name in routes if owners.get(name) == me}
    share = math.ceil(len(routes) / max(1, dispatchers))
    free = sorted(set(routes) - owners.keys())
    return own | set(free[: max(0, share - len(own))])


# In one order, or two that take several would wait for each other. The clock is read again after the wait for a row:
# losing means that somebody else has taken it, or renewed it, meanwhile.
_TAKE = f"""
INSERT INTO {RouteOwner._meta.db_table} AS held (route, dispatcher, until, is_up, detail)
SELECT wanted.route, %(me)s, clock_timestamp() + %(life)s, wanted.is_up, wanted.detail
FROM unnest(%(routes)s::varchar[], %(up)s::boolean[], %(details)s::varchar[]) AS wanted (route, is_up, detail)
ORDER BY wanted.route
ON CONFLICT (route) DO UPDATE
SET dispatcher = excluded.dispatcher, until = excluded.until, is_up = excluded.is_up, detail = excluded.detail
WHERE held.dispatcher = excluded.dispatcher OR held.until <= clock_timestamp()
RETURNING route
"""  # noqa: S608 - the table's own name


def _owners(routes: Collection[str]) -> dict[str, UUID]:
    return dict(_living().filter(route__in=routes).values_list("route", "dispatcher"))


def _living() -> QuerySet[RouteOwner]:
    return RouteOwner.objects.filter(until__gt=Now())


def _take(me: UUID, routes: Mapping[str, Binds]) -> frozenset[str]:
    parameters: dict[str, Any] = {
        "me": me,
        "life": LIFE,
        "routes": list(routes),
        "up": [binds.up for binds in routes.values()],
        "details": [binds.detail[:LONGEST_DETAIL] for binds in routes.values()],
    }
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, parameters)
        return frozenset(name for (name,) in cursor.fetchall())


def give_up(me: UUID) -> None:
    """Leave its routes to the others at once; its binds are gone."""
    RouteOwner.objects.filter(dispatcher=me).delete()


def told(route: str) -> Binds | None:
    """What the dispatcher that holds a route last said of its binds; None: none holds it."""
    row = _living().filter(route=route).first()
    if row is None:
        return None
    name = Dispatcher.objects.filter(id=row.dispatcher).values_list("name", flat=True).first()
    return Binds(row.is_up, f"{name or row.dispatcher}: {row.detail}")
