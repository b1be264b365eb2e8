"""A message that no server fits waits, and takes up no place in the queue meanwhile."""

from __future__ import annotations

import datetime as dt

import pytest
from pytest_django import DjangoAssertNumQueries

from otp_service.messages.models import Attempt, Message
from tests.factories import AttemptFactory, FlowFactory, HostFactory, QueuedFactory, ServerFactory
from tests.routes.steps import MINUTE, SECOND, claimed, events_of, is_ready

pytestmark = pytest.mark.django_db
SHORTEST, LONGEST = dt.timedelta(milliseconds=250), dt.timedelta(seconds=10)


def assert_waits(message: Message, until: dt.datetime) -> None:
    message.refresh_from_db()
    assert (message.status, message.run_after) == ("waiting", until)
    assert not is_ready(message)
    assert events_of(message) == []


@pytest.mark.parametrize(
    ("free_in", "pause"),
    [(4 * SECOND, 4 * SECOND), (8 * MINUTE, LONGEST), (SHORTEST / 2, SHORTEST)],
    ids=["when the first is free", "no longer than that", "no shorter than that"],
)
def test_it_waits_until_a_server_of_its_pools_is_free(
    now: dt.datetime, free_in: dt.timedelta, pause: dt.timedelta
) -> None:
    ServerFactory.create(region="zp", next_send_date=now + 9 * MINUTE)
    ServerFactory.create(region="es", next_send_date=now + free_in)
    ServerFactory.create(region="ua", next_send_date=now + SECOND)
    message = QueuedFactory.create(flow__pools=["zp", "es"])
    assert claimed(message.flow) == []
    assert_waits(message, now + pause)
    assert (message.attempts_made, message.attempts_charged) == (0, 0)
    assert not Attempt.objects.filter(message=message).exists()


def test_it_looks_again_after_a_while_when_no_host_is_online(now: dt.datetime) -> None:
    ServerFactory.create(host__last_seen_at=now - 5 * MINUTE)
    message = QueuedFactory.create()
    assert claimed(message.flow) == []
    assert_waits(message, now + LONGEST)


def test_it_does_not_wait_past_its_end(now: dt.datetime) -> None:
    message = QueuedFactory.create(expires_at=now + 3 * SECOND)
    assert claimed(message.flow) == []
    assert_waits(message, now + 3 * SECOND)


def test_others_are_sent(now: dt.datetime) -> None:
    flow = FlowFactory.create()
    ServerFactory.create(handle="+34600000001")
    unlucky = QueuedFactory.create(flow=flow, number="+34600000001", first_attempt_by=now + SECOND)
    lucky = QueuedFactory.create(flow=flow, number="+34600000002")
    (one,) = claimed(flow, n=2)
    assert one.send.to == "+34600000002"
    assert_waits(unlucky, now + LONGEST)
    lucky.refresh_from_db()
    assert lucky.status == "sending"


def test_it_waits_when_all_that_is_free_has_failed_it(now: dt.datetime) -> None:
    server = ServerFactory.create()
    message = QueuedFactory.create(attempts_made=1, attempts_charged=1)
    AttemptFactory.create(message=message, server=server, state="failed", error_class="sender_fault", finished_at=now)
    assert claimed(message.flow) == []
    assert_waits(message, now + SHORTEST)


def test_many_that_wait_cost_no_query_each(
    now: dt.datetime, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    flow = FlowFactory.create(pools=["es", "zp"])
    ServerFactory.create(next_send_date=now + MINUTE, host=HostFactory.create())
    QueuedFactory.create_batch(40, flow=flow)
    with django_assert_max_num_queries(25):
        assert claimed(flow, n=40) == []
    assert Message.objects.filter(status="waiting", run_after=now + LONGEST).count() == 40
