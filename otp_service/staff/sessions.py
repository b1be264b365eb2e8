"""Sessions of staff that are over."""

from __future__ import annotations

from datetime import datetime

from django.contrib.sessions.models import Session

from otp_service.web.batches import remove_batch

_BATCH = 1_000  # rows removed in one transaction


def remove_old_sessions(*, now: datetime, batch: int = _BATCH) -> int:
    """Remove sessions that have expired; returns how many."""
    return remove_batch(Session.objects.filter(expire_date__lt=now).order_by("pk"), batch)
