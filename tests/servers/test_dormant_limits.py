"""The triggers that are off as shipped: the share of failures in a day, messages in a day, otp in an hour."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from servers.cooldown import check_cooldown_servers
from servers.deliverability_limits import (
    check_blocking_servers,
    check_deliverability_limits,
    record_delivery,
    record_failed_send,
)
from servers.models import Server, ServerStatusHistory
from servers.rules import Event, NoChange, StartCooldown, Status
from tests.draws import Lowest
from tests.factories import NOON, ServerDeliveryFactory, ServerFactory

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)
SECOND = dt.timedelta(seconds=1)
HOUR = dt.timedelta(hours=1)
RATE, DAY, OTP_HOUR = "failure rate in 24 hours", "messages in 24 hours", "otp messages in an hour"


def outcomes(server: Server, *, failed: int = 0, delivered: int = 0, at: dt.datetime) -> None:
    rows = (ServerStatusHistory(server=server, event=Event.SEND_FAILED, at=at) for _ in range(failed))
    ServerStatusHistory.objects.bulk_create(rows)
    ServerDeliveryFactory.create_batch(delivered, server=server, at=at)


def reason_of(server: Server) -> str:
    """Why it is in cooldown; "" if it is in none. The row and the column say the same."""
    server.refresh_from_db()
    row = ServerStatusHistory.objects.filter(server=server, event=Event.COOLDOWN_STARTED).last()
    assert (row.data["reason"] if row else "") == server.cooldown_reason
    return server.cooldown_reason


def check(server: Server, now: dt.datetime) -> object:
    return check_deliverability_limits(server.pk, now=now, rng=Lowest())


# --- the share of failures -----------------------------------------------------------------------------


def test_as_shipped_a_server_that_only_fails_is_not_taken_out_by_its_rate(now: dt.datetime) -> None:
    server = ServerFactory.create()
    outcomes(server, failed=1_000, at=now - HOUR)
    with CaptureQueriesContext(connection) as captured:
        assert check_blocking_servers(now=now, rng=Lowest()) == 0
    assert len(captured) == 0
    assert reason_of(server) == ""


@pytest.mark.parametrize(
    ("failed", "delivered", "taken_out"),
    [
        pytest.param(10, 10, True, id="50 % of 20"),
        pytest.param(10, 9, False, id="19 outcomes"),
        pytest.param(10, 11, False, id="47.6 %"),
        pytest.param(20, 0, True, id="nothing delivered"),
        pytest.param(0, 20, False, id="nothing failed"),
    ],
)
def test_from_the_share_and_the_number_on_a_cooldown_starts(
    now: dt.datetime, settings: Settings, failed: int, delivered: int, taken_out: bool
) -> None:
    settings.FAILURE_RATE_LIMIT = 0.5
    server = ServerFactory.create(cooldown_times=1)
    outcomes(server, failed=failed, delivered=delivered, at=now - HOUR)
    assert check_blocking_servers(now=now, rng=Lowest()) == int(taken_out)
    assert reason_of(server) == (RATE if taken_out else "")
    assert server.cooldown_times == (2 if taken_out else 1)


@pytest.mark.parametrize(("ago", "taken_out"), [(24 * HOUR, True), (24 * HOUR + SECOND, False)])
def test_only_the_last_24_hours_count(now: dt.datetime, settings: Settings, ago: dt.timedelta, taken_out: bool) -> None:
    settings.FAILURE_RATE_LIMIT = 0.5
    server = ServerFactory.create()
    outcomes(server, failed=1, at=now - ago)
    outcomes(server, failed=9, delivered=10, at=now - HOUR)
    check_blocking_servers(now=now, rng=Lowest())
    assert reason_of(server) == (RATE if taken_out else "")


@pytest.mark.parametrize(("ago", "taken_out"), [(HOUR, True), (HOUR + SECOND, False)])
def test_in_a_drill_the_day_is_as_much_shorter(
    now: dt.datetime, settings: Settings, ago: dt.timedelta, taken_out: bool
) -> None:
    settings.FAILURE_RATE_LIMIT, settings.HEALTH_SPEED = 0.5, 24
    server = ServerFactory.create()
    outcomes(server, failed=20, at=now - ago)
    check_blocking_servers(now=now, rng=Lowest())
    assert reason_of(server) == (RATE if taken_out else "")


@pytest.mark.parametrize(
    "fields",
    [
        *({"status": status} for status in Status if status is not Status.ACTIVE),
        {"in_cooldown": True, "cooldown_end_date": NOON + HOUR},
    ],
    ids=str,
)
def test_a_server_out_of_rotation_is_left_alone(now: dt.datetime, settings: Settings, fields: dict[str, Any]) -> None:
    settings.FAILURE_RATE_LIMIT = 0.5
    server = ServerFactory.create(**fields)
    outcomes(server, failed=20, at=now - HOUR)
    assert check_blocking_servers(now=now, rng=Lowest()) == 0


def test_what_led_to_a_cooldown_does_not_lead_to_the_next(now: dt.datetime, settings: Settings) -> None:
    settings.FAILURE_RATE_LIMIT = 0.5
    server = ServerFactory.create()
    outcomes(server, failed=20, at=now - HOUR)
    assert check_blocking_servers(now=now, rng=Lowest()) == 1
    out = now + 2 * HOUR
    check_cooldown_servers(now=out, rng=Lowest())
    assert check_blocking_servers(now=out, rng=Lowest()) == 0
    outcomes(server, failed=10, delivered=9, at=out + MINUTE)
    assert check_blocking_servers(now=out + MINUTE, rng=Lowest()) == 0
    outcomes(server, failed=1, at=out + 2 * MINUTE)
    assert check_blocking_servers(now=out + 2 * MINUTE, rng=Lowest()) == 1


def test_with_the_ladder_used_up_the_rate_leads_to_need_check(now: dt.datetime, settings: Settings) -> None:
    settings.FAILURE_RATE_LIMIT = 0.5
    server = ServerFactory.create(cooldown_times=4)
    outcomes(server, failed=20, at=now - HOUR)
    assert check_blocking_servers(now=now, rng=Lowest()) == 1
    data = ServerStatusHistory.objects.get(server=server, event=Event.NEED_CHECK).data
    assert (data["path"], data["reason"]) == ("ladder", RATE)


@pytest.mark.parametrize("servers", [1, 10])
def test_servers_are_chosen_in_one_query(now: dt.datetime, settings: Settings, servers: int) -> None:
    settings.FAILURE_RATE_LIMIT = 0.5
    for server in ServerFactory.create_batch(servers):
        outcomes(server, failed=9, delivered=11, at=now - HOUR)
    with CaptureQueriesContext(connection) as captured:
        assert check_blocking_servers(now=now, rng=Lowest()) == 0
    assert len(captured) == 1


# --- the number of messages ----------------------------------------------------------------------------


def test_as_shipped_no_number_of_messages_is_too_large_and_none_is_counted(now: dt.datetime) -> None:
    server = ServerFactory.create(otp_hour=now, otp_in_hour=10_000)
    outcomes(server, delivered=950, at=now - HOUR)
    with CaptureQueriesContext(connection) as captured:
        assert check(server, now) == NoChange()
        record_delivery(server.pk, now=now)
    assert not [query for query in captured if "COUNT" in query["sql"]]
    assert reason_of(server) == ""


@pytest.mark.parametrize(
    ("delivered", "ago", "reason"),
    [
        pytest.param(899, HOUR, DAY, id="900 with the failure"),
        pytest.param(898, HOUR, "", id="899"),
        pytest.param(899, 24 * HOUR, DAY, id="900, 24 h ago"),
        pytest.param(899, 24 * HOUR + SECOND, "", id="900, longer ago"),
    ],
)
def test_900_messages_in_24_hours_start_a_cooldown(
    now: dt.datetime, settings: Settings, delivered: int, ago: dt.timedelta, reason: str
) -> None:
    settings.MESSAGES_LIMIT_24_HOURS = 900
    server = ServerFactory.create()
    outcomes(server, failed=1, delivered=delivered, at=now - ago)
    check(server, now)
    assert reason_of(server) == reason


def test_messages_before_the_last_release_do_not_count_again(now: dt.datetime, settings: Settings) -> None:
    settings.MESSAGES_LIMIT_24_HOURS = 5
    server = ServerFactory.create(released_at=now - HOUR)
    outcomes(server, delivered=5, at=now - HOUR - SECOND)
    outcomes(server, delivered=4, at=now - HOUR)
    check(server, now)
    assert reason_of(server) == ""
    record_delivery(server.pk, now=now, rng=Lowest())
    assert reason_of(server) == DAY


@pytest.mark.parametrize(
    ("in_hour", "hour", "reason"),
    [
        pytest.param(60, NOON, OTP_HOUR, id="60 in this hour"),
        pytest.param(59, NOON, "", id="59"),
        pytest.param(60, NOON - HOUR, "", id="60 in the hour before"),
    ],
)
def test_60_otp_messages_in_a_clock_hour_start_a_cooldown(
    now: dt.datetime, settings: Settings, in_hour: int, hour: dt.datetime, reason: str
) -> None:
    settings.OTP_LIMITS_1_HOUR = 60
    server = ServerFactory.create(otp_hour=hour, otp_in_hour=in_hour)
    check(server, now + 59 * MINUTE)
    assert reason_of(server) == reason


@pytest.mark.parametrize("cooldown_times", [0, 3])
def test_the_limits_are_looked_at_after_a_delivery_and_after_a_failure(
    now: dt.datetime, settings: Settings, cooldown_times: int
) -> None:
    settings.OTP_LIMITS_1_HOUR = 60
    fields = {"otp_hour": now, "otp_in_hour": 60, "cooldown_times": cooldown_times}
    delivering, failing = ServerFactory.create_batch(2, **fields)
    record_delivery(delivering.pk, now=now, rng=Lowest())
    step = record_failed_send(failing.pk, now=now, reason="message_failed", rng=Lowest())
    assert isinstance(step, StartCooldown)
    assert step.number == cooldown_times + 1
    assert [reason_of(delivering), reason_of(failing)] == [OTP_HOUR, OTP_HOUR]


def test_failures_in_a_row_go_before_the_limits(now: dt.datetime, settings: Settings) -> None:
    settings.OTP_LIMITS_1_HOUR = 60
    server = ServerFactory.create(failed_in_row=1, otp_hour=now, otp_in_hour=60)
    record_failed_send(server.pk, now=now, reason="message_failed", rng=Lowest())
    assert reason_of(server) == "failed in row"
    assert ServerStatusHistory.objects.filter(event=Event.COOLDOWN_STARTED).count() == 1


def test_a_delivery_during_a_cooldown_starts_no_other(now: dt.datetime, settings: Settings) -> None:
    settings.OTP_LIMITS_1_HOUR = 60
    server = ServerFactory.create(in_cooldown=True, cooldown_end_date=now + HOUR, otp_hour=now, otp_in_hour=60)
    record_delivery(server.pk, now=now, rng=Lowest())
    server.refresh_from_db()
    assert (server.cooldown_reason, server.cooldown_times) == ("failed in row", 1)


def test_otp_of_before_a_release_does_not_count_again_in_the_same_hour(now: dt.datetime, settings: Settings) -> None:
    settings.OTP_LIMITS_1_HOUR = 60
    server = ServerFactory.create(in_cooldown=True, otp_hour=now, otp_in_hour=60)
    check_cooldown_servers(now=now)
    record_delivery(server.pk, now=now + MINUTE)
    server.refresh_from_db()
    assert (server.cooldown, server.cooldown_times, server.otp_in_hour) == (False, 1, 0)
