"""What came of handing a message to a route, in our words.

Relay adapters, providers and the cascade share these types: whoever speaks a foreign protocol turns
the foreign words into these at the door, and nothing behind the door knows the foreign ones.
"""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta


class ErrorClass(enum.StrEnum):
    """Whose fault a failure is, and so what may be tried next (one row of the cascade's table each)."""

    THROTTLED = "throttled"  # too fast: the same route later, nobody's fault
    CONNECTION_REFUSED = "connection_refused"  # never reached the other side: safe to send again
    ROUTE_REJECTED = "route_rejected"  # the route refuses us (credentials, balance, sender name)
    RECIPIENT_INVALID = "recipient_invalid"  # the number cannot be: finish
    CONTENT_REJECTED = "content_rejected"  # the text was refused: finish
    RECIPIENT_UNREACHABLE = "recipient_unreachable"  # not on this channel: the next channel
    SENDER_FAULT = "sender_fault"  # the server failed: another server, counted against this one
    TIMEOUT_AFTER_SUBMIT = "timeout_after_submit"  # no clear answer: the unknown path
    TEMPORARY = "temporary"  # not sent, and nobody's fault that we know of: another server, charged
    #: The call came too late for its lease or the host's submit_by: later, if the message still has time.
    EXPIRED = "expired"


class Submission(enum.StrEnum):
    """How a call that hands an attempt over ended."""

    ACCEPTED = "accepted"  # the other side has it
    REFUSED = "refused"  # the other side said no, and will not send it
    NOT_CONNECTED = "not_connected"  # the request never left: nothing was sent
    UNKNOWN = "unknown"  # the request may have been read: it may or may not be sent


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """The answer to one submission.

    `error_class` is None iff `submission` is ACCEPTED. `raw` is the reply as it came, cut to
    `RAW_REPLY_LIMIT` bytes, for people; it may echo a text, so it is stored encrypted and never logged.
    """

    submission: Submission
    provider_message_id: str = ""
    error_class: ErrorClass | None = None
    error_code: int | None = None
    retry_after: timedelta | None = None
    raw: str = field(default="", repr=False)


class ReportedState(enum.StrEnum):
    """Where the other side says that an attempt stands."""

    QUEUED = "queued"  # it has it, and has not sent it yet
    SENT = "sent"  # handed on
    DELIVERED = "delivered"  # on the phone
    FAILED = "failed"  # it will not be delivered
    NEVER = "never"  # a tombstone: it was never sent and never will be
    UNKNOWN = "unknown"  # it cannot say
    NOT_FOUND = "not_found"  # it has never heard of it (proves nothing without a tombstone)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A report about the attempt `attempt_uuid`, or about whichever one carries `provider_message_id`.

    `state` is None where it only says that the message was `read`.
    """

    state: ReportedState | None
    attempt_uuid: uuid.UUID | None = None
    provider_message_id: str = ""
    service: str = ""
    error_class: ErrorClass | None = None
    error_code: int | None = None
    reason: str = ""
    read: bool = False


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The answer to a question about one attempt. `answered` is False when nobody answered."""

    state: ReportedState
    answered: bool = True
    provider_message_id: str = ""
    service: str = ""
    error_code: int | None = None
    error_class: ErrorClass | None = None  # of a failure, where the other side says whose fault it was


@dataclass(frozen=True, slots=True)
class Submittable:
    """One attempt as a provider or relay host needs it. Its repr shows neither number nor text."""

    attempt_uuid: uuid.UUID
    to: str  # E.164; on a channel that numbers do not reach, the address there
    text: str
    expires_at: datetime
    submit_by: datetime
    unit: int | None = None
    sender: str = ""  # the name that it is sent under; "": the route's own

    def __repr__(self) -> str:
        return f"<Submittable {self.attempt_uuid}>"


RAW_REPLY_LIMIT = 2048  # bytes of a provider's reply that are kept
