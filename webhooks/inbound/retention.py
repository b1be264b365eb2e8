"""How long what was posted to us is kept."""

from __future__ import annotations

from datetime import datetime, timedelta

from webhooks.inbound.models import RawCall, RelayEvent

#: Hosts repeat for minutes; a week is for people who look into what happened.
KEPT_FOR = timedelta(days=7)


def remove_old(*, now: datetime, batch: int = 5000) -> int:
    """Remove a batch of calls and event ids that are older than a week; returns how many."""
    removed = 0
    for model in (RawCall, RelayEvent):
        old = model.objects.filter(received_at__lt=now - KEPT_FOR).order_by("received_at").values("id")[:batch]
        removed += model.objects.filter(id__in=list(old.values_list("id", flat=True))).delete()[0]
    return removed
