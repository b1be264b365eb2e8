"""What happened to a message and why, in sentences for people. Pure.

All that is said follows from what is stored: what was tried next, and not what the rules would have tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest

from otp_service.core.clock import time_of_day
from otp_service.core.outcomes import ErrorClass, Submission
from otp_service.messages.rules import AttemptState, MessageStatus, Reason

#: Why a message did not end as delivered.
REASONS: dict[Reason, str] = {
    Reason.EXPIRED_UNSENT: "its lifetime passed before it could be sent",
    Reason.EXPIRED_UNCONFIRMED: "it was handed over, but no delivery was reported in time",
    Reason.LATE_FIRST_ATTEMPT: "its first attempt was late, and the client asked to drop it then",
    Reason.ATTEMPTS_EXHAUSTED: "every attempt that it may have failed",
    Reason.RECIPIENT_INVALID: "no such number can be sent to",
    Reason.RECIPIENT_UNREACHABLE: "the recipient is on no channel that it may use",
    Reason.CONTENT_REJECTED: "the text was refused",
    Reason.CANCELLED: "the client withdrew it",
}

#: Whose fault a failed attempt was.
FAULTS: dict[ErrorClass, str] = {
    ErrorClass.THROTTLED: "too much at once, nobody's fault",
    ErrorClass.CONNECTION_REFUSED: "no connection, so nothing left",
    ErrorClass.ROUTE_REJECTED: "the route refuses us",
    ErrorClass.RECIPIENT_INVALID: "no such number",
    ErrorClass.CONTENT_REJECTED: "the text is not accepted",
    ErrorClass.RECIPIENT_UNREACHABLE: "the recipient is not on this channel",
    ErrorClass.SENDER_FAULT: "the sender's fault",
    ErrorClass.TIMEOUT_AFTER_SUBMIT: "no clear answer",
    ErrorClass.TEMPORARY: "nobody's fault that is known of",
    ErrorClass.EXPIRED: "the call came too late",
}

#: What an attempt's state means.
STATES: dict[AttemptState, str] = {
    AttemptState.SUBMITTING: "it is being handed over",
    AttemptState.NOT_SUBMITTED: "it was not sent",
    AttemptState.UNKNOWN: "it may or may not have been sent",
    AttemptState.ACCEPTED: "the host has it",
    AttemptState.SENT: "it was handed on to the phone's network",
    AttemptState.DELIVERED: "it was delivered",
    AttemptState.FAILED: "the host had it, and it was not delivered",
}

#: How a call ended that sent nothing, where that is known better than by the state.
_NOT_SENT: dict[Submission | None, str] = {
    Submission.REFUSED: "the host refused it",
    Submission.NOT_CONNECTED: "the host was not reached",
}


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """What is known of a message. Times are aware UTC; `reason` is None iff it was delivered or has not ended."""

    lane: str
    status: MessageStatus
    accepted_at: datetime
    expires_at: datetime
    max_attempts: int
    first_attempt_by: datetime | None = None
    run_after: datetime | None = None
    finished_at: datetime | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """What is known of one attempt. `server` is as people read it, as in `es 228`; `call` is how long the call took."""

    number: int
    route: str
    state: AttemptState
    claimed_at: datetime
    lease_until: datetime
    server: str = ""
    submission: Submission | None = None
    error_class: ErrorClass | None = None
    error_code: int | None = None
    call: timedelta | None = None
    check_at: datetime | None = None
    sent_at: datetime | None = None
    finished_at: datetime | None = None


def explain(message: MessageFacts, attempts: Sequence[AttemptFacts], now: datetime) -> list[str]:
    """Sentences in the order in which things happened; `attempts` are in the order of their numbers."""
    tried = [_attempt(message, one, following, now) for one, following in zip_longest(attempts, attempts[1:])]
    return [_accepted(message, now), *_lateness(message, attempts, now), *tried, _standing(message, attempts, now)]


def _accepted(message: MessageFacts, now: datetime) -> str:
    attempts = "1 attempt" if message.max_attempts == 1 else f"{message.max_attempts} attempts"
    return (
        f"Accepted at {time_of_day(message.accepted_at, now, seconds=True)} in lane {message.lane}: to be delivered"
        f" until {time_of_day(message.expires_at, now, seconds=True)}, by at most {attempts}."
    )


def _lateness(message: MessageFacts, attempts: Sequence[AttemptFacts], now: datetime) -> list[str]:
    first_by = message.first_attempt_by
    started = attempts[0].claimed_at if attempts else message.finished_at or now
    if first_by is None or started <= first_by:
        return []
    late = _span(started - first_by)
    if attempts:
        return [f"The first attempt was due by {time_of_day(first_by, now, seconds=True)} and started {late} late."]
    return [
        f"The first attempt was due by {time_of_day(first_by, now, seconds=True)}, and had not started {late} later."
    ]


def _attempt(message: MessageFacts, attempt: AttemptFacts, following: AttemptFacts | None, now: datetime) -> str:
    by = f" by {attempt.server}" if attempt.server else ""
    what = _what(attempt) + _fault(attempt) + _after(attempt)
    return f"Attempt {attempt.number} over {attempt.route}{by}: {what}{_then(message, attempt, following, now)}."


def _what(attempt: AttemptFacts) -> str:
    if attempt.state is AttemptState.ACCEPTED and attempt.error_class is not None:
        return "the host took it, and had nothing to show for it when it was asked"
    if attempt.state is AttemptState.NOT_SUBMITTED:
        return _NOT_SENT.get(attempt.submission, STATES[attempt.state])
    return STATES[attempt.state]


def _fault(attempt: AttemptFacts) -> str:
    code = [] if attempt.error_code is None else [f"code {attempt.error_code}"]
    fault = [] if attempt.error_class is None else [FAULTS[attempt.error_class]]
    return f" ({', '.join(code + fault)})" if code or fault else ""


def _after(attempt: AttemptFacts) -> str:
    match attempt.state:
        case AttemptState.NOT_SUBMITTED:
            took = attempt.call
        case AttemptState.SENT:
            took = attempt.sent_at - attempt.claimed_at if attempt.sent_at else None
        case AttemptState.DELIVERED | AttemptState.FAILED:
            took = attempt.finished_at - attempt.claimed_at if attempt.finished_at else None
        case AttemptState.SUBMITTING | AttemptState.UNKNOWN | AttemptState.ACCEPTED:
            took = None
    return "" if took is None else f" after {_span(took)}"


def _then(message: MessageFacts, attempt: AttemptFacts, following: AttemptFacts | None, now: datetime) -> str:
    match attempt.state:
        case AttemptState.SUBMITTING:
            return "; its dispatcher did not report in time, so the host is asked" if attempt.lease_until <= now else ""
        case AttemptState.UNKNOWN:
            return _asked(attempt, now)
        case AttemptState.ACCEPTED:
            return f"; a receipt is awaited{_asked(attempt, now)}"
        case AttemptState.SENT:
            return f"; delivery is awaited{_asked(attempt, now)}"
        case AttemptState.DELIVERED:
            return ""
        case AttemptState.NOT_SUBMITTED | AttemptState.FAILED:
            return _tried_next(message, attempt, following)


def _asked(attempt: AttemptFacts, now: datetime) -> str:
    if attempt.check_at is None:
        return "; the host is not asked about it any more"
    if attempt.check_at <= now:
        return "; the host is asked about it now"
    return f"; the host is asked about it at {time_of_day(attempt.check_at, now, seconds=True)}"


def _tried_next(message: MessageFacts, attempt: AttemptFacts, following: AttemptFacts | None) -> str:
    if following is None:
        waits = message.status in {MessageStatus.QUEUED, MessageStatus.WAITING}
        return "; another attempt follows" if waits else ""
    if attempt.server and attempt.server == following.server:
        return "; the same server was tried again"
    return "; another server was tried"


def _standing(message: MessageFacts, attempts: Sequence[AttemptFacts], now: datetime) -> str:
    match message.status:
        case MessageStatus.QUEUED:
            return _in_time(message, "Queued: it goes out as soon as a server is free.", now)
        case MessageStatus.WAITING:
            why = "for its next attempt" if attempts else "as it could not be given to a server yet"
            until = "" if message.run_after is None else f" until {time_of_day(message.run_after, now, seconds=True)}"
            return _in_time(message, f"Waits{until} {why}.", now)
        case MessageStatus.SENDING:
            return "Being handed over."
        case MessageStatus.SUBMITTED:
            return _in_time(message, "Handed over: what the host reports decides.", now, "a late receipt is waited for")
        case MessageStatus.DELIVERED:
            return f"Delivered{_ended_at(message, now)}{_since_accepted(message)}."
        case MessageStatus.FAILED | MessageStatus.EXPIRED | MessageStatus.CANCELLED:
            why = "" if message.reason is None else f": {REASONS[message.reason]}"
            return f"Ended {message.status.value}{_ended_at(message, now)}{why}."


def _in_time(message: MessageFacts, sentence: str, now: datetime, then: str = "the next sweep ends it") -> str:
    if message.expires_at > now:
        return sentence
    return f"Its lifetime ended at {time_of_day(message.expires_at, now, seconds=True)}: {then}."


def _ended_at(message: MessageFacts, now: datetime) -> str:
    return "" if message.finished_at is None else f" at {time_of_day(message.finished_at, now, seconds=True)}"


def _since_accepted(message: MessageFacts) -> str:
    return "" if message.finished_at is None else f", {_span(message.finished_at - message.accepted_at)} after it came"


def _span(length: timedelta) -> str:
    """A length of time. Clocks differ a little: none is under 0."""
    seconds = max(0.0, length.total_seconds())
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
