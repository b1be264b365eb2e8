"""The watch over what is silent: hosts that nobody hears, and units that stay signed out."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from otp_service.events import log as events
from servers import history
from servers.evidence import RECOVERIES
from servers.models import Host, Server, ServerStatusHistory
from servers.recovery_rules import NO_COOLDOWN, NO_PREHEAT
from servers.rules import Event, Status

_SUBJECTS = uuid.UUID("0c2f7c1e-2f0a-4b7e-8f43-2a1c1f0d9b55")  # the subject of a host's events is made from it


def watch_hosts(*, now: datetime) -> int:
    """Write down which hosts went offline or came back, on their servers too; returns how many did either.

    What servers are selected does not wait for it: that looks at when a host was last heard of. A host that was never
    heard of has not gone anywhere, and one that is disabled is nobody's to miss.
    """
    quiet_since = now - settings.HOST_OFFLINE_AFTER
    enabled = Host.objects.filter(enabled=True)
    gone = enabled.filter(offline_since__isnull=True, last_seen_at__lt=quiet_since)
    back = enabled.filter(offline_since__isnull=False, last_seen_at__gte=quiet_since)
    return _mark(gone, online=False, now=now) + _mark(back, online=True, now=now)


def _mark(hosts: QuerySet[Host], *, online: bool, now: datetime) -> int:
    marked = 0
    for host_id, number in hosts.order_by("id").values_list("id", "number"):
        with transaction.atomic():
            # The condition stands again in the statement: another watch may have been faster.
            if hosts.filter(pk=host_id).update(offline_since=None if online else now):
                _tell(host_id, number, online=online, now=now)
                marked += 1
    return marked


def _tell(host_id: int, number: int, *, online: bool, now: datetime) -> None:
    note = f"host {number} {'back' if online else 'offline'}"
    data = history.old_and_new({"host_online": not online}, {"host_online": online}) | {"host": number}
    servers = Server.objects.filter(host_id=host_id).exclude(status=Status.DELETED).order_by("id")
    ServerStatusHistory.objects.bulk_create(
        ServerStatusHistory(server_id=server_id, event=Event.HOST_ONLINE_CHANGED, at=now, note=note, data=data)
        for server_id in servers.values_list("id", flat=True)
    )
    subject = uuid.uuid5(_SUBJECTS, str(number))
    events.record("host.online" if online else "host.offline", at=now, subject_uuid=subject, data={"host": number})


def lose_signed_out(*, now: datetime, batch: int = 200) -> int:
    """Servers in rotation that have been signed out for too long are lost; returns how many."""
    _begin_to_count(now, batch)
    lost = 0
    while (found := _lose_batch(now, batch)) == batch:
        lost += found
    return lost + found


def _begin_to_count(now: datetime, batch: int) -> None:
    """Where it is not known since when a server is signed out, its time begins now."""
    # No row of history: nothing happened to the server, and a row would say that it signed out at this moment.
    unknown = Server.objects.filter(signed_in=False, signed_out_at__isnull=True).order_by("id")
    with transaction.atomic():
        held = unknown.select_for_update(no_key=True, skip_locked=True).values_list("id", flat=True)[:batch]
        Server.objects.filter(id__in=list(held)).update(signed_out_at=now)


def signed_out_for_long(now: datetime) -> QuerySet[Server]:
    """In rotation and signed out for SIGNED_OUT_LOST_AFTER, the longest first.

    One that a person put back into rotation meanwhile gets the whole time again, or it would be lost at once.
    """
    since = now - settings.SIGNED_OUT_LOST_AFTER
    put_back = ServerStatusHistory.objects.filter(server=OuterRef("pk"), event__in=RECOVERIES, at__gt=since)
    out = Server.objects.filter(status__in=[Status.ACTIVE, Status.NEW], signed_in=False, signed_out_at__lte=since)
    return out.exclude(Exists(put_back)).order_by("signed_out_at")


def _lose_batch(now: datetime, batch: int) -> int:
    with transaction.atomic():
        servers = signed_out_for_long(now).select_for_update(no_key=True, skip_locked=True)[:batch]
        for server in servers:
            _lose(server, now)
        return len(servers)


def _lose(server: Server, now: datetime) -> None:
    assert server.signed_out_at is not None  # it was found by it
    new = NO_COOLDOWN | NO_PREHEAT | {"status": Status.LOST.value}
    limit_s = settings.SIGNED_OUT_LOST_AFTER.total_seconds()
    data = {"signed_out_at": server.signed_out_at.isoformat(), "limit_s": limit_s}
    history.change(server, Event.LOST, new, at=now, note="signed out for too long", data=data)
