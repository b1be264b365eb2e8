"""The end of lifetimes: what was not sent at once, what a route has after a grace for its receipt."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from otp_service.events.models import Event
from otp_service.messages.expiry import expire_due
from otp_service.messages.models import Message, Ready
from tests.factories import AttemptFactory, FlowFactory, MessageFactory, QueuedFactory

pytestmark = pytest.mark.django_db
SECOND = dt.timedelta(seconds=1)
MINUTE = dt.timedelta(minutes=1)
MOMENT = dt.timedelta(microseconds=1)


def born(now: dt.datetime) -> dict[str, Any]:
    """Times of a message that may have expired by `now`."""
    return {"created_at": now - 60 * MINUTE, "event_at": now - 60 * MINUTE, "first_attempt_by": None}


def waiting(now: dt.datetime, **fields: Any) -> Message:
    return MessageFactory.create(**born(now), status="waiting", run_after=now + MINUTE, **fields)


def submitted(now: dt.datetime, **fields: Any) -> Message:
    fields = {"attempts_made": 1, "attempts_charged": 1, "status": "submitted"} | fields
    return MessageFactory.create(**born(now), **fields)


def status_of(message: Message) -> str:
    message.refresh_from_db()
    return message.status


@pytest.mark.parametrize(("left", "ends"), [(dt.timedelta(0), True), (MOMENT, False)], ids=["over", "not yet over"])
def test_what_was_not_sent_ends_with_its_lifetime(now: dt.datetime, left: dt.timedelta, ends: bool) -> None:
    queued = QueuedFactory.create(**born(now), expires_at=now + left)
    waits = waiting(now, expires_at=now + left)
    assert expire_due(now=now) == (2 if ends else 0)
    assert (status_of(queued), status_of(waits)) == (("expired", "expired") if ends else ("queued", "waiting"))
    assert Ready.objects.exists() is not ends


def test_the_end_is_written_down_and_told(now: dt.datetime) -> None:
    message = waiting(now, expires_at=now - SECOND, reference="login 42")
    expire_due(now=now)
    message.refresh_from_db()
    assert (message.final_reason, message.finished_at, message.run_after) == ("expired_unsent", now, None)
    event = Event.objects.get()
    assert (event.type, event.at, event.subject_uuid) == ("message.expired", now, message.uuid)
    assert event.client_id == message.client_id
    assert event.data == {
        "status": "expired",
        "lane": "otp",
        "reference": "login 42",
        "reason": "expired_unsent",
        "error_code": None,
    }


@pytest.mark.parametrize(("more", "ends"), [(dt.timedelta(0), True), (MOMENT, False)], ids=["over", "not yet over"])
def test_what_a_route_has_waits_a_grace_longer_for_its_receipt(
    now: dt.datetime, settings: Any, more: dt.timedelta, ends: bool
) -> None:
    settings.RECEIPT_GRACE = 10 * MINUTE
    message = submitted(now, expires_at=now - 10 * MINUTE + more)
    assert expire_due(now=now) == int(ends)
    assert status_of(message) == ("expired" if ends else "submitted")
    assert message.final_reason == ("expired_unconfirmed" if ends else "")


@pytest.mark.parametrize(
    ("state", "route", "settled", "ends"),
    [
        pytest.param("accepted", "sms:slow", 60 * MINUTE, True, id="its receipt is overdue"),
        pytest.param("accepted", "sms:slow", 60 * MINUTE - MOMENT, False, id="its receipt may still come"),
        pytest.param("unknown", "sms:slow", 60 * MINUTE - MOMENT, False, id="nobody knows whether it has left"),
        pytest.param("failed", "sms:slow", MINUTE, True, id="it cannot deliver any more"),
        pytest.param("accepted", "sms:one", MINUTE, True, id="another route"),
    ],
)
def test_a_route_whose_receipts_take_longer_is_waited_for(  # noqa: PLR0917 - a table
    now: dt.datetime, settings: Any, state: str, route: str, settled: dt.timedelta, ends: bool
) -> None:
    settings.RECEIPT_GRACE = 10 * MINUTE
    message = submitted(now, expires_at=now - 10 * MINUTE)
    times = {"claimed_at": now - settled, "settled_at": now - settled}
    ended = times["settled_at"] if state == "failed" else None
    AttemptFactory.create(message=message, state=state, route=route, finished_at=ended, **times)
    waits = {"sms:slow": 60 * MINUTE, "sms:one": 10 * MINUTE}
    assert expire_due(now=now, receipt_waits=waits) == int(ends)


def test_what_is_being_handed_over_is_left_to_its_settling(now: dt.datetime) -> None:
    message = submitted(now, status="sending", expires_at=now - 59 * MINUTE)
    assert expire_due(now=now) == 0
    assert status_of(message) == "sending"


@pytest.mark.parametrize("status", ["delivered", "failed", "cancelled", "expired"])
def test_what_has_ended_stays_as_it_is(now: dt.datetime, status: str) -> None:
    reason = {"delivered": "", "failed": "attempts_exhausted", "cancelled": "cancelled", "expired": "expired_unsent"}
    end = {"status": status, "final_reason": reason[status], "finished_at": now - SECOND}
    message = submitted(now, expires_at=now - 59 * MINUTE, **end)
    assert expire_due(now=now) == 0
    message.refresh_from_db()
    assert message.finished_at == now - SECOND
    assert not Event.objects.exists()


def test_a_batch_is_of_those_that_are_over_longest(now: dt.datetime) -> None:
    later, sooner = (waiting(now, expires_at=now - seconds * SECOND) for seconds in (1, 2))
    assert expire_due(now=now, batch=1) == 1
    assert (status_of(sooner), status_of(later)) == ("expired", "waiting")
    assert expire_due(now=now, batch=1) == 1
    assert expire_due(now=now, batch=1) == 0


def test_both_kinds_end_in_one_sweep(now: dt.datetime) -> None:
    unsent, unconfirmed = (make(now, expires_at=now - 30 * MINUTE) for make in (waiting, submitted))
    assert expire_due(now=now) == 2
    assert (status_of(unsent), status_of(unconfirmed)) == ("expired", "expired")


def test_many_cost_as_many_queries_as_one(
    now: dt.datetime, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    flow = FlowFactory.create()
    QueuedFactory.create_batch(50, flow=flow, **born(now), expires_at=now - SECOND)
    with django_assert_max_num_queries(12):
        assert expire_due(now=now) == 50
    assert Event.objects.count() == 50
    assert not Ready.objects.exists()
