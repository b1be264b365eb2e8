"""What a claim leaves in the database, and what it hands on."""

from __future__ import annotations

import datetime as dt
import random
import time
from typing import Any

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from otp_service.messages.models import Attempt
from tests.factories import AttemptFactory, FlowFactory, HostFactory, MessageFactory, QueuedFactory, ServerFactory
from tests.routes.steps import MINUTE, SECOND, attempt_of, claimed, host_of, is_ready, message_of

pytestmark = pytest.mark.django_db


def test_the_attempt_is_there_before_any_call(now: dt.datetime) -> None:
    server = ServerFactory.create(region="zp")
    message = QueuedFactory.create(flow__pools=["es", "zp"])
    (one,) = claimed(message.flow)
    attempt = attempt_of(one)
    assert (attempt.state, attempt.number, attempt.route, attempt.server_id) == (
        "submitting",
        1,
        "imessage:zp",
        server.pk,
    )
    assert (attempt.token, attempt.uuid, attempt.claimed_at) == (one.token, one.send.attempt_uuid, now)
    assert (attempt.is_last, attempt.settled_at, attempt.check_at) == (False, None, None)
    message.refresh_from_db()
    assert (message.status, message.attempts_made, message.attempts_charged) == ("sending", 1, 1)
    assert not is_ready(message)


def test_the_lease_is_counted_by_the_databases_clock(now: dt.datetime, settings: Any) -> None:
    settings.LEASE = dt.timedelta(seconds=30)
    ServerFactory.create()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (before,) = cursor.fetchone()
        (one,) = claimed(QueuedFactory.create().flow)
        cursor.execute("SELECT clock_timestamp()")
        (after,) = cursor.fetchone()
    assert before + 30 * SECOND <= attempt_of(one).lease_until <= after + 30 * SECOND


def test_what_is_handed_on_says_where_to_whom_and_until_when(now: dt.datetime, settings: Any) -> None:
    settings.LEASE = dt.timedelta(seconds=20)
    server = ServerFactory.create(host=HostFactory.create(number=7, base_url="http://127.0.0.1:7", secret="whsec_QUJD"))
    message = QueuedFactory.create(number="+34600000099", text="Your code is 000777")
    before = time.monotonic()
    (one,) = claimed(message.flow)
    assert (one.send.to, one.send.text, one.send.unit) == ("+34600000099", "Your code is 000777", server.unit)
    assert (one.send.expires_at, one.send.submit_by) == (message.expires_at, now + 18 * SECOND)
    assert (host_of(one).host_id, host_of(one).number) == (server.host_id, 7)
    assert (host_of(one).base_url, host_of(one).secrets) == ("http://127.0.0.1:7", ("whsec_QUJD",))
    assert before + 8 <= one.give_up_at <= time.monotonic() + 8  # a call that starts then ends within the lease


def test_nothing_is_submitted_after_the_end_of_its_life(now: dt.datetime) -> None:
    ServerFactory.create()
    (one,) = claimed(QueuedFactory.create(expires_at=now + 5 * SECOND).flow)
    assert one.send.submit_by == now + 5 * SECOND


def test_what_is_handed_on_shows_neither_number_nor_text() -> None:
    ServerFactory.create()
    (one,) = claimed(QueuedFactory.create(number="+34600000099", text="Your code is 000777").flow)
    assert "600000099" not in repr(one)
    assert "000777" not in repr(one)
    assert host_of(one).secrets[0] not in repr(one)


@pytest.mark.parametrize(
    ("made", "charged", "most", "number", "is_last"),
    [(0, 0, 4, 1, False), (0, 0, 1, 1, True), (2, 2, 4, 3, False), (3, 3, 4, 4, True), (7, 1, 4, 8, False)],
    ids=["first", "the only one", "in between", "last", "uncharged ones do not count"],
)
def test_attempts_are_numbered_and_the_last_one_is_known_before_the_call(
    made: int, charged: int, most: int, number: int, is_last: bool
) -> None:
    ServerFactory.create()
    message = QueuedFactory.create(attempts_made=made, attempts_charged=charged, max_attempts=most)
    (one,) = claimed(message.flow)
    attempt = attempt_of(one)
    assert (attempt.number, attempt.is_last) == (number, is_last)
    assert (attempt.message.attempts_made, attempt.message.attempts_charged) == (number, charged + 1)


def tried(message: Any, error_class: str, number: int = 1, **server: Any) -> Attempt:
    return AttemptFactory.create(
        message=message,
        number=number,
        server=ServerFactory.create(**server),
        state="failed",
        error_class=error_class,
        finished_at=message.created_at,
    )


def test_a_server_that_failed_is_not_tried_again(now: dt.datetime) -> None:
    message = QueuedFactory.create(attempts_made=2, attempts_charged=2)
    tried(message, "sender_fault", 1)
    tried(message, "route_rejected", 2)
    other = ServerFactory.create(next_send_date=now)  # last in line
    (one,) = claimed(message.flow)
    assert attempt_of(one).server_id == other.pk


def test_the_servers_that_failed_another_message_are_as_good_as_any(now: dt.datetime) -> None:
    server = tried(MessageFactory.create(attempts_made=1, attempts_charged=1), "sender_fault").server
    assert server is not None
    (one,) = claimed(QueuedFactory.create().flow)
    assert attempt_of(one).server_id == server.pk


def test_another_host_is_tried_first_after_a_failure(now: dt.datetime) -> None:
    message = QueuedFactory.create(attempts_made=1, attempts_charged=1)
    host = HostFactory.create()
    tried(message, "sender_fault", host=host)
    ServerFactory.create(host=host, next_send_date=now - 9 * MINUTE)
    elsewhere = ServerFactory.create(next_send_date=now)
    (one,) = claimed(message.flow)
    assert attempt_of(one).server_id == elsewhere.pk


@pytest.mark.parametrize("error_class", ["throttled", "connection_refused", "expired"])
def test_the_only_server_is_tried_again_when_it_was_nobodys_fault(now: dt.datetime, error_class: str) -> None:
    message = QueuedFactory.create(attempts_made=1, attempts_charged=0)
    server = tried(message, error_class).server
    assert server is not None
    (one,) = claimed(message.flow)
    assert attempt_of(one).server_id == server.pk


@pytest.mark.parametrize("error_class", ["throttled", "connection_refused", "expired"])
def test_another_host_is_preferred_when_it_was_nobodys_fault(now: dt.datetime, error_class: str) -> None:
    message = QueuedFactory.create(attempts_made=1, attempts_charged=0)
    tried(message, error_class)
    elsewhere = ServerFactory.create(next_send_date=now)
    (one,) = claimed(message.flow)
    assert attempt_of(one).server_id == elsewhere.pk


def test_each_message_gets_a_server_and_a_token_of_its_own() -> None:
    flow = FlowFactory.create()
    ServerFactory.create_batch(20)
    QueuedFactory.create_batch(20, flow=flow)
    got = claimed(flow, n=20, rng=random.Random(7))
    assert len({one.token for one in got}) == len({one.send.attempt_uuid for one in got}) == 20
    assert len({attempt_of(one).server_id for one in got}) == 20
    assert {message_of(one).status for one in got} == {"sending"}


def test_a_claim_of_many_takes_as_many_queries_as_one_of_few(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    flow = FlowFactory.create()
    ServerFactory.create_batch(40)
    QueuedFactory.create_batch(40, flow=flow)
    with django_assert_max_num_queries(20):
        assert len(claimed(flow, n=40)) == 40
