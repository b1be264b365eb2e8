"""What is tried next, by whose fault a failure was. Pure.

The table follows one question: may another copy leave without avoidable duplicates, and would it help?
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta

from otp_service.core.outcomes import ErrorClass
from otp_service.messages.rules import ENDED, AttemptState, MessageStatus, Reason


class Next(enum.Enum):
    """What may be tried after an attempt failed."""

    ANOTHER_SERVER = enum.auto()  # another server, another host if one is free
    LATER = enum.auto()  # the same again after a pause; the attempt is not charged to the message
    NEXT_CHANNEL = enum.auto()  # not on this channel again
    FINISH = enum.auto()  # nothing can help


#: What follows a failure that is known to be one (`timeout_after_submit` is not: it is unknown).
NEXT: dict[ErrorClass, Next] = {
    ErrorClass.THROTTLED: Next.LATER,
    ErrorClass.CONNECTION_REFUSED: Next.LATER,
    ErrorClass.ROUTE_REJECTED: Next.ANOTHER_SERVER,
    ErrorClass.RECIPIENT_INVALID: Next.FINISH,
    ErrorClass.CONTENT_REJECTED: Next.FINISH,
    ErrorClass.RECIPIENT_UNREACHABLE: Next.NEXT_CHANNEL,
    ErrorClass.SENDER_FAULT: Next.ANOTHER_SERVER,
    ErrorClass.TIMEOUT_AFTER_SUBMIT: Next.ANOTHER_SERVER,
    ErrorClass.TEMPORARY: Next.ANOTHER_SERVER,
    ErrorClass.EXPIRED: Next.LATER,  # the call was too late for its lease; the message may still have time
}

#: The message's reason when nothing more is tried; others end as `attempts_exhausted`.
FINAL_REASON: dict[ErrorClass, Reason] = {
    ErrorClass.RECIPIENT_INVALID: Reason.RECIPIENT_INVALID,
    ErrorClass.CONTENT_REJECTED: Reason.CONTENT_REJECTED,
    ErrorClass.RECIPIENT_UNREACHABLE: Reason.RECIPIENT_UNREACHABLE,
}

#: Pauses before an uncharged attempt, by how many came before it; the last one repeats.
LATER_PAUSES: tuple[timedelta, ...] = tuple(timedelta(seconds=s) for s in (1, 2, 5, 10, 30, 60, 300, 900))

#: Pauses between questions about an attempt that does not report; after the last one nobody asks again.
CHECK_PAUSES: tuple[timedelta, ...] = tuple(timedelta(seconds=s) for s in (2, 5, 10, 30, 60, 120, 300, 600))


@dataclass(frozen=True, slots=True)
class MessageView:
    """What the rule needs to know of a message."""

    status: MessageStatus
    expires_at: datetime
    attempts_made: int
    attempts_charged: int
    max_attempts: int


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing changes for the message."""


@dataclass(frozen=True, slots=True)
class Submit:
    """A route has it, or may have it."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """It is on the phone. `corrects`: it had ended otherwise."""

    corrects: bool


@dataclass(frozen=True, slots=True)
class Retry:
    """Another attempt from `run_after` on. `charged`: the failed one counts against `max_attempts`."""

    run_after: datetime
    charged: bool


@dataclass(frozen=True, slots=True)
class Finish:
    """It ends."""

    status: MessageStatus
    reason: Reason


Step = Keep | Submit | Deliver | Retry | Finish


def step(  # noqa: PLR0911 - one return a case
    message: MessageView,
    reported: AttemptState,
    *,
    error_class: ErrorClass | None,
    others_alive: bool,
    now: datetime,
) -> Step:
    """What an attempt's new state means for its message."""
    match reported:
        case AttemptState.DELIVERED:
            if message.status is MessageStatus.DELIVERED:
                return Keep()
            return Deliver(corrects=message.status in ENDED)
        case AttemptState.UNKNOWN | AttemptState.ACCEPTED:
            return Submit() if message.status is MessageStatus.SENDING else Keep()
        case AttemptState.SENT:
            # A retry that has not started yet is dropped: what was taken for refused has left after all.
            not_out_yet = {MessageStatus.SENDING, MessageStatus.QUEUED, MessageStatus.WAITING}
            return Submit() if message.status in not_out_yet else Keep()
        case AttemptState.NOT_SUBMITTED | AttemptState.FAILED:
            held_otherwise = message.status not in {MessageStatus.SENDING, MessageStatus.SUBMITTED}
            if held_otherwise or others_alive:
                return Keep()
            return _after_failure(message, error_class or ErrorClass.SENDER_FAULT, now)
        case AttemptState.SUBMITTING:
            return Keep()


def _after_failure(message: MessageView, error_class: ErrorClass, now: datetime) -> Retry | Finish:
    match NEXT[error_class]:
        case Next.LATER:
            free_tries = message.attempts_made - message.attempts_charged
            # A longer pause that a host asked for is its server's to keep: others may be free before.
            pause = LATER_PAUSES[min(free_tries, len(LATER_PAUSES) - 1)]
            return _retry_within_life(message, now + pause, charged=False)
        case Next.ANOTHER_SERVER:
            if message.attempts_charged >= message.max_attempts:
                return Finish(MessageStatus.FAILED, Reason.ATTEMPTS_EXHAUSTED)
            return _retry_within_life(message, now, charged=True)
        case Next.NEXT_CHANNEL | Next.FINISH:
            return Finish(MessageStatus.FAILED, FINAL_REASON[error_class])


def _retry_within_life(message: MessageView, run_after: datetime, *, charged: bool) -> Retry | Finish:
    if run_after >= message.expires_at:
        return Finish(MessageStatus.EXPIRED, Reason.EXPIRED_UNSENT)
    return Retry(run_after, charged)


def same_server_may_help(error_class: ErrorClass | None) -> bool:
    """Whether a server may be tried again by a message that failed there: not if it may have been the reason."""
    return error_class is not None and NEXT[error_class] is Next.LATER


def counts_against_server(
    reported: AttemptState | None, error_class: ErrorClass | None, *, only_sender_faults: bool
) -> bool:
    """Whether a failed attempt reaches its server's failure counter.

    A sender's fault does. With `only_sender_faults` off, so does every failure of a message that the host had
    taken, whoever's fault it was; one that the host refused or never got still does not.
    """
    if error_class is ErrorClass.SENDER_FAULT:
        return True
    return reported is AttemptState.FAILED and not only_sender_faults


def check_pause(checks_made: int) -> timedelta | None:
    """How long to wait before asking once more, None when it has been asked often enough."""
    return CHECK_PAUSES[checks_made] if checks_made < len(CHECK_PAUSES) else None
