"""What goes with a server into Need Check: what a person needs to decide, in figures."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Count, Q

from servers.models import Group, Server, ServerDelivery, ServerStatusHistory
from servers.rules import Event, Status

#: What brings a server back from Need Check.
RECOVERIES = (Event.RECOVERED, Event.MARKED_ACTIVE, Event.PREHEAT_STARTED, Event.CHAT_PREHEAT_STARTED)
#: So many of its last outcomes go with a server into Need Check.
EVIDENCE_OUTCOMES = 20


def boomerang(server: Server, now: datetime) -> dict[str, Any]:
    """Whether it was brought back from Need Check a short time ago, and when."""
    back = ServerStatusHistory.objects.filter(server=server, event__in=RECOVERIES, data__old__status=Status.NEED_CHECK)
    since = now - settings.BOOMERANG_WITHIN
    recovered_at = back.filter(at__gte=since).order_by("-at").values_list("at", flat=True).first()
    if recovered_at is None:
        return {"boomerang": False}
    return {"boomerang": True, "recovered_at": recovered_at.isoformat()}


def collected(server: Server, now: datetime) -> dict[str, Any]:
    """What a person needs to decide: figures, never a recipient."""
    return {
        "outcomes": _last_outcomes(server),
        "counters": {
            "failed_in_row": server.failed_in_row,
            "cooldown_times": server.cooldown_times,
            "fail_open_streak": server.fail_open_streak,
        },
        "group": group_data(server.get_group_for_current_time(now)),
        "host": server.host.number,
        "others_of_host": _others_of_host(server),
    }


def _last_outcomes(server: Server) -> list[dict[str, Any]]:
    """Newest first."""
    failures = ServerStatusHistory.objects.filter(server=server, event=Event.SEND_FAILED).order_by("-at", "-id")
    outcomes: list[tuple[datetime, dict[str, Any]]] = [
        (at, {"outcome": "failed", "reason": data.get("reason"), "error_code": data.get("error_code")})
        for at, data in failures.values_list("at", "data")[:EVIDENCE_OUTCOMES]
    ]
    outcomes += [(at, {"outcome": "delivered"}) for at in newest_deliveries(server, EVIDENCE_OUTCOMES)]
    outcomes.sort(key=lambda outcome: outcome[0], reverse=True)
    return [{"at": at.isoformat(), **outcome} for at, outcome in outcomes[:EVIDENCE_OUTCOMES]]


def _others_of_host(server: Server) -> dict[str, int]:
    active = Q(status=Status.ACTIVE)
    return (
        Server.objects.filter(host_id=server.host_id)
        .exclude(pk=server.pk)
        .aggregate(
            servers=Count("pk"),
            active=Count("pk", filter=active),
            cooldown=Count("pk", filter=Q(cooldown=True)),
            need_check=Count("pk", filter=Q(status=Status.NEED_CHECK)),
            failing=Count("pk", filter=active & Q(failed_in_row__gt=0)),
        )
    )


def newest_deliveries(server: Server, most: int) -> list[datetime]:
    """Times of the newest deliveries, newest first."""
    return list(ServerDelivery.objects.filter(server=server).order_by("-at").values_list("at", flat=True)[:most])


def group_data(group: Group | None) -> dict[str, str] | None:
    return {"uuid": str(group.uuid), "name": group.name} if group else None
