"""What ends a message before it is handed over: its client, or a newer message."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from otp_service.core.errors import ServiceError
from otp_service.events import log as events
from otp_service.messages import queue
from otp_service.messages.client_events import message_event
from otp_service.messages.models import Message
from otp_service.messages.rules import STATUS_EVENTS, MessageStatus, Reason

_UNSENT = frozenset({MessageStatus.QUEUED, MessageStatus.WAITING})
_HANDED_OVER = frozenset({MessageStatus.SENDING, MessageStatus.SUBMITTED})


class NotCancellable(ServiceError):
    """The message has been handed over, or has ended."""

    status = 409
    code = "not_cancellable"
    title = "The message cannot be cancelled"


def cancel(client_id: int, message_uuid: uuid.UUID, *, now: datetime) -> None:
    """End a message that has not been handed over. Doing so again changes nothing.

    Of one that has, no extra copy leaves. Waiting for the row is safe: a claim takes messages with SKIP LOCKED and
    never waits for us. Raises NotCancellable, and Message.DoesNotExist also for another client's.
    """
    with transaction.atomic():
        rows = Message.objects.select_for_update(no_key=True).filter(client_id=client_id)
        message = rows.only("uuid", "status", "client_id", "lane", "reference").get(uuid=message_uuid)
        withdraw([message], Reason.CANCELLED, now=now)
    if message.status not in _UNSENT | {MessageStatus.CANCELLED}:
        raise NotCancellable(
            f"It is {message.status}: only a message that has not been handed over can be cancelled.",
            message_status=message.status,
        )


def withdraw(messages: Sequence[Message], reason: Reason, *, now: datetime) -> None:
    """Let nothing leave of messages whose rows the caller has locked: those that are unsent end as cancelled.

    What has been handed over stays as it is; it is not tried again, and no extra copy leaves. What has ended stays.
    """
    handed_over = [message.pk for message in messages if message.status in _HANDED_OVER]
    unsent = [message for message in messages if message.status in _UNSENT]
    queue.remove([*handed_over, *(message.pk for message in unsent)])
    if handed_over:
        Message.objects.filter(pk__in=handed_over).update(withdrawn=reason.value)
    if unsent:
        _end_as_cancelled(unsent, reason, now)


def _end_as_cancelled(messages: Sequence[Message], reason: Reason, now: datetime) -> None:
    status = MessageStatus.CANCELLED
    ended = Message.objects.filter(pk__in=[message.pk for message in messages])
    ended.update(status=status, finished_at=now, final_reason=reason, run_after=None)
    events.record_many(
        [
            message_event(
                STATUS_EVENTS[status],
                at=now,
                message_uuid=message.uuid,
                client_id=message.client_id,
                lane=message.lane,
                reference=message.reference,
                status=status.value,
                reason=reason.value,
            )
            for message in messages
        ]
    )
