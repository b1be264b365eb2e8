"""Several connections at one queue: nobody waits for a claim's rows, and no message is taken twice."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from functools import partial

import pytest
from django.db import transaction

from otp_service.messages import campaigns
from otp_service.messages.models import Attempt, Campaign, Flow, Message, Ready
from otp_service.routes.claim import Claimed
from tests.factories import CampaignFactory, FlowFactory, QueuedFactory, ServerFactory
from tests.racing import PATIENCE, Racer
from tests.routes.steps import SECOND, attempt_of, claimed, held, is_ready

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_message_that_somebody_holds_is_passed_over_without_waiting(now: dt.datetime) -> None:
    flow = FlowFactory.create()
    ServerFactory.create_batch(2)
    busy = QueuedFactory.create(flow=flow, first_attempt_by=now + SECOND)
    idle = QueuedFactory.create(flow=flow)
    with transaction.atomic():
        held(Message.objects.filter(pk=busy.pk))
        got = Racer(lambda: claimed(flow, n=2)).result()
    assert [attempt_of(one).message_id for one in got] == [idle.pk]
    assert is_ready(busy)
    (later,) = claimed(flow)
    assert attempt_of(later).message_id == busy.pk


def test_a_queue_row_that_somebody_holds_is_passed_over_without_waiting(now: dt.datetime) -> None:
    flow = FlowFactory.create()
    ServerFactory.create_batch(2)
    busy = QueuedFactory.create(flow=flow, first_attempt_by=now + SECOND)
    idle = QueuedFactory.create(flow=flow)
    with transaction.atomic():
        held(Ready.objects.filter(pk=busy.pk))
        got = Racer(lambda: claimed(flow)).result()
    assert [attempt_of(one).message_id for one in got] == [idle.pk]


def test_a_flow_that_is_being_paused_is_passed_over_without_waiting() -> None:
    first, paused = FlowFactory.create(), FlowFactory.create()
    ServerFactory.create_batch(2)
    goes, stays = QueuedFactory.create(flow=first), QueuedFactory.create(flow=paused)
    with transaction.atomic():
        Flow.objects.filter(pk=paused.pk).update(state=Flow.State.PAUSED)
        got = Racer(lambda: claimed(first, paused)).result()
    assert [attempt_of(one).message_id for one in got] == [goes.pk]
    assert is_ready(stays)


def test_pausing_is_answered_when_the_claims_before_it_are_committed() -> None:
    flow = FlowFactory.create()
    ServerFactory.create_batch(2)
    QueuedFactory.create_batch(2, flow=flow)
    with transaction.atomic():
        assert len(claimed(flow)) == 1
        pause = Racer(lambda: Flow.objects.filter(pk=flow.pk).update(state=Flow.State.PAUSED))
        pause.wait_until_blocked()
    assert pause.result() == 1
    assert claimed(flow) == []


def test_a_claim_leaves_a_flow_alone_that_somebody_waits_to_pause(now: dt.datetime) -> None:
    """Row locks alone do not queue: claims that overlap would keep the pause waiting for ever."""
    flow = FlowFactory.create(campaign=CampaignFactory.create(), lane="promo")
    ServerFactory.create_batch(9)
    QueuedFactory.create_batch(2, flow=flow, lane="promo")
    with transaction.atomic():
        assert len(claimed(flow)) == 1
        asked = partial(campaigns.change, Campaign.objects.all(), campaigns.Change.PAUSE, now=now, by="somebody")
        pause = Racer(asked)
        pause.wait_until_blocked()
        assert Racer(lambda: claimed(flow)).result() == []
    assert pause.result()


def test_another_claim_takes_the_next_ones_meanwhile(now: dt.datetime) -> None:
    flow = FlowFactory.create()
    ServerFactory.create_batch(20)  # a claim holds a few more than it takes
    messages = [QueuedFactory.create(flow=flow, first_attempt_by=now + n * SECOND) for n in range(4)]
    with transaction.atomic():
        mine = claimed(flow, n=2)
        theirs = Racer(lambda: claimed(flow, n=2)).result()
    assert [attempt_of(one).message_id for one in mine] == [message.pk for message in messages[:2]]
    assert [attempt_of(one).message_id for one in theirs] == [message.pk for message in messages[2:]]


def test_a_claim_that_is_rolled_back_took_nothing() -> None:
    flow = FlowFactory.create()
    ServerFactory.create()
    message = QueuedFactory.create(flow=flow)
    with transaction.atomic():
        assert len(claimed(flow)) == 1
        transaction.set_rollback(True)
    message.refresh_from_db()
    assert (message.status, message.attempts_made) == ("queued", 0)
    assert is_ready(message)
    assert not Attempt.objects.exists()
    assert len(claimed(flow)) == 1


def test_many_claims_at_once_take_every_message_once() -> None:
    flows = [FlowFactory.create(), FlowFactory.create(lane="promo")]
    ServerFactory.create_batch(150)  # claims hold a few more than they take
    for flow in flows:
        QueuedFactory.create_batch(30, flow=flow)
    start = threading.Barrier(4)

    def work(order: list[Flow]) -> list[Claimed]:
        start.wait(PATIENCE)
        return [one for _ in range(12) for one in claimed(*order, n=3)]

    # Both orders of the plan at once: whoever waited for a row of the other would be in a deadlock soon.
    racers = [Racer(partial(work, order)) for order in (flows, flows[::-1]) for _ in range(2)]
    got = [one for racer in racers for one in racer.result()]
    got += claimed(*flows, n=60)
    sent = Counter(Attempt.objects.values_list("message_id", flat=True))
    assert len(got) == len(sent) == 60
    assert set(sent.values()) == {1}
    assert len(set(Attempt.objects.values_list("server_id", flat=True))) == 60
    assert not Ready.objects.exists()
    assert set(Message.objects.values_list("status", flat=True)) == {"sending"}
