"""What relay hosts let us know about themselves and their units."""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.urls import reverse

from otp_service.core.crypto import CryptoError
from servers import history
from servers.models import Host, Server
from servers.relay.base import HostAddress
from servers.relay.bluebubbles_tokens import is_token, number_in, webhook_token
from servers.rules import Event, RelayProtocol

log = structlog.get_logger(__name__)

#: A host that writes to us all the time is marked once in so long: its row is not a counter.
SEEN_EVERY = timedelta(seconds=5)


def mark_seen(host_id: int, *, now: datetime) -> bool:
    """The host is alive: it posted to us, or answered. False when that was written down a moment ago."""
    # The condition is part of the statement: of many calls at once one writes, and nothing moves backwards.
    stale = Q(last_seen_at__isnull=True) | Q(last_seen_at__lt=now - SEEN_EVERY)
    return bool(Host.objects.filter(stale, pk=host_id).update(last_seen_at=now))


def address_of(host: Host, *, now: datetime) -> HostAddress:
    """Where a host listens. One whose secret no key opens gets none: calls to it are not made, others go on."""
    secrets: list[str] = []
    try:
        secrets = host.secrets(now)
    except CryptoError as error:
        log.error("host_secret_unreadable", host=host.number, error=str(error))  # noqa: TRY400 - nothing more to see
    return HostAddress(host.id, host.number, host.base_url, tuple(secrets), RelayProtocol(host.protocol))


def webhook_path(host: Host) -> str:
    """Where a host posts to. That of a BlueBubbles host holds a secret."""
    if host.protocol == Host.Protocol.BLUEBUBBLES:
        return reverse("bluebubbles-webhook", args=[webhook_token(host.number, host.secret)])
    return reverse("relay-webhook", args=[host.number])


def host_of_token(token: str, *, now: datetime) -> Host | None:
    """The BlueBubbles host that this token was given to, None if it was given to none."""
    number = number_in(token)
    host = (
        Host.objects.filter(number=number, protocol=Host.Protocol.BLUEBUBBLES).first() if number is not None else None
    )
    if host is None:
        return None
    if any(is_token(token, host.number, password) for password in address_of(host, now=now).secrets):
        return host
    log.warning("bluebubbles_token_refused", host=host.number)
    return None


def online(now: datetime) -> Q:
    """What asks for hosts that are enabled and were heard of lately."""
    return Q(enabled=True, last_seen_at__gte=now - settings.HOST_OFFLINE_AFTER)


def online_hosts(now: datetime) -> frozenset[int]:
    """Row ids of the hosts that are online."""
    return frozenset(Host.objects.filter(online(now)).values_list("id", flat=True))


def set_signed_in(host_id: int, unit: int, *, signed_in: bool, now: datetime) -> bool:
    """A unit signed in or out. False when nothing changed: it stood so already, or there is no such unit.

    What the host says about it in words is not kept: it may echo anything.
    """
    with transaction.atomic(savepoint=False):
        server = Server.objects.select_for_update(no_key=True).filter(host_id=host_id, unit=unit).first()
        if server is None:
            log.warning("unit_unknown", host=host_id, unit=unit)
            return False
        if server.signed_in == signed_in:
            return False
        note = "signed in" if signed_in else "signed out"
        new = {"signed_in": signed_in, "signed_out_at": None if signed_in else now}
        history.change(server, Event.SIGNED_IN_CHANGED, new, at=now, note=note)
        return True
