"""States of messages and attempts, and who moves them on. Pure; no Django.

A state only moves forward. The one step back that exists is a correction: a `delivered` that comes after
`failed` or `expired` makes the message delivered, and says so in an event of its own.
"""

from __future__ import annotations

import enum


class Lane(enum.StrEnum):
    """The class of a message: decides its priority and its slots."""

    OTP = "otp"  # a person is waiting for it
    TRANSACTIONAL = "transactional"  # expected soon; the default
    PROMO = "promo"  # may wait for everything else


class Channel(enum.StrEnum):
    """What kind of way out a route is."""

    IMESSAGE = "imessage"
    SMS = "sms"
    PUSH = "push"
    VOICE = "voice"


class OnLateFirst(enum.StrEnum):
    """What becomes of a message whose first attempt could not start in time."""

    SEND = "send"  # it is sent as long as it lives
    EXPIRE = "expire"  # it ends


class OnUnknown(enum.StrEnum):
    """What becomes of a message when nobody can say whether a copy of it has left."""

    HOLD = "hold"  # it stays until a receipt or its end
    RACE = "race"  # the same text over another route, as far as its duplicate budget goes


class RefusalReason(enum.StrEnum):
    """Why a route is not taken: the one list that explain, metrics and pages share; the first that fits is named."""

    DISABLED = "disabled"  # switched off
    CHANNEL = "channel"  # the client did not ask for its channel, or gave no address there
    CHANNEL_REFUSED = "channel_refused"  # the recipient refuses its channel, or was not reached there
    REGION = "region"  # a pool that this message does not go to
    LANE = "lane"  # carries other lanes only
    COUNTRY = "country"  # does not serve the recipient's network
    SENDER_NAME = "sender_name"  # may not use the sender name that the message asks for
    ENCODING = "encoding"  # cannot carry the characters of the text
    PARTS = "parts"  # the text is too long for it
    ALREADY_TRIED = "already_tried"  # failed for this message in a way that another try would not mend
    MAX_ROUTES = "max_routes"  # the message has been over as many routes as it may
    TTL = "ttl"  # would deliver too late
    ISOLATED = "isolated"  # a person took it out
    BREAKER_OPEN = "breaker_open"  # failed too often of late
    HOURS = "hours"  # not at this time of day
    QUIET_HOURS = "quiet_hours"  # the recipient wants no promo now
    NO_CAPACITY = "no_capacity"  # no server was free, or no call: at once, in this second, on this day


class MessageStatus(enum.StrEnum):
    """Where a message stands."""

    QUEUED = "queued"  # may be claimed: has a `ready` row; the dispatcher moves it on
    WAITING = "waiting"  # may be claimed from `run_after` on; the stager makes it queued
    SENDING = "sending"  # an attempt is being handed over; its settling moves it on
    SUBMITTED = "submitted"  # a route has it, or may have it; receipts and the expiry sweep move it on
    DELIVERED = "delivered"  # end: it is on the phone
    FAILED = "failed"  # end: no attempt is alive and none is possible; only a late delivery corrects it
    EXPIRED = "expired"  # end: its lifetime passed; only a late delivery corrects it
    CANCELLED = "cancelled"  # end: withdrawn before anything was submitted


ENDED = frozenset({MessageStatus.DELIVERED, MessageStatus.FAILED, MessageStatus.EXPIRED, MessageStatus.CANCELLED})


class AttemptState(enum.StrEnum):
    """Where one submission of a message stands."""

    SUBMITTING = "submitting"  # committed before the call; the settling or the rescuer moves it on
    NOT_SUBMITTED = "not_submitted"  # end: refused or never connected; only a report that it left corrects it
    UNKNOWN = "unknown"  # no clear answer; the resolver asks, receipts may come
    ACCEPTED = "accepted"  # the other side has it; receipts or the resolver move it on
    SENT = "sent"  # handed on to the phone's network; receipts move it on
    DELIVERED = "delivered"  # end: on the phone
    FAILED = "failed"  # end: not delivered; only a late delivery corrects it


#: What a report may change, by what is known. No linear rank: that it left beats every word that it did not,
#: in whatever order the two come, and a failure on the way follows only what may have left.
_MOVES: dict[AttemptState, frozenset[AttemptState]] = {
    AttemptState.SUBMITTING: frozenset(AttemptState) - {AttemptState.SUBMITTING},
    AttemptState.UNKNOWN: frozenset(AttemptState) - {AttemptState.SUBMITTING, AttemptState.UNKNOWN},
    AttemptState.ACCEPTED: frozenset(
        {AttemptState.SENT, AttemptState.NOT_SUBMITTED, AttemptState.FAILED, AttemptState.DELIVERED}
    ),
    AttemptState.SENT: frozenset({AttemptState.FAILED, AttemptState.DELIVERED}),
    AttemptState.NOT_SUBMITTED: frozenset({AttemptState.SENT, AttemptState.DELIVERED}),
    AttemptState.FAILED: frozenset({AttemptState.DELIVERED}),
    AttemptState.DELIVERED: frozenset(),
}

#: An attempt in one of these may still deliver.
ALIVE = frozenset({AttemptState.SUBMITTING, AttemptState.UNKNOWN, AttemptState.ACCEPTED, AttemptState.SENT})


def moves_attempt(known: AttemptState, reported: AttemptState) -> bool:
    """Whether a report changes what is known of an attempt: only ever forward, whatever the order of arrival."""
    return reported in _MOVES[known]


class Reason(enum.StrEnum):
    """Why a message did not end as delivered: the one list that the API, metrics and pages share."""

    EXPIRED_UNSENT = "expired_unsent"  # its lifetime passed with no attempt alive
    EXPIRED_UNCONFIRMED = "expired_unconfirmed"  # handed over, but no delivery was reported in time
    LATE_FIRST_ATTEMPT = "late_first_attempt"  # asked to be dropped when its first attempt is late
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"  # every attempt that it may have failed
    RECIPIENT_INVALID = "recipient_invalid"  # the number cannot be
    RECIPIENT_UNREACHABLE = "recipient_unreachable"  # not on any channel that it may use
    CONTENT_REJECTED = "content_rejected"  # the text was refused
    NO_ROUTE = "no_route"  # no route may carry it, or none that has not refused it
    CANCELLED = "cancelled"  # withdrawn by the client
    SUPERSEDED = "superseded"  # a newer message of the same supersede_key took its place
    SUPPRESSED = "suppressed"  # the recipient wants none, or several routes called the number invalid of late


#: The event that tells a client of a status; statuses that are not here are nobody's business but ours.
STATUS_EVENTS: dict[MessageStatus, str] = {
    MessageStatus.SUBMITTED: "message.submitted",
    MessageStatus.DELIVERED: "message.delivered",
    MessageStatus.FAILED: "message.failed",
    MessageStatus.EXPIRED: "message.expired",
    MessageStatus.CANCELLED: "message.cancelled",
}
CORRECTED_EVENT = "message.corrected"
