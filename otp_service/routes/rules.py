"""What is tried next, by whose fault a failure was. Pure.

The table follows one question: may another copy leave without avoidable duplicates, and would it help?
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from otp_service.core.outcomes import ErrorClass
from otp_service.messages.rules import ALIVE, ENDED, AttemptState, MessageStatus, OnUnknown, Reason


class Next(enum.Enum):
    """What may be tried after an attempt failed."""

    AGAIN = enum.auto()  # at once, whichever way is left: another server, the same route once more, another route
    LATER = enum.auto()  # the same after a pause; the attempt is not charged to the message
    FINISH = enum.auto()  # nothing can help


#: What follows a failure that is known to be one (`timeout_after_submit` is not: it is unknown). Which way is left, the
#: next claim says, by what is known of the message's attempts then: see `tried`.
NEXT: dict[ErrorClass, Next] = {
    ErrorClass.THROTTLED: Next.LATER,
    ErrorClass.CONNECTION_REFUSED: Next.LATER,
    ErrorClass.ROUTE_REJECTED: Next.AGAIN,
    ErrorClass.RECIPIENT_INVALID: Next.FINISH,
    ErrorClass.CONTENT_REJECTED: Next.FINISH,
    ErrorClass.RECIPIENT_UNREACHABLE: Next.AGAIN,  # on another channel
    ErrorClass.SENDER_FAULT: Next.AGAIN,
    ErrorClass.TIMEOUT_AFTER_SUBMIT: Next.AGAIN,
    ErrorClass.TEMPORARY: Next.AGAIN,
    ErrorClass.EXPIRED: Next.LATER,  # the call was too late for its lease; the message may still have time
}

#: The message's reason when nothing more is tried after such a failure; others end as `attempts_exhausted`.
FINAL_REASON: dict[ErrorClass, Reason] = {
    ErrorClass.RECIPIENT_INVALID: Reason.RECIPIENT_INVALID,
    ErrorClass.CONTENT_REJECTED: Reason.CONTENT_REJECTED,
    ErrorClass.RECIPIENT_UNREACHABLE: Reason.RECIPIENT_UNREACHABLE,
}

#: Failures of one message after which others of its routes go before this one. The first of them is no reason yet:
#: a connection that is refused gets one more try, a fault of a server another server, an error once more the same, and
#: a route that is asked too fast is given time twice.
LAST_AFTER: dict[ErrorClass, int] = {
    ErrorClass.CONNECTION_REFUSED: 2,
    ErrorClass.EXPIRED: 2,
    ErrorClass.THROTTLED: 3,
    ErrorClass.SENDER_FAULT: 2,
    ErrorClass.TEMPORARY: 2,
}

#: Pauses before the same route is tried again, by how many attempts over it failed so; the last one repeats. When it
#: is the others' turn, there is none.
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
    on_unknown: OnUnknown = OnUnknown.HOLD
    copies_left: int = 0
    withdrawn: Reason | None = None  # why nothing more of it may leave


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing changes for the message."""


@dataclass(frozen=True, slots=True)
class Submit:
    """A route has it, or may have it. `again`: an earlier attempt may still deliver, and its client was told."""

    again: bool = False


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


def step(  # noqa: PLR0911, C901 - one return a case
    message: MessageView,
    reported: AttemptState,
    *,
    error_class: ErrorClass | None,
    others: Collection[AttemptState],
    now: datetime,
    failures: int = 1,
    retry_after: timedelta | None = None,
) -> Step:
    """What an attempt's new state means for its message. `others`: the states of its other attempts.

    `failures`: how many of its attempts over this route failed so, this one included; `retry_after`: for how long the
    route wants to be left alone. A message with two attempts alive is submitted, and
    the first that delivers ends it.
    """
    others_alive = not ALIVE.isdisjoint(others)
    match reported:
        case AttemptState.DELIVERED:
            if message.status is MessageStatus.DELIVERED:
                return Keep()
            return Deliver(corrects=message.status in ENDED)
        case AttemptState.UNKNOWN | AttemptState.ACCEPTED:
            is_its_own = message.status is MessageStatus.SENDING and AttemptState.SUBMITTING not in others
            return Submit(again=others_alive) if is_its_own else Keep()
        case AttemptState.SENT:
            # A retry that has not started yet is dropped: what was taken for refused has left after all.
            not_out_yet = {MessageStatus.SENDING, MessageStatus.QUEUED, MessageStatus.WAITING}
            is_not_out = message.status in not_out_yet and AttemptState.SUBMITTING not in others
            return Submit(again=others_alive) if is_not_out else Keep()
        case AttemptState.NOT_SUBMITTED | AttemptState.FAILED:
            if message.status not in {MessageStatus.SENDING, MessageStatus.SUBMITTED}:
                return Keep()
            if others_alive:
                was_its_own = message.status is MessageStatus.SENDING and AttemptState.SUBMITTING not in others
                return Submit(again=True) if was_its_own else Keep()
            if message.withdrawn is not None:
                return Finish(MessageStatus.CANCELLED, message.withdrawn)
            if reported is AttemptState.FAILED and error_class is ErrorClass.EXPIRED:
                return Finish(MessageStatus.EXPIRED, Reason.EXPIRED_UNCONFIRMED)  # its provider's word for our own end
            error_class = error_class or ErrorClass.SENDER_FAULT
            return _after_failure(message, error_class, _pause(message, error_class, failures, retry_after, now), now)
        case AttemptState.SUBMITTING:
            return Keep()


def may_race(message: MessageView, states: Collection[AttemptState], now: datetime) -> bool:
    """Whether the same text may go over another route, of a message of which nobody can say whether a copy has left.

    Only while all that is known of its live attempts is that nothing is known: one that was accepted is no reason.
    """
    alive = [state for state in states if state in ALIVE]
    return (
        message.on_unknown is OnUnknown.RACE
        and message.status is MessageStatus.SUBMITTED
        and message.withdrawn is None
        and message.copies_left > 0
        and message.attempts_charged < message.max_attempts
        and now < message.expires_at
        and set(alive) == {AttemptState.UNKNOWN}
    )


def _after_failure(message: MessageView, error_class: ErrorClass, pause: timedelta, now: datetime) -> Retry | Finish:
    match NEXT[error_class]:
        case Next.LATER:
            return _retry_within_life(message, now + pause, charged=False)
        case Next.AGAIN:
            if message.attempts_charged >= message.max_attempts:
                return Finish(MessageStatus.FAILED, FINAL_REASON.get(error_class, Reason.ATTEMPTS_EXHAUSTED))
            return _retry_within_life(message, now, charged=True)
        case Next.FINISH:
            return Finish(MessageStatus.FAILED, FINAL_REASON[error_class])


def _pause(
    message: MessageView, error_class: ErrorClass, failures: int, retry_after: timedelta | None, now: datetime
) -> timedelta:
    """Before the next try: as long as the route asks for, unless that is over half of what the message has left.

    When it is the others' turn there is none; where there are no others, the same route is asked once too early.
    """
    if failures == LAST_AFTER.get(error_class):
        return timedelta()
    pause = LATER_PAUSES[min(failures, len(LATER_PAUSES)) - 1]
    asked = retry_after or timedelta()
    return max(pause, asked) if asked <= (message.expires_at - now) / 2 else pause


def _retry_within_life(message: MessageView, run_after: datetime, *, charged: bool) -> Retry | Finish:
    if run_after >= message.expires_at:
        return Finish(MessageStatus.EXPIRED, Reason.EXPIRED_UNSENT)
    return Retry(run_after, charged)


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
