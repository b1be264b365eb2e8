"""Writing Events: in the transaction of the change that they tell of."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection

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


# As JSON, because that is several times cheaper to write down than arrays of texts that are JSON themselves.
_INSERT = f"""
INSERT INTO {Event._meta.db_table} (uuid, type, at, client_id, subject_uuid, data)
SELECT gen_random_uuid(), new.type, new.at, new.client_id, new.subject, new.data
FROM jsonb_to_recordset(%s::jsonb)
  AS new (type varchar, at timestamptz, client_id bigint, subject uuid, data jsonb)
"""  # noqa: S608 - the table's own name


def record_many(events: Sequence[NewEvent]) -> None:
    """Write events in one statement, in the order given."""
    if not events:
        return
    rows = [
        {
            "type": new.type,
            "at": new.at.isoformat(),
            "client_id": new.client_id,
            "subject": str(new.subject_uuid),
            "data": new.data,
        }
        for new in events
    ]
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, [json.dumps(rows)])
