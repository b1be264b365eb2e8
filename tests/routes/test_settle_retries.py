"""What is sent again: at once or later, charged to the message or not."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection, transaction

from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult
from otp_service.messages import expiry, queue
from otp_service.messages.models import Ready
from servers.models import Server
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
        run_after = message_of(one).run_after or now
        pauses.append((run_after - now).total_seconds())
        now = run_after
        expiry.stage_due(now=now)
        ServerFactory.create(next_send_date=now)
        (one,) = claimed(message_of(one).flow, now=now)
    assert pauses == [1, 0, 5, 10]  # after the second it is another route's turn, if there is one
    assert (message_of(one).attempts_made, message_of(one).attempts_charged) == (5, 1)


def test_a_pause_that_a_host_asks_for_is_its_servers_and_not_the_messages(now: dt.datetime) -> None:
    (one,) = in_flight()
    hour = 3600 * SECOND  # longer than the message lives
    settled(one, SubmitResult(Submission.REFUSED, error_class=ErrorClass.THROTTLED, retry_after=hour))
    assert message_of(one).run_after == now + SECOND
    assert attempt_of(one).server.next_send_date == now + hour  # type: ignore[union-attr]  # it has one


def test_a_pause_does_not_shorten_a_servers_rest(now: dt.datetime) -> None:
    (one,) = in_flight()
    Server.objects.update(next_send_date=now + 3600 * SECOND)
    settled(one, SubmitResult(Submission.REFUSED, error_class=ErrorClass.THROTTLED, retry_after=SECOND))
    assert Server.objects.get().next_send_date == now + 3600 * SECOND


@pytest.mark.django_db(transaction=True)
def test_a_second_attempt_can_be_claimed_when_the_first_is_settled() -> None:
    (one,) = in_flight()
    ServerFactory.create_batch(20)
    flow = message_of(one).flow
    with transaction.atomic():
        settled(one, SIGNED_OUT)
        assert Racer(lambda: claimed(flow)).result() == []
    assert len(claimed(flow)) == 1


@pytest.fixture
def listener(transactional_db: None) -> Iterator[psycopg.Connection]:
    parameters = {name: value for name, value in connection.get_connection_params().items() if name != "context"}
    parameters.pop("cursor_factory", None)
    with psycopg.connect(**parameters, autocommit=True) as listening:
        listening.execute(f"LISTEN {queue.READY_CHANNEL}")
        yield listening


@pytest.mark.parametrize(("lane", "wakes"), [("otp", 1), ("promo", 0)])
def test_an_otp_that_is_queued_again_wakes_the_dispatchers(listener: psycopg.Connection, lane: str, wakes: int) -> None:
    (one,) = in_flight(lane=lane)
    settled(one, SIGNED_OUT)
    listener.execute("SELECT 1")  # what was sent before a round trip has arrived after it
    assert len(list(listener.notifies(timeout=0))) == wakes
