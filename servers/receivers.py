"""Servers that others may write to: active, signed in, outside cooldown, on hosts that are online."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from django.conf import settings
from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet

from servers.models import InternalSend, Server
from servers.preheat_rules import pick_receiver
from servers.rules import Status

#: So many more candidates than senders are looked at in a region: some are the senders themselves.
_SPARE = 20
_LOCK = 0x70616972  # "pair": the advisory lock, apart from everybody else's


def pair(
    senders: Sequence[Server], *, hosts: Collection[int], now: datetime, rng: random.Random
) -> list[tuple[Server, Server]]:
    """A receiver for each sender that there is one for; none is given twice, or was used in the last minutes.

    Belongs into a transaction that writes the sends down.
    """
    with connection.cursor() as cursor:
        # Until the caller's transaction ends: two runs at once would otherwise choose the same receivers.
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    by_region = {region: _rested(hosts, now, len(senders), region) for region in sorted({s.region for s in senders})}
    elsewhere: list[Server] | None = None
    given: dict[int, Server] = {}
    pairs = []
    for sender in senders:
        receiver = pick_receiver(sender, _left(by_region[sender.region], given), rng)
        if receiver is None:
            elsewhere = _rested(hosts, now, 2 * len(senders)) if elsewhere is None else elsewhere
            receiver = pick_receiver(sender, _left(elsewhere, given), rng)
        if receiver is not None:
            given[receiver.pk] = receiver
            pairs.append((sender, receiver))
    return pairs


def _left(candidates: Iterable[Server], given: Collection[int]) -> list[Server]:
    return [server for server in candidates if server.pk not in given]


def _rested(hosts: Collection[int], now: datetime, wanted: int, region: str | None = None) -> list[Server]:
    lately = InternalSend.objects.filter(
        receiver=OuterRef("pk"), created_at__gt=now - settings.WARMUP_RECEIVER_REST
    ).exclude(state=InternalSend.State.NOT_SUBMITTED)
    rested: QuerySet[Server] = Server.objects.filter(
        ~Exists(lately), status=Status.ACTIVE, cooldown=False, signed_in=True, host_id__in=hosts
    )
    if region is not None:
        # The order is that of the index that reservations use: the beginning of it is read, not the region.
        rested = rested.filter(region=region).order_by("next_send_date", "tie")
    return list(rested.select_related("host")[: wanted + _SPARE])
