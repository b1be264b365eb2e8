"""What is sent again: at once or later, charged to the message or not."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import transaction

from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult
from otp_service.messages import expiry
from otp_service.messages.models import Ready
from tests.factories import ServerFactory
from tests.racing import Racer
from tests.routes.steps import (
    NOT_CONNECTED,
    SECOND,
    SIGNED_OUT,
    THROTTLED,
    attempt_of,
    claimed,
    in_flight,
    message_of,
    settled,
)

pytestmark = pytest.mark.django_db


def test_a_senders_fault_puts_the_message_back_at_once_by_its_end() -> None:
    (one,) = in_flight()
    settled(one, SIGNED_OUT)
    message = message_of(one)
    assert (message.attempts_made, message.attempts_charged) == (1, 1)
    ready = Ready.objects.get(pk=message.pk)
    assert (ready.flow_id, ready.due_at) == (message.flow_id, message.expires_at)


def test_what_was_put_back_goes_through_another_server() -> None:
    (one,) = in_flight()
    settled(one, SIGNED_OUT)
    ServerFactory.create()
    (again,) = claimed(message_of(one).flow)
    first, second = attempt_of(one), attempt_of(again)
    assert second.message_id == first.message_id
    assert second.number == 2
    assert second.server_id != first.server_id


@pytest.mark.parametrize("result", [THROTTLED, NOT_CONNECTED], ids=["throttled", "not connected"])
def test_what_is_nobodys_fault_waits_and_is_not_charged(now: dt.datetime, result: SubmitResult) -> None:
    (one,) = in_flight()
    settled(one, result)
    message = message_of(one)
    assert (message.status, message.run_after) == ("waiting", now + SECOND)
    assert (message.attempts_made, message.attempts_charged) == (1, 0)
    assert not Ready.objects.exists()


def test_uncharged_attempts_never_use_up_a_message(now: dt.datetime) -> None:
    (one,) = in_flight(max_attempts=1)
    pauses = []
    for number in range(1, 5):
        assert (attempt_of(one).number, attempt_of(one).is_last) == (number, True)
        settled(one, NOT_CONNECTED, now=now)
        run_after = message_of(one).run_after
        assert run_after is not None
        pauses.append((run_after - now).total_seconds())
        now = run_after
        assert expiry.stage_due(now=now) == 1
        ServerFactory.create(next_send_date=now)
        (one,) = claimed(message_of(one).flow, now=now)
    assert pauses == [1, 2, 5, 10]
    assert (message_of(one).attempts_made, message_of(one).attempts_charged) == (5, 1)


def test_a_host_that_asks_for_a_longer_pause_gets_it(now: dt.datetime) -> None:
    (one,) = in_flight()
    throttled = SubmitResult(Submission.REFUSED, error_class=ErrorClass.THROTTLED, retry_after=30 * SECOND)
    settled(one, throttled)
    assert message_of(one).run_after == now + 30 * SECOND


@pytest.mark.django_db(transaction=True)
def test_a_second_attempt_can_be_claimed_when_the_first_is_settled() -> None:
    (one,) = in_flight()
    ServerFactory.create_batch(20)
    flow = message_of(one).flow
    with transaction.atomic():
        settled(one, SIGNED_OUT)
        assert Racer(lambda: claimed(flow)).result() == []
    assert len(claimed(flow)) == 1
