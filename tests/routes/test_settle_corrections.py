"""A delivery ends a message from wherever it stands, and corrects one that had ended otherwise."""

from __future__ import annotations

import datetime as dt

import pytest

from otp_service.core.outcomes import ErrorClass
from otp_service.events.models import Event
from otp_service.messages.models import Message
from otp_service.messages.rules import AttemptState
from otp_service.routes.changes import Change
from otp_service.routes.settle import apply_changes
from servers.models import ServerDelivery
from tests.draws import Lowest
from tests.factories import NOON, ServerFactory
from tests.routes.steps import (
    ACCEPTED,
    SECOND,
    SIGNED_OUT,
    THROTTLED,
    attempt_of,
    claimed,
    events_of,
    in_flight,
    is_ready,
    message_of,
    settled,
)

pytestmark = pytest.mark.django_db


def changed(*changes: Change, now: dt.datetime = NOON) -> int:
    return apply_changes(changes, now=now, rng=Lowest())


def delivered(attempt_id: int) -> Change:
    return Change(attempt_id, AttemptState.DELIVERED)


def failed(attempt_id: int, error_class: ErrorClass = ErrorClass.SENDER_FAULT, code: int = 120) -> Change:
    return Change(attempt_id, AttemptState.FAILED, error_class, code, reason="message_failed")


def test_a_delivery_after_a_failure_corrects_the_message(now: dt.datetime) -> None:
    (one,) = in_flight()
    settled(one, ACCEPTED)
    changed(failed(one.attempt_id, ErrorClass.RECIPIENT_INVALID, 22))
    assert message_of(one).final_error_code == 22
    changed(delivered(one.attempt_id), now=now + SECOND)
    attempt = attempt_of(one)
    message = attempt.message
    assert (message.status, message.final_reason, message.final_error_code) == ("delivered", "", None)
    assert message.finished_at == now + SECOND
    assert (attempt.state, attempt.error_class, attempt.error_code) == ("delivered", "", None)
    assert events_of(message) == ["message.submitted", "message.failed", "message.corrected"]
    data = Event.objects.get(type="message.corrected").data
    assert data == {"status": "delivered", "lane": "otp", "reference": ""}


@pytest.mark.parametrize(("status", "reason"), [("expired", "expired_unconfirmed"), ("cancelled", "cancelled")])
def test_a_delivery_after_another_end_corrects_the_message(now: dt.datetime, status: str, reason: str) -> None:
    (one,) = in_flight()
    settled(one, ACCEPTED)
    Message.objects.update(status=status, final_reason=reason, finished_at=now)
    changed(delivered(one.attempt_id))
    message = message_of(one)
    assert (message.status, message.final_reason) == ("delivered", "")
    assert events_of(message)[-1] == "message.corrected"


def test_a_failure_after_the_end_changes_nothing_for_the_message(now: dt.datetime) -> None:
    (one,) = in_flight()
    settled(one, ACCEPTED)
    Message.objects.update(status="expired", final_reason="expired_unconfirmed", finished_at=now)
    changed(failed(one.attempt_id))
    attempt = attempt_of(one)
    assert (attempt.state, attempt.message.status) == ("failed", "expired")
    assert events_of(attempt.message) == ["message.submitted"]


def test_a_delivery_takes_a_message_that_is_queued_again_out_of_the_queue() -> None:
    (one,) = in_flight()
    settled(one, SIGNED_OUT)
    assert is_ready(message_of(one))
    changed(delivered(one.attempt_id))
    message = message_of(one)
    assert message.status == "delivered"
    assert not is_ready(message)
    assert events_of(message) == ["message.delivered"]
    ServerFactory.create_batch(20)
    assert claimed(message.flow) == []


def test_a_delivery_ends_the_wait_for_another_attempt() -> None:
    (one,) = in_flight()
    settled(one, THROTTLED)
    changed(delivered(one.attempt_id))
    message = message_of(one)
    assert (message.status, message.run_after) == ("delivered", None)


def test_a_failure_and_a_delivery_that_come_together_leave_nothing_in_the_queue() -> None:
    (one,) = in_flight()
    assert changed(failed(one.attempt_id), delivered(one.attempt_id)) == 1
    message = message_of(one)
    assert (attempt_of(one).state, message.status) == ("delivered", "delivered")
    assert not is_ready(message)


def test_what_comes_together_reaches_the_server_in_the_order_of_arrival() -> None:
    (one,) = in_flight()
    changed(failed(one.attempt_id), delivered(one.attempt_id))
    server = attempt_of(one).server
    assert server is not None
    assert server.failed_in_row == 0
    assert ServerDelivery.objects.filter(server=server).count() == 1


def test_a_delivery_while_another_attempt_is_being_handed_over_ends_the_message() -> None:
    (first,) = in_flight()
    settled(first, SIGNED_OUT)
    ServerFactory.create_batch(20)
    (second,) = claimed(message_of(first).flow)
    changed(delivered(first.attempt_id))
    settled(second, ACCEPTED)
    assert (attempt_of(second).state, message_of(second).status) == ("accepted", "delivered")
    changed(failed(second.attempt_id))
    assert (attempt_of(second).state, message_of(second).status) == ("failed", "delivered")
    assert events_of(message_of(second)) == ["message.delivered"]


def test_a_delivery_of_a_second_copy_is_known_and_told_nobody() -> None:
    (first,) = in_flight()
    settled(first, SIGNED_OUT)
    ServerFactory.create_batch(20)
    (second,) = claimed(message_of(first).flow)
    settled(second, ACCEPTED)
    changed(delivered(first.attempt_id), delivered(second.attempt_id))
    assert (attempt_of(first).state, attempt_of(second).state) == ("delivered", "delivered")
    assert events_of(message_of(first)) == ["message.submitted", "message.delivered"]
    assert message_of(first).final_server_id == attempt_of(first).server_id


def test_what_was_learned_late_is_kept_though_it_moves_nothing() -> None:
    (one,) = in_flight()
    changed(delivered(one.attempt_id))
    late = Change(one.attempt_id, AttemptState.SENT, provider_message_id="guid-1", service="sms")
    changed(late)
    attempt = attempt_of(one)
    assert (attempt.state, attempt.provider_message_id, attempt.service) == ("delivered", "guid-1", "sms")


def test_changes_of_nothing_known_are_passed_over() -> None:
    assert changed() == 0
    assert changed(delivered(4711)) == 0


def test_an_attempt_that_was_uncharged_when_refused_is_not_uncharged_again_when_it_fails(now: dt.datetime) -> None:
    (one,) = in_flight()
    settled(one, THROTTLED)
    assert message_of(one).attempts_charged == 0
    changed(Change(one.attempt_id, AttemptState.SENT))
    changed(failed(one.attempt_id, ErrorClass.THROTTLED, 140))
    message = message_of(one)
    assert (attempt_of(one).state, message.status, message.run_after) == ("failed", "waiting", now + SECOND)
    assert message.attempts_charged == 0
