"""What a client wrote, for a person who may see it: never without an audit row."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from otp_service.core.crypto import CryptoError
from otp_service.core.errors import ServiceError
from otp_service.events import log as events
from otp_service.messages.models import Message

REVEALED_EVENT = "message.revealed"


class Unreadable(ServiceError):
    """No key of this service opens it."""

    status = 409
    code = "unreadable"
    title = "The message cannot be opened"


@dataclass(frozen=True, slots=True, repr=False)
class Revealed:
    """What clients keep secret; `metadata` is JSON, one row to a value.

    Its repr shows none of it: Django logs, at DEBUG, what a template was given.
    """

    to: str
    text: str
    reference: str
    metadata: str


def reveal(message_id: int, *, now: datetime, by: str, reason: str) -> Revealed:
    """Open a message. The Event that says who did it and why is written first, or nothing is returned.

    It belongs to no client (`client_id` is None). Raises Message.DoesNotExist, and Unreadable, which leaves
    no Event: nothing was seen.
    """
    with transaction.atomic():
        message = Message.objects.only("uuid", "to", "text", "reference", "metadata").get(pk=message_id)
        metadata = json.dumps(message.metadata, indent=2, ensure_ascii=False) if message.metadata else ""
        try:
            revealed = Revealed(message.to, message.text, message.reference, metadata)
        except CryptoError:
            raise Unreadable(
                "No key in FIELD_ENCRYPTION_KEYS opens this message: it was stored under a key that is gone. "
                "Give that key back, after the one that encrypts now."
            ) from None
        events.record(REVEALED_EVENT, at=now, subject_uuid=message.uuid, data={"by": by, "reason": reason})
    return revealed
