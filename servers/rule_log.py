"""The figures of sender health, logged when they differ from the last ones: reports can say that a rule changed."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from otp_service.events import log
from otp_service.events.models import Event

RULES_CHANGED = "rules.changed"
#: What these events are about: no row has this id.
RULES = uuid.UUID("4e0f6b0a-7c39-4d06-9a6b-0d1f6f7f2b11")
_LOCK = 0x72756C65  # "rule": the advisory lock, apart from everybody else's

#: Everything that a verdict depends on; not the texts of warm-ups, which events never hold.
FIGURES = (
    "BOOMERANG_WITHIN",
    "BUDGET_MESSAGES_PER_DAY",
    "BUDGET_NEW_RECIPIENTS_PER_DAY",
    "CHAT_PREHEAT_MESSAGES",
    "CHAT_PREHEAT_PATIENCE",
    "CHAT_PREHEAT_PAUSE_MINUTES",
    "COOLDOWN_LADDER",
    "COOLDOWN_SWEEP",
    "COOLDOWN_SWEEP_JITTER",
    "COUNT_ONLY_SENDER_FAULTS",
    "EXTENSION_MINUTES",
    "FAILED_IN_ROW",
    "FAILURE_RATE_LIMIT",
    "FAILURE_RATE_MIN_MESSAGES",
    "FAIL_OPEN_LIMIT",
    "HEALTH_SPEED",
    "HOST_OFFLINE_AFTER",
    "LONG_COOLDOWN_MINUTES",
    "MAX_EXTENSIONS",
    "MESSAGES_LIMIT_24_HOURS",
    "OTP_LIMITS_1_HOUR",
    "PREHEAT_CONFIRMED_SHARE",
    "PREHEAT_HOURS",
    "PREHEAT_PACE",
    "PREHEAT_PLAN",
    "PREHEAT_REPEATS",
    "RECEIPT_WAIT",
    "REGION_TIME_ZONES",
    "RELEASE_PAUSE",
    "RESET_DELIVERIES",
    "RESET_DELIVERIES_PREHEATING",
    "RESET_RULE",
    "RESET_WINDOW",
    "SEND_INTERVAL_MINUTES",
    "SIGNED_OUT_LOST_AFTER",
    "STICKY_FOR",
    "STORM_BRAKE",
    "STORM_MIN_HOST",
    "STORM_MIN_REGION",
    "STORM_OFF_SHARE",
    "STORM_ON_SHARE",
    "STORM_WINDOW",
    "VERDICT_DELAY",
    "WARMUP_AFTER_LONG_MINUTES",
    "WARMUP_AFTER_SHORT_MINUTES",
    "WARMUP_LEAD",
    "WARMUP_MIN_MARGIN",
    "WARMUP_PROOF_WINDOW",
    "WARMUP_RECEIVER_REST",
    "WARMUP_SWEEP",
    "WARMUP_SWEEP_JITTER",
)


def record_figures(*, now: datetime) -> bool:
    """Write an Event if the figures are not those of the last one; False when they are. Safe at many starts at once."""
    figures = {name: _plain(getattr(settings, name)) for name in FIGURES}
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        last = Event.objects.filter(subject_uuid=RULES).order_by("-id").values_list("data", flat=True).first()
        known = {} if last is None else last["figures"]
        changed = {name: value for name, value in figures.items() if known.get(name) != value}
        if not changed:
            return False
        old = {name: known.get(name) for name in changed}
        data = {"old": old, "new": changed, "figures": figures}
        log.record(RULES_CHANGED, at=now, subject_uuid=RULES, data=data)
        return True


def _plain(value: Any) -> Any:
    """As JSON has it: seconds, a text, a number, or a list."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(value) if isinstance(value, tuple) else value  # a mapping is JSON already
