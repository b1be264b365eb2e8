"""Asking silent relay hosts whether they are there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

import aiohttp
import structlog
from django.conf import settings
from django.db.models import Q

from servers.hosts import mark_seen
from servers.models import Host
from servers.relay.base import HostAddress
from servers.relay.native import NativeRelay

log = structlog.get_logger(__name__)

_AT_ONCE = 500  # hosts called in one go


def call_silent_hosts(*, now: datetime) -> int:
    """Call every enabled host that was not heard for a third of HOST_OFFLINE_AFTER; returns how many answered."""
    hosts = _silent(now)
    answered = asyncio.run(_that_answer(hosts))
    for host in answered:
        mark_seen(host.host_id, now=now)
    if hosts:
        log.info("silent_hosts_called", hosts=len(hosts), answered=len(answered))
    return len(answered)


def _silent(now: datetime) -> list[HostAddress]:
    quiet_since = now - settings.HOST_OFFLINE_AFTER / 3
    silent = Host.objects.filter(Q(last_seen_at__isnull=True) | Q(last_seen_at__lt=quiet_since), enabled=True)
    return [
        HostAddress(host.id, host.number, host.base_url, host.secret) for host in silent.order_by("number")[:_AT_ONCE]
    ]


async def _that_answer(hosts: Sequence[HostAddress]) -> list[HostAddress]:
    adapter = NativeRelay()
    async with aiohttp.ClientSession(trust_env=False) as session:
        answers = await asyncio.gather(*(adapter.check(session, host) for host in hosts))
    return [host for host, health in zip(hosts, answers, strict=True) if health is not None]
