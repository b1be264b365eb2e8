"""What is late when it is claimed: it ends, or it is sent all the same."""

from __future__ import annotations

import datetime as dt

import pytest

from otp_service.events.models import Event
from otp_service.messages.models import Attempt, Message
from tests.factories import FlowFactory, QueuedFactory, ServerFactory
from tests.routes.steps import MINUTE, SECOND, attempt_of, claimed, events_of, is_ready

pytestmark = pytest.mark.django_db


def assert_ended(message: Message, reason: str, at: dt.datetime) -> None:
    message.refresh_from_db()
    assert (message.status, message.final_reason, message.finished_at) == ("expired", reason, at)
    assert not is_ready(message)
    assert not Attempt.objects.filter(message=message).exists()
    event = Event.objects.get(subject_uuid=message.uuid)
    assert (event.type, event.client_id, event.at) == ("message.expired", message.client_id, at)
    assert event.data == {
        "status": "expired",
        "lane": message.lane,
        "reference": message.reference,
        "reason": reason,
        "error_code": None,
    }


@pytest.mark.parametrize(("left", "sent"), [(dt.timedelta(0), False), (dt.timedelta(microseconds=1), True)], ids=str)
def test_what_is_past_its_life_ends_instead_of_being_sent(now: dt.datetime, left: dt.timedelta, sent: bool) -> None:
    ServerFactory.create()
    message = QueuedFactory.create(created_at=now - MINUTE, event_at=now - MINUTE, expires_at=now + left)
    got = claimed(message.flow)
    assert bool(got) is sent
    if not sent:
        assert_ended(message, "expired_unsent", now)


@pytest.mark.parametrize(("late", "sent"), [(dt.timedelta(0), True), (dt.timedelta(microseconds=1), False)], ids=str)
def test_what_would_rather_end_than_be_late_ends(now: dt.datetime, late: dt.timedelta, sent: bool) -> None:
    ServerFactory.create()
    message = QueuedFactory.create(on_late_first="expire", first_attempt_by=now - late)
    got = claimed(message.flow)
    assert bool(got) is sent
    if not sent:
        assert_ended(message, "late_first_attempt", now)


def test_what_may_be_late_is_sent_late(now: dt.datetime) -> None:
    ServerFactory.create()
    message = QueuedFactory.create(on_late_first="send", first_attempt_by=now - SECOND)
    (one,) = claimed(message.flow)
    assert attempt_of(one).message_id == message.pk


def test_only_the_first_attempt_can_be_too_late(now: dt.datetime) -> None:
    ServerFactory.create()
    message = QueuedFactory.create(
        on_late_first="expire", first_attempt_by=now - SECOND, attempts_made=1, attempts_charged=1
    )
    assert len(claimed(message.flow)) == 1


def test_what_ends_holds_up_nobody_behind_it(now: dt.datetime) -> None:
    flow = FlowFactory.create()
    ServerFactory.create()
    dead = QueuedFactory.create(flow=flow, created_at=now - MINUTE, event_at=now - MINUTE, expires_at=now - SECOND)
    alive = QueuedFactory.create(flow=flow)
    (one,) = claimed(flow, n=2)
    assert attempt_of(one).message_id == alive.pk
    assert events_of(dead) == ["message.expired"]
    assert events_of(alive) == []
