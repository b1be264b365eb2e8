"""What came of handing attempts over: settled in batches, rescued when nobody settled them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import connection, transaction

from otp_service.core import clock
from otp_service.core.outcomes import RAW_REPLY_LIMIT, ErrorClass, Submission, SubmitResult
from otp_service.messages import recipients
from otp_service.messages.models import Attempt
from otp_service.messages.recipient_rules import Word
from otp_service.messages.rules import AttemptState
from otp_service.routes import accepted, receipts
from otp_service.routes.changes import Change
from otp_service.routes.claim import Claimed
from otp_service.routes.providers import twilio
from otp_service.routes.route_rules import RouteKind
from otp_service.routes.settle import apply_changes
from otp_service.web.fields import encrypted_field
from servers.rules import RelayProtocol

log = structlog.get_logger(__name__)

#: How a submission ended, as the attempt's state.
STATES: dict[Submission, AttemptState] = {
    Submission.ACCEPTED: AttemptState.ACCEPTED,
    Submission.REFUSED: AttemptState.NOT_SUBMITTED,
    Submission.NOT_CONNECTED: AttemptState.NOT_SUBMITTED,
    Submission.UNKNOWN: AttemptState.UNKNOWN,
}
#: An unknown attempt is asked about after this: the host may still be writing its own books.
UNKNOWN_WAIT = timedelta(seconds=1)
#: Accepted by a host that tells of nothing: what it hints at before this is written may find no attempt.
POLL_WAIT = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Submitted:
    """One call that ended."""

    claimed: Claimed
    result: SubmitResult
    duration: timedelta


def settle(batch: Sequence[Submitted], *, now: datetime, rng: random.Random = clock.rng) -> None:
    """Write a batch: states by compare-and-set, facts whatever the state.

    Facts of a late call are kept on its attempt, but what a receipt or the resolver found since then stands.
    What is plainly accepted is committed first: each transaction takes its own locks in the order of all.
    """
    plain = accepted.accept([_accepted(done, now) for done in batch if _is_plain(done)], now=now)
    rest = _under_their_own_token([done for done in batch if done.claimed.attempt_id not in plain])
    learned = _learned([*rest, *(done for done in batch if done.claimed.attempt_id in plain)])
    if not rest and not (learned and receipts.any_orphan()):
        return
    with transaction.atomic():
        changes = [_change(done, now) for done in rest]
        apply_changes([*changes, *receipts.take_orphans(learned, now=now)], now=now, rng=rng)
        _write_facts(rest)
        recipients.note_answers(_stops(rest), now=now)


def _stops(batch: Sequence[Submitted]) -> list[tuple[str, str]]:
    """Recipients that a provider refused because they had answered STOP to it, as `note_answers` takes them."""
    return [
        (done.claimed.send.to, Word.STOP)
        for done in batch
        if (done.claimed.spec.kind, done.result.error_code) == (RouteKind.TWILIO, twilio.STOPPED)
    ]


def _is_plain(done: Submitted) -> bool:
    result = done.result
    is_taken = result.submission is Submission.ACCEPTED and result.error_class is None and result.error_code is None
    return is_taken and not done.claimed.is_copy


def _accepted(done: Submitted, now: datetime) -> accepted.Accepted:
    return accepted.Accepted(
        attempt_id=done.claimed.attempt_id,
        token=done.claimed.token,
        provider_message_id=done.result.provider_message_id,
        sealed_reply=_sealed_reply(done),
        duration_ms=_milliseconds(done),
        check_at=_check_at(done.claimed, AttemptState.ACCEPTED, now),
    )


def _check_at(claimed: Claimed, state: AttemptState, now: datetime) -> datetime | None:
    """When the other side is asked about it, if nothing is heard until then; None: nobody can be asked."""
    if state is AttemptState.UNKNOWN:
        return now + UNKNOWN_WAIT
    can_be_asked = claimed.host is not None or claimed.terms.can_query
    if state is not AttemptState.ACCEPTED or not can_be_asked:
        return None
    if claimed.host is not None and claimed.host.protocol is RelayProtocol.BLUEBUBBLES:
        return now + POLL_WAIT
    return now + (claimed.terms.receipt_wait or settings.RECEIPT_WAIT)


def _learned(batch: Sequence[Submitted]) -> dict[tuple[int | str, str], int]:
    """The other side's ids, which receipts may have been waiting for: by host, or by route where there is none."""
    return {
        (_owner(done.claimed), done.result.provider_message_id): done.claimed.attempt_id
        for done in batch
        if done.result.provider_message_id
    }


def _owner(claimed: Claimed) -> int | str:
    return claimed.route if claimed.host is None else claimed.host.host_id


def _under_their_own_token(batch: Sequence[Submitted]) -> list[Submitted]:
    """By attempt id, without results of another claim than the attempt's. A token never changes: no lock is needed."""
    attempts = Attempt.objects.filter(id__in=[done.claimed.attempt_id for done in batch])
    tokens = dict(attempts.values_list("id", "token"))
    own = [done for done in batch if tokens.get(done.claimed.attempt_id) == done.claimed.token]
    if len(own) < len(batch):
        log.error("settled_under_another_token", results=len(batch) - len(own))
    return sorted(own, key=lambda done: done.claimed.attempt_id)


def _change(done: Submitted, now: datetime) -> Change:
    result = done.result
    state = STATES[result.submission]
    return Change(
        attempt_id=done.claimed.attempt_id,
        state=state,
        error_class=result.error_class,
        error_code=result.error_code,
        provider_message_id=result.provider_message_id,
        retry_after=result.retry_after,
        reason="submit_refused",
        check_at=_check_at(done.claimed, state, now),
        of_call=True,
    )


def _write_facts(batch: Sequence[Submitted]) -> None:
    """The call's own figures, matched by the claim's token. The rows are locked by `apply_changes`."""
    if not batch:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            _FACTS,
            [
                [done.claimed.attempt_id for done in batch],
                [done.claimed.token for done in batch],
                [done.result.submission.value for done in batch],
                [_sealed_reply(done) for done in batch],
                [_milliseconds(done) for done in batch],
            ],
        )


def _sealed_reply(done: Submitted) -> bytes | None:
    raw = done.result.raw
    return encrypted_field(Attempt, "raw_reply").seal(raw[:RAW_REPLY_LIMIT]) if raw else None


def _milliseconds(done: Submitted) -> int:
    return round(done.duration.total_seconds() * 1000)


_FACTS = f"""
UPDATE {Attempt._meta.db_table} AS a
SET submission = f.submission, raw_reply = f.raw_reply, duration_ms = f.duration_ms
FROM unnest(%s::bigint[], %s::uuid[], %s::varchar[], %s::bytea[], %s::integer[])
  AS f (id, token, submission, raw_reply, duration_ms)
WHERE a.id = f.id AND a.token = f.token
"""  # noqa: S608 - the table's own name


_OVERDUE = f"""
SELECT id FROM {Attempt._meta.db_table}
WHERE settled_at IS NULL AND lease_until < statement_timestamp()
ORDER BY lease_until LIMIT %s
"""  # noqa: S608 - the table's own name


def rescue(*, now: datetime, batch: int = 200, rng: random.Random = clock.rng) -> int:
    """Attempts whose process died or froze: unknown from now on, and asked about. Never sent again blindly."""
    with connection.cursor() as cursor:
        cursor.execute(_OVERDUE, [batch])
        overdue = [attempt_id for (attempt_id,) in cursor.fetchall()]
    changes = [
        Change(attempt_id, AttemptState.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT, check_at=now)
        for attempt_id in overdue
    ]
    return apply_changes(changes, now=now, rng=rng)
