"""How long what the fleet leaves behind is kept."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

from otp_service.web.batches import remove_batch
from servers.models import InternalSend, RecipientLink, ServerDelivery

#: Over every window that counts them; a server that delivers less than eleven in so long starts from what is left.
DELIVERIES_KEPT_FOR = timedelta(days=40)
#: Over the longest preheat; they are evidence of what a server could do.
INTERNAL_SENDS_KEPT_FOR = timedelta(days=40)


def remove_old(*, now: datetime, batch: int = 5000) -> int:
    """Remove a batch of each kind of row that is old enough; returns how many. Safe beside itself."""
    deliveries = ServerDelivery.objects.filter(at__lt=now - DELIVERIES_KEPT_FOR).order_by("at")
    sends = InternalSend.objects.filter(created_at__lt=now - INTERNAL_SENDS_KEPT_FOR).order_by("created_at")
    links = RecipientLink.objects.filter(delivered_at__lt=now - settings.STICKY_FOR).order_by("delivered_at")
    return sum(remove_batch(rows, batch) for rows in (deliveries, sends, links))
