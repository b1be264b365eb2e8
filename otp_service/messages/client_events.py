"""What clients are told of a message: one shape, whoever moved it on."""

from __future__ import annotations

import uuid
from datetime import datetime

from otp_service.events.log import NewEvent
from otp_service.events.models import Event

#: What `message_event` makes, for statements that move many messages `m` on, none of them to a bad end. Such a
#: statement names them behind it (`FROM ... AS m`); parameters: the `event`'s type, and `now`.
EVENTS_OF_MESSAGES = f"""
INSERT INTO {Event._meta.db_table} (uuid, type, at, client_id, subject_uuid, data)
SELECT gen_random_uuid(), %(event)s, %(now)s, m.client_id, m.uuid,
       jsonb_build_object('status', m.status, 'lane', m.lane, 'reference', m.reference)
"""


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
