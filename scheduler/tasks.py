"""Celery tasks: entry points. Each reads the clock, calls one service, and is safe to run twice or at once."""

from __future__ import annotations

import structlog
from celery import shared_task

from otp_service.core.clock import utc_now
from otp_service.messages import idempotency
from otp_service.routes import receipts
from scheduler import host_check
from servers import cooldown
from webhooks.inbound import retention

log = structlog.get_logger(__name__)


@shared_task
def check_cooldown_servers() -> None:
    """Let out the servers whose cooldown is over."""
    cooldown.check_cooldown_servers(now=utc_now())


@shared_task
def check_hosts() -> None:
    """Call the relay hosts that have been silent: one that answers is online again."""
    host_check.call_silent_hosts(now=utc_now())


@shared_task
def remove_old_rows() -> None:
    """Forget what has been kept long enough."""
    now = utc_now()
    removed = 0
    for remove_old in (receipts.remove_old_orphans, idempotency.remove_old, retention.remove_old):
        while count := remove_old(now=now):
            removed += count
    log.info("old_rows_removed", rows=removed)
