"""What is known of a message and of an attempt, to begin with."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

from otp_service.core.outcomes import ErrorClass, Submission
from otp_service.messages.explain import AttemptFacts, MessageFacts
from otp_service.messages.rules import AttemptState, MessageStatus
from tests.factories import NOON

BY = "Attempt 1 over imessage:es by es 228: "
QUEUED = MessageFacts(
    lane="otp",
    status=MessageStatus.QUEUED,
    accepted_at=NOON,
    expires_at=NOON + dt.timedelta(minutes=5),
    max_attempts=4,
    first_attempt_by=NOON + dt.timedelta(seconds=15),
)
SUBMITTING = AttemptFacts(
    number=1,
    route="imessage:es",
    state=AttemptState.SUBMITTING,
    claimed_at=NOON,
    lease_until=NOON + dt.timedelta(seconds=20),
    server="es 228",
)


def at(seconds: float) -> dt.datetime:
    return NOON + dt.timedelta(seconds=seconds)


def refused(**more: Any) -> AttemptFacts:
    fields: dict[str, Any] = {
        "state": AttemptState.NOT_SUBMITTED,
        "submission": Submission.REFUSED,
        "error_class": ErrorClass.SENDER_FAULT,
        "error_code": 120,
        "call": dt.timedelta(seconds=0.4),
        "finished_at": at(1),
    }
    return replace(SUBMITTING, **(fields | more))
