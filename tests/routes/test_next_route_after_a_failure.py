"""After a failure the next attempt takes the way that its kind of error leaves."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection

from otp_service.core.outcomes import ErrorClass, ReportedState
from otp_service.events.models import Event
from otp_service.messages.expiry import stage_due
from otp_service.messages.lifecycle import NotCancellable, cancel
from otp_service.messages.models import Attempt
from otp_service.messages.rules import Channel
from otp_service.routes.eligibility import Standing
from tests.factories import NOON, QueuedFactory, RouteFactory, ServerFactory
from tests.routes.cascade import SECOND, Cascade, on_its_way, refused, two_sms_routes
from tests.routes.steps import ACCEPTED, NOT_CONNECTED, events_of, settled

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _simulated(settings: Any) -> None:
    settings.SIMULATED_ROUTES = True


def routes_taken(cascade: Cascade, error: ErrorClass, most: int = 6) -> list[str]:
    """Where it goes while each attempt fails so, at its pauses' end."""
    taken = []
    for _ in range(most):
        if (run_after := cascade.row().run_after) is not None:
            cascade.now = run_after
            stage_due(now=cascade.now)
        one = cascade.claims()
        if one is None:
            break
        settled(one, refused(error), now=cascade.now)
        taken.append(one.route)
    return taken


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(ErrorClass.ROUTE_REJECTED, ["one", "two"], id="a route that refuses us is out"),
        pytest.param(ErrorClass.TEMPORARY, ["one", "one", "two", "two"], id="the same once more, then the next"),
        pytest.param(ErrorClass.CONNECTION_REFUSED, ["one", "one", "two", "two", "one", "one"], id="a short retry"),
        pytest.param(ErrorClass.THROTTLED, ["one", "one", "one", "two", "two", "two"], id="the same after a pause"),
        pytest.param(ErrorClass.RECIPIENT_UNREACHABLE, ["one"], id="not the same channel"),
        pytest.param(ErrorClass.RECIPIENT_INVALID, ["one"], id="the number cannot be"),
        pytest.param(ErrorClass.CONTENT_REJECTED, ["one"], id="the text was refused"),
    ],
)
def test_which_routes_follow_a_failure(error: ErrorClass, expected: list[str]) -> None:
    two_sms_routes()
    taken = routes_taken(on_its_way(expires_at=NOON + dt.timedelta(minutes=30)), error)
    assert [route.removeprefix("sms:") for route in taken] == expected


def test_a_recipient_who_is_not_on_a_channel_is_tried_on_the_next(now: dt.datetime) -> None:
    two_sms_routes()
    ServerFactory.create()
    cascade = on_its_way(channels=["imessage", "sms"])
    assert cascade.attempts(refused(ErrorClass.RECIPIENT_UNREACHABLE, 22)) == "imessage:es"
    assert cascade.attempts(ACCEPTED) == "sms:one"
    assert events_of(cascade.message) == ["message.submitted"]
    attempt = Attempt.objects.get(number=2)
    assert attempt.refusals == {"imessage:es": "channel_refused"}


def test_one_who_is_on_no_channel_is_unreachable(now: dt.datetime) -> None:
    two_sms_routes()
    cascade = on_its_way()
    assert cascade.attempts(refused(ErrorClass.RECIPIENT_UNREACHABLE, 30005)) == "sms:one"
    assert cascade.claims() is None
    row = cascade.row()
    assert (row.status, row.final_reason, row.final_error_code) == ("failed", "recipient_unreachable", 30005)
    assert (row.final_route, row.finished_at) == ("sms:one", now)
    assert row.refusals == {"sms:one": "channel_refused", "sms:two": "channel_refused"}
    data = Event.objects.get(type="message.failed").data
    assert (data["reason"], data["error_code"]) == ("recipient_unreachable", 30005)


def test_without_a_route_that_has_not_refused_it_it_fails() -> None:
    two_sms_routes()
    cascade = on_its_way()
    assert routes_taken(cascade, ErrorClass.ROUTE_REJECTED) == ["sms:one", "sms:two"]
    assert (cascade.row().status, cascade.row().final_reason) == ("failed", "no_route")


