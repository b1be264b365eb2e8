"""Events are written as they are told, in their order."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest
from pytest_django import DjangoAssertNumQueries

from otp_service.events import log
from otp_service.events.models import Event

pytestmark = pytest.mark.django_db
FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


def test_an_event_of_the_fleet_has_no_client_and_no_data_unless_told(now: dt.datetime) -> None:
    log.record("server.need_check", at=now, subject_uuid=FIRST)
    event = Event.objects.get()
    assert (event.type, event.at, event.subject_uuid) == ("server.need_check", now, FIRST)
    assert (event.client_id, event.data, event.fanned_out_at) == (None, {}, None)


def test_many_events_are_one_statement_in_their_order(
    now: dt.datetime, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    events = [
        log.NewEvent("message.sent", now, SECOND, client_id=7, data={"lane": "otp"}),
        log.NewEvent("message.delivered", now, FIRST, client_id=7),
    ]
    with django_assert_num_queries(1):
        log.record_many(events)
    assert list(Event.objects.order_by("id").values_list("type", "client_id", "data")) == [
        ("message.sent", 7, {"lane": "otp"}),
        ("message.delivered", 7, {}),
    ]
    assert Event.objects.values("uuid").distinct().count() == 2


def test_no_events_no_statement(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(0):
        log.record_many([])
