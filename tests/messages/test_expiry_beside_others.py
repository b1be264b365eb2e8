"""The sweeps pass over what somebody else holds, and never undo what was done meanwhile."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import transaction

from otp_service.events.models import Event
from otp_service.messages.expiry import expire_due, stage_due
from otp_service.messages.models import Message, Ready
from tests.factories import MessageFactory, QueuedFactory, ServerFactory
from tests.racing import Racer
from tests.routes.steps import claim

pytestmark = pytest.mark.django_db(transaction=True)
SECOND = dt.timedelta(seconds=1)


def test_what_a_claim_holds_is_passed_over_without_waiting(now: dt.datetime) -> None:
    ServerFactory.create()
    message = QueuedFactory.create(expires_at=now + SECOND)
    with transaction.atomic():
        (taken,) = claim([(message.flow_id, 1)], now=now)
        assert Racer(lambda: expire_due(now=now + SECOND)).result() == 0
    assert taken.send.expires_at == message.expires_at
    assert expire_due(now=now + SECOND) == 0
    message.refresh_from_db()
    assert message.status == "sending"


def test_what_is_being_ended_is_passed_over_by_a_claim(now: dt.datetime) -> None:
    ServerFactory.create()
    message = QueuedFactory.create(expires_at=now + SECOND)
    with transaction.atomic():
        assert expire_due(now=now + SECOND) == 1
        assert Racer(lambda: claim([(message.flow_id, 1)], now=now)).result() == []
    assert claim([(message.flow_id, 1)], now=now) == []
    message.refresh_from_db()
    assert message.status == "expired"
    assert not Ready.objects.exists()


def test_a_claim_and_a_sweep_at_once_end_a_message_once(now: dt.datetime) -> None:
    message = QueuedFactory.create(expires_at=now + SECOND)
    with transaction.atomic():
        assert claim([(message.flow_id, 1)], now=now + SECOND) == []
        assert Racer(lambda: expire_due(now=now + SECOND)).result() == 0
    assert expire_due(now=now + SECOND) == 0
    assert list(Event.objects.values_list("type", flat=True)) == ["message.expired"]


def test_two_sweeps_at_once_end_each_message_once(now: dt.datetime) -> None:
    messages = [QueuedFactory.create(expires_at=now + SECOND) for _ in range(4)]
    with transaction.atomic():
        assert expire_due(now=now + SECOND, batch=2) == 2
        assert Racer(lambda: expire_due(now=now + SECOND)).result() == 2
    assert set(Event.objects.values_list("subject_uuid", flat=True)) == {message.uuid for message in messages}
    assert Event.objects.count() == 4


def test_two_stagers_at_once_queue_each_message_once(now: dt.datetime) -> None:
    for _ in range(4):
        MessageFactory.create(status="waiting", run_after=now)
    with transaction.atomic():
        assert stage_due(now=now, batch=2) == 2
        assert Racer(lambda: stage_due(now=now)).result() == 2
    assert Ready.objects.count() == Message.objects.filter(status="queued").count() == 4
