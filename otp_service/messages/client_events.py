"""What clients are told of a message: one shape, whoever moved it on."""

from __future__ import annotations

import uuid
from datetime import datetime

from otp_service.events.log import NewEvent


def message_event(
    event_type: str,
    *,
    at: datetime,
    message_uuid: uuid.UUID,
    client_id: int,
    lane: str,
    reference: str,
    status: str,
    reason: str = "",
    error_code: int | None = None,
) -> NewEvent:
    """The event; `reason` and `error_code` are in its data only where the message did not end well."""
    data: dict[str, object] = {"status": status, "lane": lane, "reference": reference}
    if reason:
        data |= {"reason": reason, "error_code": error_code}
    return NewEvent(type=event_type, at=at, subject_uuid=message_uuid, client_id=client_id, data=data)
