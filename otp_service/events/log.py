"""Writing Events: in the transaction of the change that they tell of."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from otp_service.events.models import Event


@dataclass(frozen=True, slots=True)
class NewEvent:
    """One change. `client_id` names the client that may know of it (None: the whole fleet).

    `data` is JSON as it is, and never holds a text, a code or a full number.
    """

    type: str
    at: datetime
    subject_uuid: uuid.UUID
    client_id: int | None = None
    data: dict[str, Any] = field(default_factory=dict)


def record(
    event_type: str,
    *,
    at: datetime,
    subject_uuid: uuid.UUID,
    client_id: int | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Write one event."""
    record_many([NewEvent(event_type, at, subject_uuid, client_id, data or {})])


def record_many(events: Sequence[NewEvent]) -> None:
    """Write events in one statement, in the order given."""
    Event.objects.bulk_create(
        Event(type=new.type, at=new.at, subject_uuid=new.subject_uuid, client_id=new.client_id, data=new.data)
        for new in events
    )
