"""Messages that wait for their time have no place in the queue until it has come."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from otp_service.messages import queue
from otp_service.messages.expiry import stage_due
from otp_service.messages.models import Message, Ready
from tests.factories import MessageFactory, QueuedFactory

pytestmark = pytest.mark.django_db
SECOND = dt.timedelta(seconds=1)
MOMENT = dt.timedelta(microseconds=1)


def waiting(until: dt.datetime, **fields: Any) -> Message:
    return MessageFactory.create(status="waiting", run_after=until, **fields)


@pytest.mark.parametrize(("until", "due"), [(dt.timedelta(0), True), (MOMENT, False)], ids=["now", "not yet"])
def test_a_message_is_queued_when_its_time_has_come(now: dt.datetime, until: dt.timedelta, due: bool) -> None:
    message = waiting(now + until)
    assert stage_due(now=now) == int(due)
    message.refresh_from_db()
    assert message.status == ("queued" if due else "waiting")
    assert message.run_after == (None if due else now + until)
    assert Ready.objects.filter(pk=message.pk).exists() is due


@pytest.mark.parametrize(
    ("made", "first_by", "due_in"),
    [(0, 15, 15), (0, 900, 300), (0, None, 300), (1, 15, 300)],
    ids=["first attempt", "first attempt by a time after its end", "no deadline for the first", "another attempt"],
)
def test_it_is_due_by_its_deadline(now: dt.datetime, made: int, first_by: int | None, due_in: int) -> None:
    first_attempt_by = None if first_by is None else now + first_by * SECOND
    message = waiting(now, first_attempt_by=first_attempt_by, attempts_made=made, attempts_charged=made)
    stage_due(now=now)
    ready = Ready.objects.get(pk=message.pk)
    assert (ready.flow_id, ready.due_at) == (message.flow_id, now + due_in * SECOND)


def test_a_batch_is_of_those_that_have_waited_longest(now: dt.datetime) -> None:
    later, sooner = waiting(now - SECOND), waiting(now - 2 * SECOND)
    assert stage_due(now=now, batch=1) == 1
    assert set(Ready.objects.values_list("pk", flat=True)) == {sooner.pk}
    assert stage_due(now=now, batch=5) == 1
    assert stage_due(now=now, batch=5) == 0
    assert Ready.objects.filter(pk=later.pk).exists()


def test_what_is_in_the_queue_stays_as_it_is_when_it_is_added_again(now: dt.datetime) -> None:
    message = QueuedFactory.create()
    queue.add([queue.ReadyRow(message.pk, message.flow_id, now + SECOND)] * 2)
    assert Ready.objects.get().due_at == message.first_attempt_by


def test_only_what_is_named_leaves_the_queue() -> None:
    goes, stays = QueuedFactory.create(), QueuedFactory.create()
    queue.remove([goes.pk])
    queue.remove([])
    queue.add([])
    assert list(Ready.objects.values_list("pk", flat=True)) == [stays.pk]
