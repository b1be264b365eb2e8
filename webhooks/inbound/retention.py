"""How long what was posted to us is kept."""

from __future__ import annotations

from datetime import datetime, timedelta

from otp_service.web.batches import remove_batch
from webhooks.inbound.models import RawCall, RelayEvent

#: Hosts repeat for minutes; a week is for people who look into what happened.
KEPT_FOR = timedelta(days=7)


def remove_old(*, now: datetime, batch: int = 5000) -> int:
    """Remove a batch of calls and one of event ids that are older than a week; returns how many. Safe beside itself."""
    end = now - KEPT_FOR
    calls = RawCall.objects.filter(received_at__lt=end).order_by("received_at")
    events = RelayEvent.objects.filter(received_at__lt=end).order_by("received_at")
    return remove_batch(calls, batch) + remove_batch(events, batch)
