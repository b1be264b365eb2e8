"""What happened to a message and why, in sentences for people. Pure.

All that is said follows from what is stored: what was tried next, and not what the rules would have tried.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import zip_longest

from otp_service.core.clock import time_of_day
from otp_service.core.outcomes import ErrorClass, Submission
from otp_service.messages.rules import ALIVE, AttemptState, MessageStatus, OnUnknown, Reason, RefusalReason

#: Why a message did not end as delivered.
REASONS: dict[Reason, str] = {
    Reason.EXPIRED_UNSENT: "its lifetime passed before it could be sent",
    Reason.EXPIRED_UNCONFIRMED: "it was handed over, but no delivery was reported in time",
    Reason.LATE_FIRST_ATTEMPT: "its first attempt was late, and the client asked to drop it then",
    Reason.ATTEMPTS_EXHAUSTED: "every attempt that it may have failed",
    Reason.RECIPIENT_INVALID: "no such number can be sent to",
    Reason.RECIPIENT_UNREACHABLE: "the recipient is on no channel that it may use",
    Reason.CONTENT_REJECTED: "the text was refused",
    Reason.NO_ROUTE: "no route may carry it, or none that has not refused it",
    Reason.CANCELLED: "the client withdrew it",
    Reason.SUPERSEDED: "a newer message of the client took its place",
    Reason.SUPPRESSED: "the recipient wants no such messages, or the number was called invalid too often of late",
}


class Suppression(enum.StrEnum):
    """Why nothing was sent to a recipient."""

    STOPPED = "stopped"
    INVALID = "invalid"


#: The one of the two that REASONS names for a suppressed message, where it is known.
SUPPRESSIONS: dict[Suppression, str] = {
    Suppression.STOPPED: "the recipient answered STOP and wants no such messages",
    Suppression.INVALID: "several routes called the number invalid of late",
}

#: Why routes were not taken: behind the name of one or of several.
REFUSALS: dict[RefusalReason, str] = {
    RefusalReason.DISABLED: "switched off",
    RefusalReason.CHANNEL: "not a channel of this message, or no address there",
    RefusalReason.CHANNEL_REFUSED: "the recipient refuses this channel, or was not reached there",
    RefusalReason.REGION: "not a region of this message",
    RefusalReason.LANE: "for other lanes only",
    RefusalReason.COUNTRY: "no service for this number",
    RefusalReason.SENDER_NAME: "the sender name may not be used there",
    RefusalReason.ENCODING: "the characters of the text cannot be carried",
    RefusalReason.PARTS: "the text is too long",
    RefusalReason.ALREADY_TRIED: "failed for this message, and another try would not mend it",
    RefusalReason.MAX_ROUTES: "the message has been over as many routes as it may",
    RefusalReason.TTL: "delivery would come too late",
    RefusalReason.ISOLATED: "taken out by a person",
    RefusalReason.BREAKER_OPEN: "too many failures of late",
    RefusalReason.HOURS: "closed at this time of day",
    RefusalReason.QUIET_HOURS: "the recipient wants no promo at this hour",
    RefusalReason.NO_CAPACITY: "no server was free, or no call: of those at once, of this second or of this day",
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
    AttemptState.ACCEPTED: "it was accepted",
    AttemptState.SENT: "it was handed on to the phone's network",
    AttemptState.DELIVERED: "it was delivered",
    AttemptState.FAILED: "it was accepted, and not delivered",
}

#: How a call ended that sent nothing, where that is known better than by the state.
_NOT_SENT: dict[Submission | None, str] = {
    Submission.REFUSED: "it was refused",
    Submission.NOT_CONNECTED: "nobody was reached",
}

#: Ends for which the routes say why.
_FOR_WANT_OF_A_ROUTE = frozenset({Reason.NO_ROUTE, Reason.EXPIRED_UNSENT, Reason.LATE_FIRST_ATTEMPT})


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """What is known of a message. Times are aware UTC; `reason` is None iff it was delivered or has not ended.

    `refusals`: by route, why none took it when it was last looked at. `without_route`: those of its `channels` that
    no enabled route of its lane serves now. `suppression`: why it was suppressed; None where that is not known.
    """

    lane: str
    status: MessageStatus
    accepted_at: datetime
    expires_at: datetime
    max_attempts: int
    first_attempt_by: datetime | None = None
    run_after: datetime | None = None
    finished_at: datetime | None = None
    reason: Reason | None = None
    on_unknown: OnUnknown = OnUnknown.HOLD
    copies_left: int = 0
    refusals: Mapping[str, RefusalReason] = field(default_factory=dict)
    channels: Sequence[str] = ()
    without_route: Collection[str] = ()
    suppression: Suppression | None = None

    @property
    def has_no_route(self) -> bool:
        """Whether none of its channels has a route."""
        return bool(self.channels) and set(self.channels) <= set(self.without_route)


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """What is known of one attempt. `server` is as people read it, as in `es 228`; `call` is how long the call took.

    `refusals`: by route, why others were passed over.
    """

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
    possible_duplicate: bool = False
    refusals: Mapping[str, RefusalReason] = field(default_factory=dict)


def explain(message: MessageFacts, attempts: Sequence[AttemptFacts], now: datetime) -> list[str]:
    """Sentences in the order in which things happened; `attempts` are in the order of their numbers."""
    tried = [
        line
        for one, following in zip_longest(attempts, attempts[1:])
        for line in (*_passed_over(one.refusals), _attempt(message, one, following, now))
    ]
    last_looked_at = _passed_over(message.refusals) if _wants_a_route(message) else []
    standing = _standing(message, attempts, now)
    why = [*last_looked_at, *_unserved(message)]
    return [_accepted(message, now), *_lateness(message, attempts, now), *tried, *why, standing]


def _wants_a_route(message: MessageFacts) -> bool:
    return message.status is MessageStatus.WAITING or message.reason in _FOR_WANT_OF_A_ROUTE


def _passed_over(refusals: Mapping[str, RefusalReason]) -> list[str]:
    """One sentence, in the order of the reasons; none where nothing was passed over."""
    routes = {reason: sorted(route for route, why in refusals.items() if why is reason) for reason in REFUSALS}
    told = [f"over {', '.join(names)}: {REFUSALS[reason]}" for reason, names in routes.items() if names]
    return [f"Not {'; not '.join(told)}."] if told else []


def _unserved(message: MessageFacts) -> list[str]:
    """That some of its channels have no route; of one without any, its standing says so."""
    missing = [channel for channel in message.channels if channel in message.without_route]
    is_told = _wants_a_route(message) or message.status is MessageStatus.QUEUED
    if not missing or not is_told or message.has_no_route:
        return []
    return [f"{_no_route(missing, message.lane)}."]


def _no_route(channels: Iterable[str], lane: str) -> str:
    return f"No enabled route of channel {' or '.join(channels)} carries lane {lane} now"


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
    again = ", although an earlier copy may have left" if attempt.possible_duplicate else ""
    what = _what(attempt) + _fault(attempt) + _after(attempt)
    return f"Attempt {attempt.number} over {attempt.route}{by}{again}: {what}{_then(message, attempt, following, now)}."


def _what(attempt: AttemptFacts) -> str:
    if attempt.state is AttemptState.ACCEPTED and attempt.error_class is not None:
        return "it was accepted, and nothing could be shown for it when it was asked about"
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
            return "; its dispatcher did not report in time, so it is asked about" if attempt.lease_until <= now else ""
        case AttemptState.UNKNOWN:
            return _asked(attempt, now) + _raced(following)
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
        return "; it is not asked about any more"
    if attempt.check_at <= now:
        return "; it is asked about now"
    return f"; it is asked about at {time_of_day(attempt.check_at, now, seconds=True)}"


def _raced(following: AttemptFacts | None) -> str:
    return "; rather than wait, another copy was sent" if following and following.possible_duplicate else ""


def _tried_next(message: MessageFacts, attempt: AttemptFacts, following: AttemptFacts | None) -> str:
    if following is None:
        waits = message.status in {MessageStatus.QUEUED, MessageStatus.WAITING}
        return "; another attempt follows" if waits else ""
    if attempt.route != following.route:
        return "; another route was tried"
    if attempt.server != following.server:
        return "; another server was tried"
    return f"; the same {'server' if attempt.server else 'route'} was tried again"


def _standing(message: MessageFacts, attempts: Sequence[AttemptFacts], now: datetime) -> str:
    match message.status:
        case MessageStatus.QUEUED:
            sentence = _without_any_route(message, now) or "Queued: it goes out as soon as a route is free."
            return _in_time(message, sentence, now)
        case MessageStatus.WAITING:
            return _in_time(message, _without_any_route(message, now) or _waits(message, attempts, now), now)
        case MessageStatus.SENDING:
            return "Being handed over."
        case MessageStatus.SUBMITTED:
            return _in_time(message, _handed_over(message, attempts), now, "a late receipt is waited for")
        case MessageStatus.DELIVERED:
            return f"Delivered{_ended_at(message, now)}{_since_accepted(message)}."
        case MessageStatus.FAILED | MessageStatus.EXPIRED | MessageStatus.CANCELLED:
            why = "" if message.reason is None else f": {_reason(message, message.reason)}"
            return f"Ended {message.status.value}{_ended_at(message, now)}{why}."


def _without_any_route(message: MessageFacts, now: datetime) -> str:
    """ "" where there is one."""
    if not message.has_no_route:
        return ""
    until = time_of_day(message.expires_at, now, seconds=True)
    return f"{_no_route(message.channels, message.lane)}: waits for one until its lifetime ends at {until}."


def _waits(message: MessageFacts, attempts: Sequence[AttemptFacts], now: datetime) -> str:
    until = "" if message.run_after is None else f" until {time_of_day(message.run_after, now, seconds=True)}"
    if message.run_after and {*message.refusals.values()} == {RefusalReason.QUIET_HOURS}:
        what = "its lifetime ends" if message.run_after >= message.expires_at else "the recipient's quiet hours end"
        return f"Waits{until}: {what} then."
    return f"Waits{until} {'for its next attempt' if attempts else 'as no route could take it yet'}."


def _reason(message: MessageFacts, reason: Reason) -> str:
    if reason is Reason.SUPPRESSED and message.suppression is not None:
        return SUPPRESSIONS[message.suppression]
    if reason is Reason.EXPIRED_UNSENT and message.has_no_route and not message.refusals:
        return f"{REASONS[reason]}. {_no_route(message.channels, message.lane)}"
    return REASONS[reason]


def _handed_over(message: MessageFacts, attempts: Sequence[AttemptFacts]) -> str:
    alive = {attempt.state for attempt in attempts} & ALIVE
    if alive != {AttemptState.UNKNOWN}:
        return "Handed over: what is reported of it decides."
    if message.on_unknown is OnUnknown.HOLD:
        return "Perhaps handed over: it is held until a report comes."
    if not message.copies_left:
        return "Perhaps handed over: no further copy may leave, so a report is waited for."
    return "Perhaps handed over: another copy races it over another route if no report comes in time."


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
