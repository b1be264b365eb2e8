"""Asking silent relay hosts whether they are there."""

from __future__ import annotations

import asyncio
from datetime import datetime

import aiohttp
import structlog
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db.models import Q

from servers.hosts import mark_seen
from servers.models import Host
from servers.relay.base import HostAddress
from servers.relay.native import NativeRelay

log = structlog.get_logger(__name__)


async def call_silent_hosts(*, now: datetime) -> int:
    """Call every enabled host that was not heard for a third of HOST_OFFLINE_AFTER; returns how many answered."""
    hosts = await sync_to_async(_silent)(now)
    adapter = NativeRelay()
    async with aiohttp.ClientSession(trust_env=False) as session:
        answers = await asyncio.gather(*(adapter.check(session, host) for host in hosts))
    answered = [host for host, health in zip(hosts, answers, strict=True) if health is not None]
    for host in answered:
        await sync_to_async(mark_seen)(host.host_id, now=now)
    if hosts:
        log.info("silent_hosts_called", hosts=len(hosts), answered=len(answered))
    return len(answered)


def _silent(now: datetime) -> list[HostAddress]:
    quiet_since = now - settings.HOST_OFFLINE_AFTER / 3
    silent = Host.objects.filter(Q(last_seen_at__isnull=True) | Q(last_seen_at__lt=quiet_since), enabled=True)
    return [HostAddress(host.id, host.number, host.base_url, host.secret) for host in silent.order_by("number")[:500]]
