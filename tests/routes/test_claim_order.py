"""Which messages a claim takes, and in what order they get their servers."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from otp_service.messages.models import Flow, Message
from otp_service.messages.rules import Lane
from otp_service.routes import claim as claiming
from otp_service.routes import flows
from otp_service.routes.choose import Ways
from otp_service.routes.flows import Queue, ReadyFlow
from tests.factories import FlowFactory, MessageFactory, QueuedFactory, ServerFactory
from tests.routes.steps import MINUTE, SECOND, attempt_of, claim, claimed, is_ready

pytestmark = pytest.mark.django_db


def with_deadlines(flow: Flow, now: dt.datetime, *seconds: int) -> list[Message]:
    """Messages that are due so many seconds after now."""
    return [QueuedFactory.create(flow=flow, first_attempt_by=now + second * SECOND) for second in seconds]


def test_the_earliest_deadline_of_a_flow_goes_first(now: dt.datetime) -> None:
    flow = FlowFactory.create()
    ServerFactory.create_batch(3)
    late, soon, later, sooner = with_deadlines(flow, now, 30, 10, 40, 5)
    taken = {attempt_of(one).message_id for one in claimed(flow, n=2)}
    assert taken == {soon.pk, sooner.pk}
    assert is_ready(late)
    assert is_ready(later)


def test_the_earliest_deadline_gets_the_server_when_there_are_too_few(now: dt.datetime) -> None:
    flow = FlowFactory.create()
    ServerFactory.create()
    _, soon, _ = with_deadlines(flow, now, 30, 10, 20)
    (only,) = claimed(flow, n=3)
    assert attempt_of(only).message_id == soon.pk


def test_the_flow_that_is_planned_first_gets_the_server_when_there_are_too_few(now: dt.datetime) -> None:
    first, second = FlowFactory.create_batch(2)
    ServerFactory.create()
    with_deadlines(second, now, 5)
    (planned_first,) = with_deadlines(first, now, 30)
    (only,) = claimed(first, second)
    assert attempt_of(only).message_id == planned_first.pk


def test_what_has_no_deadline_for_its_first_attempt_is_due_at_its_end(now: dt.datetime) -> None:
    flow = FlowFactory.create(lane="promo")
    ServerFactory.create()
    QueuedFactory.create(flow=flow, first_attempt_by=None, expires_at=now + 20 * MINUTE)
    sooner = QueuedFactory.create(flow=flow, first_attempt_by=None, expires_at=now + 10 * MINUTE)
    (only,) = claimed(flow)
    assert attempt_of(only).message_id == sooner.pk


def test_no_more_is_taken_than_planned(now: dt.datetime) -> None:
    flow, other = FlowFactory.create_batch(2)
    ServerFactory.create_batch(10)
    with_deadlines(flow, now, 1, 2, 3)
    with_deadlines(other, now, 1, 2, 3)
    got = claim([(flow.pk, 1), (other.pk, 2)], now=now)
    of_flows = Message.objects.filter(attempts__in=[one.attempt_id for one in got]).values_list("flow_id", flat=True)
    assert sorted(of_flows) == [flow.pk, other.pk, other.pk]


def test_nothing_is_taken_from_a_paused_flow(now: dt.datetime) -> None:
    paused, going = FlowFactory.create(state=Flow.State.PAUSED), FlowFactory.create()
    ServerFactory.create_batch(2)
    (stays,) = with_deadlines(paused, now, 5)
    (goes,) = with_deadlines(going, now, 5)
    assert [attempt_of(one).message_id for one in claimed(paused, going)] == [goes.pk]
    assert is_ready(stays)


def test_nothing_is_taken_twice(now: dt.datetime) -> None:
    flow = FlowFactory.create()
    ServerFactory.create_batch(2)
    with_deadlines(flow, now, 5)
    assert len(claimed(flow)) == 1
    assert claimed(flow) == []


def test_an_empty_plan_takes_nothing(now: dt.datetime, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(0):
        assert claiming.claim([], Ways({}, {}), now=now).claimed == ()


def test_flows_that_have_something_to_claim_are_listed(now: dt.datetime) -> None:
    otp, promo = FlowFactory.create(pools=["es", "zp"]), FlowFactory.create(lane="promo", weight=3)
    paused, empty = FlowFactory.create(state=Flow.State.PAUSED), FlowFactory.create()
    with_deadlines(otp, now, 1, 2, 3)
    with_deadlines(promo, now, 1)
    with_deadlines(paused, now, 1)
    MessageFactory.create(flow=empty)
    of_otp = ReadyFlow(otp.pk, Lane.OTP, otp.client_id, 1, ("imessage", "sms"), ("es", "zp"))
    of_promo = ReadyFlow(promo.pk, Lane.PROMO, promo.client_id, 3, ("imessage", "sms"), ("es",))
    assert flows.present(list(Lane)) == [of_otp, of_promo]
    assert flows.present([Lane.OTP]) == [of_otp]
    assert flows.present([Lane.TRANSACTIONAL, Lane.PROMO]) == [of_promo]


def test_what_waits_is_told_by_lane(now: dt.datetime) -> None:
    otp, other = FlowFactory.create(), FlowFactory.create()
    with_deadlines(otp, now, 7, 3)
    with_deadlines(other, now, 5)
    oldest = QueuedFactory.create(flow=other, created_at=now - 9 * SECOND, first_attempt_by=now)
    assert flows.waiting() == {
        Lane.OTP: Queue(4, oldest.created_at),
        Lane.TRANSACTIONAL: Queue(0, None),
        Lane.PROMO: Queue(0, None),
    }


def test_what_waits_is_counted_up_to_a_bound(now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "COUNTED", 2)
    with_deadlines(FlowFactory.create(), now, 7, 3, 4)
    assert flows.waiting()[Lane.OTP] == Queue(2, now)


def test_no_flow_is_listed_when_the_queue_is_empty() -> None:
    FlowFactory.create()
    assert flows.present(list(Lane)) == flows.present([Lane.OTP]) == []


def test_a_message_that_cannot_be_opened_waits_and_holds_up_nobody(now: dt.datetime) -> None:
    flow = FlowFactory.create()
    ServerFactory.create()
    broken, whole = with_deadlines(flow, now, 1, 2)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE otp_messages_message SET text = to_hash WHERE id = %s", [broken.pk])
    (one,) = claimed(flow, n=2)
    assert attempt_of(one).message_id == whole.pk
    stands = Message.objects.defer("text").get(pk=broken.pk)
    assert (stands.status, stands.run_after) == ("waiting", now + 10 * SECOND)
    assert not is_ready(stands)


def test_a_row_of_a_message_that_is_not_queued_sends_nothing_and_leaves_the_queue(now: dt.datetime) -> None:
    flow = FlowFactory.create()
    ServerFactory.create_batch(2)
    stray = QueuedFactory.create(flow=flow, first_attempt_by=now + SECOND, status="delivered", finished_at=now)
    whole = QueuedFactory.create(flow=flow)
    assert [attempt_of(one).message_id for one in claimed(flow, n=2)] == [whole.pk]
    assert not is_ready(stray)
    stray.refresh_from_db()
    assert stray.status == "delivered"
