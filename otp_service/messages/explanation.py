"""`explain`, of rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from otp_service.core.outcomes import ErrorClass, Submission
from otp_service.messages.explain import AttemptFacts, MessageFacts, explain
from otp_service.messages.models import Attempt, Message
from otp_service.messages.rules import AttemptState, MessageStatus, OnUnknown, Reason, RefusalReason


def of(message: Message, *, now: datetime) -> list[str]:
    """What happened to a message and why, in one query. Neither its text nor its number is read."""
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
    )


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
