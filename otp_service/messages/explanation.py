"""`explain`, of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from django.conf import settings

from otp_service.core.outcomes import ErrorClass, Submission
from otp_service.messages.explain import AttemptFacts, MessageFacts, Suppression, explain
from otp_service.messages.models import Attempt, Message
from otp_service.messages.recipient_models import InvalidReport, Recipient
from otp_service.messages.recipient_rules import is_invalid
from otp_service.messages.rules import AttemptState, Lane, MessageStatus, OnUnknown, Reason, RefusalReason


class Unserved(Protocol):
    """Says which of some channels no enabled route of a lane and these pools serves."""

    def __call__(self, channels: Sequence[str], *, lane: str, pools: Sequence[str]) -> Collection[str]: ...


#: Routes stand above messages: their app puts it here.
unserved: Unserved = lambda channels, *, lane, pools: ()  # noqa: E731 - nothing is known without routes


def of(message: Message, *, now: datetime) -> list[str]:
    """What happened to a message and why. Neither its text nor its number is read."""
    attempts = message.attempts.select_related("server").defer("raw_reply").order_by("number")
    return explain(_message_facts(message), [_attempt_facts(attempt) for attempt in attempts], now)


def _message_facts(message: Message) -> MessageFacts:
    return MessageFacts(
        lane=message.lane,
        status=MessageStatus(message.status),
        accepted_at=message.created_at,
        expires_at=message.expires_at,
        max_attempts=message.max_attempts,
        first_attempt_by=message.first_attempt_by,
        run_after=message.run_after,
        finished_at=message.finished_at,
        reason=Reason(message.final_reason) if message.final_reason else None,
        on_unknown=OnUnknown(message.on_unknown),
        copies_left=message.copies_left,
        refusals=_refusals(message.refusals),
        channels=message.channels,
        without_route=_without_route(message),
        suppression=_suppression(message) if message.final_reason == Reason.SUPPRESSED else None,
    )


def _without_route(message: Message) -> Collection[str]:
    """Asked of those only that it may be said of."""
    if message.status not in _WANTING_A_ROUTE:
        return ()
    return unserved(message.channels, lane=message.lane, pools=message.flow.pools)


_WANTING_A_ROUTE = frozenset({MessageStatus.QUEUED, MessageStatus.WAITING, MessageStatus.FAILED, MessageStatus.EXPIRED})


def _suppression(message: Message) -> Suppression | None:
    """Which of the two held when it ended; None where neither is known of any more."""
    ended = message.finished_at or message.created_at
    of_number = {"recipient_hash": message.to_hash}
    stops = message.lane == Lane.PROMO or not settings.STOP_ONLY_PROMO
    if stops and Recipient.objects.filter(**of_number, stopped_at__lte=ended).exists():
        return Suppression.STOPPED
    reports = InvalidReport.objects.filter(**of_number, at__lte=ended).values_list("at", flat=True)
    return Suppression.INVALID if is_invalid(list(reports), ended, settings.INVALID_FOR) else None


def _attempt_facts(attempt: Attempt) -> AttemptFacts:
    return AttemptFacts(
        number=attempt.number,
        route=attempt.route,
        state=AttemptState(attempt.state),
        claimed_at=attempt.claimed_at,
        lease_until=attempt.lease_until,
        server="" if attempt.server is None else str(attempt.server),
        submission=Submission(attempt.submission) if attempt.submission else None,
        error_class=ErrorClass(attempt.error_class) if attempt.error_class else None,
        error_code=attempt.error_code,
        call=None if attempt.duration_ms is None else timedelta(milliseconds=attempt.duration_ms),
        check_at=attempt.check_at,
        sent_at=attempt.sent_at,
        finished_at=attempt.finished_at,
        possible_duplicate=attempt.possible_duplicate,
        refusals=_refusals(attempt.refusals),
    )


def _refusals(stored: Mapping[str, str] | None) -> dict[str, RefusalReason]:
    return {route: RefusalReason(reason) for route, reason in (stored or {}).items()}
