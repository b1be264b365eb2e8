"""Lists of events are stored and applied as a whole, and cost far less than their events one by one."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from otp_service.messages.models import Attempt
from tests.routes.steps import attempt_of
from tests.webhooks.relay_poster import RelayPoster, about, event
from webhooks.inbound.models import RawCall, RelayEvent


def test_a_hundred_events_are_taken(poster: RelayPoster) -> None:
    assert poster.posts([event("heartbeat") for _ in range(100)]).counts == (100, 0)
    assert (RelayEvent.objects.count(), RawCall.objects.count()) == (100, 1)


@pytest.mark.parametrize("count", [0, 101])
def test_no_event_and_a_hundred_and_one_are_not(poster: RelayPoster, count: int) -> None:
    answer = poster.posts([event("heartbeat") for _ in range(count)])
    assert (answer.status, answer.body["code"]) == (400, "invalid_relay_event")
    assert not RelayEvent.objects.exists()
    assert not RawCall.objects.exists()


def test_one_bad_event_keeps_out_the_list_and_is_named(poster: RelayPoster) -> None:
    (one,) = poster.in_flight()
    good = event("delivered", **about(one))
    answer = poster.posts([good, event("unit_status", signed_in="yes")])
    assert (answer.status, answer.body["index"], answer.body["field"]) == (400, 1, "data.signed_in")
    assert not RelayEvent.objects.exists()
    assert attempt_of(one).state == "submitting"
    assert poster.posts(good).counts == (1, 0)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("message_sent", {"success": True}),
        ("message_sent", {"success": False, "error_code": 22}),
        ("message_failed", {"error_code": 140}),
        ("read", {}),
    ],
    ids=["sent", "not sent", "failed", "read"],
)
def test_a_hundred_receipts_take_as_many_queries_as_one(
    poster: RelayPoster, django_assert_max_num_queries: DjangoAssertNumQueries, kind: str, data: dict[str, Any]
) -> None:
    news = [event(kind, **about(one), guid=f"guid-{one.attempt_id}", **data) for one in poster.in_flight(100)]
    with django_assert_max_num_queries(30):
        assert poster.posts(news).counts == (100, 0)
    assert Attempt.objects.exclude(state="submitting", read_at=None).count() == 100


def test_a_hundred_deliveries_take_some_queries_for_each_server_and_none_else(poster: RelayPoster) -> None:
    ones = poster.in_flight(40)

    def queries(n: int) -> int:
        news = [event("delivered", **about(ones.pop())) for _ in range(n)]
        with CaptureQueriesContext(connection) as context:
            assert poster.posts(news).counts == (n, 0)
        return len(context)

    few, many = queries(10), queries(30)
    assert (many - few) / 20 <= 6  # lock, keep, link, and what the ladder's reset needs to know
