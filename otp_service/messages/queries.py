"""Reading messages, always as one client."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.db.models import Exists, OuterRef, Prefetch, Q, QuerySet

from otp_service.messages.models import Attempt, Message
from otp_service.messages.rules import ALIVE, ENDED, AttemptState, MessageStatus
from otp_service.web.fields import recipient_hashes

#: What each filter of the list asks of a message.
_LOOKUPS = {
    "status": "status",
    "lane": "lane",
    "reference": "reference",
    "created_from": "event_at__gte",
    "created_to": "event_at__lt",
}


def of_client(client_id: int) -> QuerySet[Message]:
    """A client's messages without their texts and addresses.

    `outcome_unknown`: it is submitted, and all that is known of its live attempts is that nothing is known.
    """
    attempts = Attempt.objects.filter(message_id=OuterRef("pk"))
    in_doubt = Exists(attempts.filter(state=AttemptState.UNKNOWN))
    out = Exists(attempts.filter(state__in=sorted(ALIVE - {AttemptState.UNKNOWN})))
    return (
        Message.objects.filter(client_id=client_id)
        .select_related("final_server")
        .defer("text", "addresses")
        .annotate(outcome_unknown=Q(status=MessageStatus.SUBMITTED) & in_doubt & ~out)
    )


def one(client_id: int, message_uuid: uuid.UUID) -> Message:
    """One message with its attempts. Raises Message.DoesNotExist, also for another client's."""
    attempts = Attempt.objects.defer("raw_reply").order_by("number")
    return of_client(client_id).prefetch_related(Prefetch("attempts", attempts)).get(uuid=message_uuid)


def matching(client_id: int, filters: Mapping[str, Any]) -> QuerySet[Message]:
    """A client's messages that all the filters match."""
    found = of_client(client_id).filter(
        **{lookup: filters[name] for name, lookup in _LOOKUPS.items() if name in filters}
    )
    if "to" in filters:
        found = found.filter(to_hash__in=recipient_hashes(filters["to"]))
    if "status" in filters:
        # Says nothing new, but lets the index of the few messages that are under way serve.
        found = found.filter(finished_at__isnull=filters["status"] not in ENDED)
    return found
