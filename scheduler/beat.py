"""The whole timetable: which task runs when. Beat copies it into django-celery-beat's tables at its start."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings


def _health(seconds: float) -> timedelta:
    """A period of sender health: shorter in a drill, by HEALTH_SPEED."""
    return timedelta(seconds=max(1.0, seconds / settings.HEALTH_SPEED))


def _every(period: timedelta, task: str) -> dict[str, Any]:
    """An entry. A tick that nobody took in time is dropped, not piled up: it expires before the next one, or with it.

    `expire_seconds`, in whole seconds, is what django-celery-beat keeps; it forgets Celery's own `expires`.
    """
    seconds = period.total_seconds()
    expire_seconds = max(1, int(seconds * 5 / 6))
    return {"task": f"scheduler.tasks.{task}", "schedule": seconds, "options": {"expire_seconds": expire_seconds}}


#: How often these two look whether their turn has come; when it comes is drawn (`servers.sweep_times`).
COOLDOWN_TICK, WARMUP_TICK = _health(60), _health(5)

TIMETABLE: dict[str, dict[str, Any]] = {
    # Every 2 minutes and a draw of up to 5: gives every server whose cooldown is over its verdict.
    "check_cooldown_servers": _every(COOLDOWN_TICK, "check_cooldown_servers"),
    # Every 5 minutes and a draw of up to 15 seconds: the warm-ups of cooldowns that end soon.
    "preheat_otp_sender_names": _every(WARMUP_TICK, "preheat_otp_sender_names"),
    # Preheats of new servers, and chats, whose turns are minutes apart.
    "send_preheats": _every(_health(60), "send_preheats"),
    "ask_about_internal_sends": _every(_health(60), "ask_about_internal_sends"),
    # Off, and without a query, unless FAILURE_RATE_LIMIT is set.
    "check_blocking_servers": _every(_health(600), "check_blocking_servers"),
    "watch_storms": _every(_health(60), "watch_storms"),
    "lose_signed_out": _every(_health(300), "lose_signed_out"),
    "watch_hosts": _every(timedelta(seconds=30), "watch_hosts"),
    "check_hosts": _every(timedelta(seconds=30), "check_hosts"),
    # Works once a night, for yesterday: at the first tick after 3:00 UTC, or later if beat was away.
    "reconcile_routes": _every(timedelta(hours=1), "reconcile_routes"),
    "remove_old_rows": _every(timedelta(hours=1), "remove_old_rows"),
}
