"""Dispatchers that live: what a cap or a rate is divided by where nothing else is shared."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from otp_service.routes.models import Dispatcher

LIVE_FOR = timedelta(seconds=10)  # after its last heartbeat
KEPT_FOR = timedelta(days=1)  # then nobody asks what became of it
_NAME_LENGTH = Dispatcher._meta.get_field("name").max_length


def seen(dispatcher_id: UUID, *, name: str, now: datetime, stats: Mapping[str, Any]) -> int:
    """Write a heartbeat; returns how many dispatchers live, this one among them. `stats` is written as JSON."""
    beat = Dispatcher(id=dispatcher_id, name=name[:_NAME_LENGTH], started_at=now, last_seen_at=now, stats=dict(stats))
    Dispatcher.objects.bulk_create(
        [beat], update_conflicts=True, unique_fields=["id"], update_fields=["name", "last_seen_at", "stats"]
    )
    Dispatcher.objects.filter(last_seen_at__lt=now - KEPT_FOR).delete()
    return Dispatcher.objects.filter(last_seen_at__gte=now - LIVE_FOR).count()


def gone(dispatcher_id: UUID) -> None:
    """It stops: the others take its share at once."""
    Dispatcher.objects.filter(id=dispatcher_id).delete()