def test_a_phone_that_was_off_twice_is_tried_on_the_next_channel() -> None:
    two_sms_routes()
    RouteFactory.create(name="voice:one")
    cascade = on_its_way(channels=["sms", "voice"], max_routes=9)
    for number in (1, 2):
        assert cascade.attempts(ACCEPTED) == "sms:one"
        cascade.reports(ReportedState.FAILED, number, error_class=ErrorClass.TEMPORARY, error_code=30003)
    assert cascade.attempts(ACCEPTED) == "voice:one"


def test_a_phone_that_was_off_twice_costs_no_third_message_where_there_is_no_other_channel() -> None:
    two_sms_routes()
    cascade = on_its_way()
    for number in (1, 2):
        assert cascade.attempts(ACCEPTED) == "sms:one"
        cascade.reports(ReportedState.FAILED, number, error_class=ErrorClass.TEMPORARY, error_code=30003)
    assert cascade.claims() is None
    assert (cascade.row().status, cascade.row().final_reason) == ("failed", "recipient_unreachable")
    assert cascade.row().refusals == {"sms:one": "channel_refused", "sms:two": "channel_refused"}


def test_a_route_that_asks_for_time_gets_it() -> None:
    two_sms_routes()
    cascade = on_its_way()
    cascade.attempts(refused(ErrorClass.THROTTLED, retry_after=40 * SECOND))
    assert cascade.row().run_after == NOON + 40 * SECOND


def test_it_goes_over_no_more_routes_than_it_may() -> None:
    two_sms_routes()
    cascade = on_its_way(max_routes=1)
    assert routes_taken(cascade, ErrorClass.TEMPORARY) == ["sms:one"] * 4
    assert cascade.row().final_reason == "attempts_exhausted"
    other = on_its_way(max_routes=1)
    assert other.attempts(refused(ErrorClass.ROUTE_REJECTED)) == "sms:one"
    assert other.claims() is None
    assert other.row().refusals == {"sms:one": "already_tried", "sms:two": "max_routes"}


def test_a_route_whose_breaker_is_open_is_passed_over_and_waited_for_where_it_is_the_only_one() -> None:
    two_sms_routes()
    cascade = on_its_way()
    cascade.standings = {"sms:one": Standing(breaker_open=True), "sms:two": Standing(isolated=True)}
    assert cascade.claims() is None
    row = cascade.row()
    assert (row.status, row.refusals) == ("waiting", {"sms:one": "breaker_open", "sms:two": "isolated"})
    cascade.standings = {"sms:one": Standing(breaker_open=True)}
    cascade.goes(20)
    stage_due(now=cascade.now)
    assert cascade.attempts(NOT_CONNECTED) == "sms:two"
    assert cascade.message.attempts.get().refusals == {"sms:one": "breaker_open"}
    assert cascade.row().refusals is None


def test_what_would_come_too_late_is_not_sent(now: dt.datetime) -> None:
    two_sms_routes(delivery_s=60)
    cascade = on_its_way(expires_at=now + 59 * SECOND)
    assert cascade.claims() is None
    row = cascade.row()
    assert (row.status, row.final_reason) == ("expired", "expired_unsent")
    assert row.refusals == {"sms:one": "ttl", "sms:two": "ttl"}


# --- otp and its pool ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free_in_s", "lane", "expected"),
    [
        pytest.param(14, "otp", "waiting", id="a server is free in time"),
        pytest.param(15, "otp", "waiting", id="just in time"),
        pytest.param(16, "otp", "sending", id="too late for its first attempt"),
        pytest.param(5, "transactional", "sending", id="only otp waits"),
    ],
)
def test_an_otp_waits_for_its_pool_as_long_as_its_first_attempt_may(free_in_s: int, lane: str, expected: str) -> None:
    RouteFactory.create(name="sms:one")
    ServerFactory.create(next_send_date=NOON + free_in_s * SECOND)
    cascade = on_its_way(channels=["imessage", "sms"], lane=lane, first_attempt_by=NOON + 15 * SECOND)
    cascade.claims()
    row = cascade.row()
    assert row.status == expected
    passed_over = row.refusals if expected == "waiting" else row.attempts.get().refusals
    assert passed_over is not None
    assert passed_over["imessage:es"] == "no_capacity"


