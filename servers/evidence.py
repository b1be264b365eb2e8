"""What goes with servers into Need Check: what a person needs to decide, in figures, and how it is told.

Gathered for any number of servers by as many queries as for one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Count, F, Max, Q, prefetch_related_objects

from otp_service.events.log import NewEvent
from servers.models import Group, Server, ServerDelivery, ServerStatusHistory
from servers.rules import Event, NeedCheckPath, Status

#: What brings a server back from Need Check.
RECOVERIES = (Event.RECOVERED, Event.MARKED_ACTIVE, Event.PREHEAT_STARTED, Event.CHAT_PREHEAT_STARTED)
#: So many of its last outcomes go with a server into Need Check.
EVIDENCE_OUTCOMES = 20

Found = dict[str, Any]


def need_check_note(path: NeedCheckPath, reason: str) -> str:
    """The note of a 106 row."""
    return f"{path.value}: {reason}" if reason else path.value


def need_check_event(server: Server, path: NeedCheckPath, now: datetime) -> NewEvent:
    """What the log of events tells of it."""
    subject = {"path": path.value, "region": server.region, "unit": server.unit}
    return NewEvent("server.need_check", now, server.uuid, data=subject)


def collected(servers: Sequence[Server], now: datetime) -> dict[int, Found]:
    """What the 106 row of each server has beside the path: `evidence`, figures that never name a recipient, and
    `boomerang`: whether it was brought back from Need Check a short time ago, and when.

    The servers are as their rows are, and nothing of the verdict is written yet.
    """
    ids = [server.pk for server in servers]
    outcomes, hosts, boomerangs = _last_outcomes(ids), _hosts(servers), _boomerangs(ids, now)
    prefetch_related_objects(list(servers), "groups")
    return {
        server.pk: {
            "evidence": {
                "outcomes": outcomes[server.pk],
                "counters": {
                    "failed_in_row": server.failed_in_row,
                    "cooldown_times": server.cooldown_times,
                    "fail_open_streak": server.fail_open_streak,
                },
                "group": group_data(server.get_group_for_current_time(now)),
                "host": hosts[server.host_id]["number"],
                "others_of_host": _others(hosts[server.host_id], server),
            },
            **_boomerang(boomerangs.get(server.pk)),
        }
        for server in servers
    }


def _boomerang(recovered_at: datetime | None) -> Found:
    if recovered_at is None:
        return {"boomerang": False}
    return {"boomerang": True, "recovered_at": recovered_at.isoformat()}


def _boomerangs(ids: Collection[int], now: datetime) -> dict[int, datetime]:
    """When those that were brought back a short time ago were, the last time."""
    back = ServerStatusHistory.objects.filter(
        server__in=ids,
        event__in=RECOVERIES,
        data__old__status=Status.NEED_CHECK,
        at__gte=now - settings.BOOMERANG_WITHIN,
    )
    return dict(back.order_by().values_list("server_id").annotate(newest=Max("at")))


# The newest rows of each server are found by its own index, however long its history is.
_FAILURES = f"""
SELECT server.id, failure.at, failure.data ->> 'reason', (failure.data ->> 'error_code')::int
FROM unnest(%(servers)s::bigint[]) AS server (id) CROSS JOIN LATERAL (
  SELECT at, data FROM {ServerStatusHistory._meta.db_table}
  WHERE server_id = server.id AND event = {Event.SEND_FAILED.value} ORDER BY at DESC, id DESC LIMIT %(most)s
) AS failure
"""  # noqa: S608 - names of our own
_DELIVERIES = f"""
SELECT server.id, delivery.at
FROM unnest(%(servers)s::bigint[]) AS server (id) CROSS JOIN LATERAL (
  SELECT at FROM {ServerDelivery._meta.db_table} WHERE server_id = server.id ORDER BY at DESC LIMIT %(most)s
) AS delivery
"""  # noqa: S608 - names of our own


def _last_outcomes(ids: Sequence[int]) -> dict[int, list[Found]]:
    """Of each server, newest first."""
    outcomes: dict[int, list[tuple[datetime, Found]]] = defaultdict(list)
    parameters: dict[str, Any] = {"servers": list(ids), "most": EVIDENCE_OUTCOMES}
    with connection.cursor() as cursor:
        cursor.execute(_FAILURES, parameters)
        for server_id, at, reason, error_code in cursor.fetchall():
            outcomes[server_id].append((at, {"outcome": "failed", "reason": reason, "error_code": error_code}))
        cursor.execute(_DELIVERIES, parameters)
        for server_id, at in cursor.fetchall():
            outcomes[server_id].append((at, {"outcome": "delivered"}))
    return {server_id: _newest(outcomes[server_id]) for server_id in ids}


def _newest(outcomes: list[tuple[datetime, Found]]) -> list[Found]:
    outcomes.sort(key=lambda outcome: outcome[0], reverse=True)
    return [{"at": at.isoformat(), **outcome} for at, outcome in outcomes[:EVIDENCE_OUTCOMES]]


def _hosts(servers: Collection[Server]) -> dict[int, Found]:
    """The number of each host, and how all of its servers are."""
    active = Q(status=Status.ACTIVE)
    rows = (
        Server.objects.filter(host__in={server.host_id for server in servers})
        .order_by()
        .values("host_id", number=F("host__number"))
        .annotate(
            servers=Count("pk"),
            active=Count("pk", filter=active),
            cooling=Count("pk", filter=Q(cooldown=True)),
            need_check=Count("pk", filter=Q(status=Status.NEED_CHECK)),
            failing=Count("pk", filter=active & Q(failed_in_row__gt=0)),
        )
    )
    return {row["host_id"]: row for row in rows}


def _others(host: Found, server: Server) -> dict[str, int]:
    active = server.status == Status.ACTIVE
    return {
        "servers": host["servers"] - 1,
        "active": host["active"] - active,
        "cooldown": host["cooling"] - server.cooldown,
        "need_check": host["need_check"] - (server.status == Status.NEED_CHECK),
        "failing": host["failing"] - (active and server.failed_in_row > 0),
    }


def newest_deliveries(server: Server, most: int) -> list[datetime]:
    """Times of the newest deliveries, newest first."""
    return list(ServerDelivery.objects.filter(server=server).order_by("-at").values_list("at", flat=True)[:most])


def group_data(group: Group | None) -> dict[str, str] | None:
    return {"uuid": str(group.uuid), "name": group.name} if group else None
