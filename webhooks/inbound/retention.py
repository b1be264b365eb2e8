"""How long what was posted to us is kept."""

from __future__ import annotations

from datetime import datetime, timedelta

from otp_service.web.batches import remove_batch
from webhooks.inbound.models import ProviderCall, RawCall, RelayEvent

#: Hosts repeat for minutes; a week is for people who look into what happened.
KEPT_FOR = timedelta(days=7)


def remove_old(*, now: datetime, batch: int = 5000) -> int:
    """Remove a batch of each kind that is older than a week; returns how many rows. Safe beside itself."""
    old = (
        model.objects.filter(received_at__lt=now - KEPT_FOR).order_by("received_at")
        for model in (RawCall, ProviderCall, RelayEvent)
    )
    return sum(remove_batch(rows, batch) for rows in old)
