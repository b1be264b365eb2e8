"""A host, or a proxy before it, refuses what has left: the report that it left counts, whichever comes first."""

from __future__ import annotations

import pytest

from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, Submission, SubmitResult
from otp_service.routes.claim import Claimed
from otp_service.routes.receipts import apply_host_receipts
from tests.factories import NOON
from tests.routes.steps import (
    NOT_CONNECTED,
    SIGNED_OUT,
    THROTTLED,
    attempt_of,
    host_of,
    in_flight,
    is_ready,
    message_of,
    settled,
)

pytestmark = pytest.mark.django_db

INVALID = SubmitResult(Submission.REFUSED, error_class=ErrorClass.RECIPIENT_INVALID)


def reported_sent(one: Claimed) -> None:
    receipt = Receipt(ReportedState.SENT, one.send.attempt_uuid, "guid-1", service="imessage")
    apply_host_receipts(host_of(one).host_id, [receipt], now=NOON)


@pytest.mark.parametrize("refusal", [THROTTLED, SIGNED_OUT, NOT_CONNECTED, INVALID])
def test_a_refusal_does_not_undo_what_has_left(refusal: SubmitResult) -> None:
    (one,) = in_flight()
    reported_sent(one)
    settled(one, refusal)
    assert (attempt_of(one).state, message_of(one).status) == ("sent", "submitted")
    assert not is_ready(message_of(one))
    assert attempt_of(one).submission == refusal.submission  # kept as a fact


@pytest.mark.parametrize("refusal", [THROTTLED, SIGNED_OUT, NOT_CONNECTED])
def test_a_retry_that_has_not_started_is_dropped_when_the_first_has_left_after_all(refusal: SubmitResult) -> None:
    (one,) = in_flight()
    settled(one, refusal)
    assert message_of(one).status in {"queued", "waiting"}
    reported_sent(one)
    message = message_of(one)
    assert (attempt_of(one).state, message.status, message.run_after) == ("sent", "submitted", None)
    assert not is_ready(message)
