"""What a client may do to a message of its own after it was accepted."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.db import transaction

from otp_service.core.errors import ServiceError
from otp_service.events import log as events
from otp_service.messages import queue
from otp_service.messages.client_events import message_event
from otp_service.messages.models import Message
from otp_service.messages.rules import STATUS_EVENTS, MessageStatus, Reason

_UNSENT = frozenset({MessageStatus.QUEUED, MessageStatus.WAITING})


class NotCancellable(ServiceError):
    """The message has been handed over, or has ended."""

    status = 409
    code = "not_cancellable"
    title = "The message cannot be cancelled"


def cancel(client_id: int, message_uuid: uuid.UUID, *, now: datetime) -> None:
    """End a message that has not been handed over. Doing so again changes nothing.

    Waiting for the row is safe: a claim takes messages with SKIP LOCKED and never waits for us. Raises
    NotCancellable, and Message.DoesNotExist also for another client's.
    """
    with transaction.atomic():
        rows = Message.objects.select_for_update(no_key=True).filter(client_id=client_id)
        message = rows.only("uuid", "status", "client_id", "lane", "reference").get(uuid=message_uuid)
        if message.status == MessageStatus.CANCELLED:
            return
        if message.status not in _UNSENT:
            raise NotCancellable(
                f"It is {message.status}: only a message that has not been handed over can be cancelled.",
                message_status=message.status,
            )
        queue.remove([message.pk])
        _end_as_cancelled(message, now)


def _end_as_cancelled(message: Message, now: datetime) -> None:
    status, reason = MessageStatus.CANCELLED, Reason.CANCELLED
    Message.objects.filter(pk=message.pk).update(status=status, finished_at=now, final_reason=reason, run_after=None)
    cancelled = message_event(
        STATUS_EVENTS[status],
        at=now,
        message_uuid=message.uuid,
        client_id=message.client_id,
        lane=message.lane,
        reference=message.reference,
        status=status.value,
        reason=reason.value,
    )
    events.record_many([cancelled])
