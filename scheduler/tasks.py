"""Celery tasks: entry points. Each reads the clock, calls one service, and is safe to run twice or at once."""

from __future__ import annotations

import structlog
from celery import shared_task
from django.conf import settings

from otp_service.core.clock import utc_now
from otp_service.messages import idempotency, recipients
from otp_service.routes import breakers, rates, receipts, reconcile
from otp_service.staff import lock_out, sessions
from scheduler import beat, host_check
from servers import cooldown, deliverability_limits, host_watch, internal_sends, preheat, storm
from servers import retention as servers_retention
from servers.sweep_times import take_turn
from webhooks.inbound import retention

log = structlog.get_logger(__name__)


@shared_task
def check_cooldown_servers() -> None:
    """Give the cooldowns that are over their verdicts, when the sweep's next turn has come."""
    now = utc_now()
    pause, jitter = settings.COOLDOWN_SWEEP, settings.COOLDOWN_SWEEP_JITTER
    if take_turn("check_cooldown_servers", now=now, pause=pause, jitter=jitter, tick=beat.COOLDOWN_TICK):
        cooldown.check_cooldown_servers(now=now)


@shared_task
def preheat_otp_sender_names() -> None:
    """Send the warm-ups whose slot has come, when the run's next turn has come."""
    now = utc_now()
    pause, jitter = settings.WARMUP_SWEEP, settings.WARMUP_SWEEP_JITTER
    if take_turn("preheat_otp_sender_names", now=now, pause=pause, jitter=jitter, tick=beat.WARMUP_TICK):
        preheat.preheat_otp_sender_names(now=now)


@shared_task
def send_preheats() -> None:
    """Send what the plans of new servers, and chat-preheats, want now."""
    now = utc_now()
    preheat.send_preheats(now=now)
    preheat.take_turns(now=now)


@shared_task
def ask_about_internal_sends() -> None:
    """Ask hosts about the internal sends that report nothing."""
    internal_sends.ask_about_silence(now=utc_now())


@shared_task
def check_blocking_servers() -> None:
    """Start cooldowns where too large a share of a day's messages failed, if FAILURE_RATE_LIMIT is set."""
    deliverability_limits.check_blocking_servers(now=utc_now())


@shared_task
def watch_storms() -> None:
    """Put storm brakes on, and let them go."""
    storm.watch_storms(now=utc_now())


@shared_task
def watch_hosts() -> None:
    """Write down which hosts went offline or came back."""
    host_watch.watch_hosts(now=utc_now())


@shared_task
def lose_signed_out() -> None:
    """Give up the servers that have been signed out for too long."""
    host_watch.lose_signed_out(now=utc_now())


@shared_task
def check_hosts() -> None:
    """Call the relay hosts that have been silent: one that answers is online again."""
    host_check.call_silent_hosts(now=utc_now())


@shared_task
def reconcile_routes() -> None:
    """Compare yesterday's attempts with the providers that can be asked, if the night has begun and nobody has."""
    reconcile.nightly(clock=utc_now)


_REMOVALS = (
    receipts.remove_old_orphans,
    idempotency.remove_old,
    retention.remove_old,
    servers_retention.remove_old,
    rates.remove_old,
    breakers.remove_old,
    recipients.remove_old_reports,
    lock_out.remove_old_attempts,
    sessions.remove_old_sessions,
)


@shared_task
def remove_old_rows() -> None:
    """Forget what has been kept long enough."""
    now = utc_now()
    removed = 0
    for remove_old in _REMOVALS:
        while count := remove_old(now=now):
            removed += count
    log.info("old_rows_removed", rows=removed)
