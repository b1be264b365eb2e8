"""What became known of attempts, whoever learned it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from otp_service.core.outcomes import ErrorClass
from otp_service.messages.rules import AttemptState


@dataclass(frozen=True, slots=True)
class Change:
    """What became known about one attempt.

    `state` is applied only if it is further along than what is known; None says nothing about it. Ids and
    the service are learned whatever the state, so that the order of arrival does not matter.
    """

    attempt_id: int
    state: AttemptState | None = None
    error_class: ErrorClass | None = None
    error_code: int | None = None
    provider_message_id: str = ""
    service: str = ""
    retry_after: timedelta | None = None  # the server is to be left alone for so long; given for throttling only
    reason: str = ""  # for the server's history
    check_at: datetime | None = None  # when the other side is asked, if nothing is heard until then
    read: bool = False  # the recipient opened it
    overdue: bool = False  # the other side was asked, and has nothing to show for it
    of_call: bool = False  # it is how its own call ended: `check_at` is its route's limit
    undecided: bool = False  # it was time to know whether a copy has left, and nobody does
