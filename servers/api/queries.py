"""Reading groups, servers, histories and hosts for the manage API, in a fixed number of queries."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Case, Count, Prefetch, QuerySet, Value, When

from servers.hosts import online
from servers.models import Group, Host, Server, ServerStatusHistory

#: What each filter of the list asks of a server.
_LOOKUPS = {
    "region": "region",
    "host": "host__number",
    "status": "status",
    "group": "groups__uuid",
    "cooldown": "cooldown",
    "preheating": "preheating",
}


def groups() -> QuerySet[Group]:
    """Groups; `server_count` says how many servers are in each."""
    return Group.objects.annotate(server_count=Count("servers"))


def servers() -> QuerySet[Server]:
    """Servers with their hosts, whose secrets stay where they are, and their groups, the strongest first."""
    return (
        Server.objects.select_related("host")
        .defer("host__secret", "host__previous_secret")
        .prefetch_related(Prefetch("groups", Group.objects.order_by("-priority")))
    )


def matching(filters: Mapping[str, Any]) -> QuerySet[Server]:
    """Servers that all the filters match."""
    return servers().filter(**{lookup: filters[name] for name, lookup in _LOOKUPS.items() if name in filters})


def servers_of(group_uuid: uuid.UUID) -> QuerySet[Server]:
    """The servers of a group, by name only. Raises Group.DoesNotExist."""
    group = Group.objects.get(uuid=group_uuid)
    return group.servers.only("uuid", "region", "unit")


def history_of(server_uuid: uuid.UUID, event: int | None) -> QuerySet[ServerStatusHistory]:
    """What happened to a server, or one kind of it. Raises Server.DoesNotExist."""
    rows = Server.objects.only("id").get(uuid=server_uuid).history.all()
    return rows if event is None else rows.filter(event=event)


def hosts(now: datetime) -> QuerySet[Host]:
    """Hosts without their secrets: which are `online` at `now`, and the `server_count` of each."""
    return (
        Host.objects.defer("secret", "previous_secret")
        .annotate(server_count=Count("servers"))
        .annotate(online=Case(When(online(now), then=Value(True)), default=Value(False)))
    )
