"""Asking silent relay hosts whether they are there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

import aiohttp
import structlog
from django.conf import settings
from django.db.models import F, Q

from servers.hosts import address_of, mark_seen, set_signed_in
from servers.models import Host, Server
from servers.relay.base import HostAddress, HostHealth
from servers.relay.registry import Relays
from servers.rules import RelayProtocol

log = structlog.get_logger(__name__)

_AT_ONCE = 500  # hosts called in one go

Check = Callable[[aiohttp.ClientSession, HostAddress], Awaitable[HostHealth | None]]
_CHECK: Check = Relays().check


def call_silent_hosts(*, now: datetime, check: Check = _CHECK) -> int:
    """Call every enabled host that was not heard for a third of HOST_OFFLINE_AFTER; returns how many answered.

    Hosts that do not tell of themselves are called each time, as nothing else says whether their unit is signed in.
    The longest silence comes first, and nobody is left out: hosts that are dead for good keep no other from
    being called.
    """
    hosts = _silent(now)
    answered = 0
    for start in range(0, len(hosts), _AT_ONCE):
        there = asyncio.run(_that_answer(hosts[start : start + _AT_ONCE], check))
        answered += len(there)
        for host, health in there:
            # Not where it was heard of since it was listed: its answer may be older than what it posted.
            if mark_seen(host.host_id, now=now) or host.protocol is RelayProtocol.BLUEBUBBLES:
                _take_over(host.host_id, health.units, now)
    if hosts:
        log.info("silent_hosts_called", hosts=len(hosts), answered=answered)
    return answered


def _silent(now: datetime) -> list[HostAddress]:
    quiet_since = now - settings.HOST_OFFLINE_AFTER / 3
    quiet = Q(last_seen_at__isnull=True) | Q(last_seen_at__lt=quiet_since)
    silent = Host.objects.filter(quiet | Q(protocol=Host.Protocol.BLUEBUBBLES), enabled=True)
    by_silence = silent.order_by(F("last_seen_at").asc(nulls_first=True), "number")
    # One whose secret no key opens keeps no other from being called.
    return [address for host in by_silence if (address := address_of(host, now=now)).secrets]


def _take_over(host_id: int, units: Mapping[int, bool], now: datetime) -> None:
    """What a host says of its units, where we missed that one signed in or out."""
    servers = Server.objects.filter(host_id=host_id).order_by("id")
    for unit, signed_in in servers.values_list("unit", "signed_in"):
        if (said := units.get(unit, signed_in)) != signed_in:
            set_signed_in(host_id, unit, signed_in=said, now=now)


async def _that_answer(hosts: Sequence[HostAddress], check: Check) -> list[tuple[HostAddress, HostHealth]]:
    # No limit: the default of 100 lets a host wait for its turn behind dead ones until its own time is up.
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:
        answers = await asyncio.gather(*(check(session, host) for host in hosts))
    return [(host, health) for host, health in zip(hosts, answers, strict=True) if health is not None]