# --- what an attempt costs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts", "cost"),
    [("Your code is 123456", 1, "0.050000"), ("x" * 161, 2, "0.100000"), ("код 123456 " * 7, 2, "0.100000")],
    ids=["one part", "two parts", "two parts of other letters"],
)
def test_an_attempt_says_what_it_costs(text: str, parts: int, cost: str) -> None:
    two_sms_routes(cost_per_part="0.05", currency="EUR")
    cascade = on_its_way(text=text)
    assert cascade.attempts(ACCEPTED) == "sms:one"
    attempt = cascade.message.attempts.get()
    assert (attempt.parts, str(attempt.cost), attempt.currency) == (parts, cost, "EUR")


def test_without_a_price_nothing_is_counted() -> None:
    two_sms_routes()
    cascade = on_its_way()
    assert cascade.attempts(ACCEPTED) == "sms:one"
    attempt = cascade.message.attempts.get()
    assert (attempt.parts, attempt.cost, attempt.currency, attempt.refusals) == (None, None, "", None)


# --- what is sent --------------------------------------------------------------------------------------


def test_a_backup_never_gets_a_sender_name_that_it_may_not_use() -> None:
    RouteFactory.create(name="sms:one", priority=1, sender_names=["ACME", "SHOP"])
    RouteFactory.create(name="sms:two", sender_names=["OTHER"])
    cascade = on_its_way(sender_name="SHOP")
    one = cascade.claims()
    assert one is not None
    assert (one.route, one.send.sender) == ("sms:one", "SHOP")
    other = on_its_way()
    one = other.claims()
    assert one is not None
    assert one.send.sender == "ACME"
    third = on_its_way(sender_name="NOBODY")
    assert third.claims() is None
    assert third.row().refusals == {"sms:one": "sender_name", "sms:two": "sender_name"}


def test_a_push_goes_to_its_own_address() -> None:
    RouteFactory.create(name="push:one")
    RouteFactory.create(name="sms:one")
    cascade = on_its_way(channels=[Channel.PUSH, Channel.SMS], addresses='{"push": "token-1"}')
    one = cascade.claims()
    assert one is not None
    assert (one.route, one.send.to) == ("push:one", "token-1")


# --- it was withdrawn ----------------------------------------------------------------------------------


def test_what_was_being_sent_when_it_was_cancelled_is_not_sent_again(now: dt.datetime) -> None:
    two_sms_routes()
    cascade = on_its_way()
    one = cascade.claims()
    assert one is not None
    with pytest.raises(NotCancellable):
        cancel(cascade.message.client_id, cascade.message.uuid, now=now)
    settled(one, refused(ErrorClass.TEMPORARY), now=cascade.now)
    assert (cascade.row().status, cascade.row().final_reason) == ("cancelled", "cancelled")
    assert events_of(cascade.message) == ["message.cancelled"]
    assert cascade.claims() is None


def test_what_was_handed_over_before_it_was_cancelled_is_reported_as_it_is(now: dt.datetime) -> None:
    two_sms_routes()
    cascade = on_its_way()
    cascade.attempts(ACCEPTED)
    with pytest.raises(NotCancellable):
        cancel(cascade.message.client_id, cascade.message.uuid, now=now)
    cascade.reports(ReportedState.DELIVERED, 1)
    assert cascade.row().status == "delivered"


@pytest.mark.parametrize("column", ["to", "text", "addresses"])
def test_one_that_cannot_be_opened_holds_up_no_other(column: str) -> None:
    RouteFactory.create(name="push:one")
    cascade = on_its_way(channels=[Channel.PUSH], addresses='{"push": "token-1"}')
    other = QueuedFactory.create(flow=cascade.message.flow, lane="otp")
    with connection.cursor() as cursor:
        statement = f'UPDATE otp_messages_message SET "{column}" = %s WHERE id = %s'
        cursor.execute(statement, [b"\x01\x02", cascade.message.pk])
    one = cascade.claims()
    assert one is not None
    assert one.attempt_id == other.attempts.get().pk
    assert cascade.row().status == "waiting"


@pytest.mark.parametrize(("lane", "pause_s"), [("promo", 10), ("otp", 0.25)])
def test_what_passes_slowly_is_not_asked_for_all_the_time(lane: str, pause_s: float, now: dt.datetime) -> None:
    two_sms_routes(opens_at=dt.time(13), closes_at=dt.time(14))
    cascade = on_its_way(lane=lane, expires_at=now + dt.timedelta(hours=3))
    assert cascade.claims() is None
    assert cascade.row().run_after == now + pause_s * SECOND
