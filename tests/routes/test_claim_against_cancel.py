"""A message is cancelled or sent, whichever came first: nothing leaves after a cancel was answered."""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import threading
from functools import partial

import pytest
from django.db import transaction

from otp_service.messages.lifecycle import NotCancellable, cancel
from otp_service.messages.models import Attempt, Message, Ready
from tests.factories import FlowFactory, QueuedFactory, ServerFactory
from tests.racing import PATIENCE, Racer
from tests.routes.steps import claimed, events_of, is_ready

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_is_being_cancelled_is_not_claimed(now: dt.datetime) -> None:
    ServerFactory.create()
    message = QueuedFactory.create()
    with transaction.atomic():
        cancel(message.client_id, message.uuid, now=now)
        assert Racer(lambda: claimed(message.flow)).result() == []
    assert claimed(message.flow) == []
    message.refresh_from_db()
    assert message.status == "cancelled"
    assert events_of(message) == ["message.cancelled"]
    assert not Attempt.objects.exists()
    assert not is_ready(message)


def test_what_is_being_claimed_is_no_longer_cancelled(now: dt.datetime) -> None:
    ServerFactory.create()
    message = QueuedFactory.create()
    with transaction.atomic():
        assert len(claimed(message.flow)) == 1
        late = Racer(lambda: cancel(message.client_id, message.uuid, now=now))
        late.wait_until_blocked()
    with pytest.raises(NotCancellable):
        late.result()
    message.refresh_from_db()
    assert message.status == "sending"


def test_a_claim_that_was_rolled_back_lets_the_cancel_through(now: dt.datetime) -> None:
    ServerFactory.create()
    message = QueuedFactory.create()
    with transaction.atomic():
        assert len(claimed(message.flow)) == 1
        late = Racer(lambda: cancel(message.client_id, message.uuid, now=now))
        late.wait_until_blocked()
        transaction.set_rollback(True)
    late.result()
    assert claimed(message.flow) == []
    assert not Attempt.objects.exists()


def test_cancels_and_claims_at_once_leave_each_message_either_cancelled_or_sent(now: dt.datetime) -> None:
    flow = FlowFactory.create()
    ServerFactory.create_batch(100)  # claims hold a few more than they take
    messages = QueuedFactory.create_batch(40, flow=flow)
    start = threading.Barrier(4)

    def claim_them() -> None:
        start.wait(PATIENCE)
        for _ in range(20):
            claimed(flow, n=2)

    def cancel_them(seed: int) -> set[int]:
        answered = set()
        start.wait(PATIENCE)
        for message in random.Random(seed).sample(messages, len(messages)):
            with contextlib.suppress(NotCancellable):
                cancel(flow.client_id, message.uuid, now=now)
                answered.add(message.pk)
        return answered

    claimers = [Racer(claim_them) for _ in range(2)]
    cancellers = [Racer(partial(cancel_them, seed)) for seed in range(2)]
    for claimer in claimers:
        claimer.result()
    cancelled = set.union(*(canceller.result() for canceller in cancellers))
    sent = list(Attempt.objects.values_list("message_id", flat=True))
    assert len(sent) == len(set(sent))
    assert cancelled.isdisjoint(sent)
    assert cancelled | set(sent) == {message.pk for message in messages}
    assert set(Message.objects.filter(pk__in=cancelled).values_list("status", flat=True)) <= {"cancelled"}
    assert not Ready.objects.exists()
