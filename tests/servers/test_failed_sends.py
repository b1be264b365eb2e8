"""Failed sends: what is counted, what starts, and what history tells of it."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest
from pytest_django import Settings

from otp_service.events.models import Event as LogEvent
from servers.deliverability_limits import (
    check_deliverability_limits,
    record_delivery,
    record_failed_send,
    start_cooldown,
)
from servers.models import Server, ServerStatusHistory
from servers.rules import Event, NoChange, Status
from tests.draws import Drawn, Highest, Lowest
from tests.factories import GroupFactory, ServerDeliveryFactory, ServerFactory

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)
HOUR = dt.timedelta(hours=1)
RECIPIENT = b"r" * 32


def fail(server: Server, at: dt.datetime, rng: random.Random | None = None, *, count: bool = True) -> None:
    record_failed_send(server.pk, now=at, reason="message_failed", error_code=120, count=count, rng=rng or Lowest())
    server.refresh_from_db()


def events_of(server: Server) -> list[int]:
    return list(ServerStatusHistory.objects.filter(server=server).order_by("id").values_list("event", flat=True))


def row(server: Server, event: Event) -> ServerStatusHistory:
    return ServerStatusHistory.objects.get(server=server, event=event)


def deliver(server: Server, times: int, *, at: dt.datetime) -> None:
    ServerDeliveryFactory.create_batch(times, server=server, at=at)


@pytest.mark.parametrize(
    ("draws", "length", "slot"), [(Drawn(60, 20), 60, 20), (Drawn(120, 30), 120, 30)], ids=["shortest", "longest"]
)
def test_the_second_failure_in_a_row_starts_cooldown_1(
    now: dt.datetime, draws: random.Random, length: int, slot: int
) -> None:
    server = ServerFactory.create()
    fail(server, now)
    assert events_of(server) == [Event.SEND_FAILED]
    started = now + MINUTE
    fail(server, started, draws)
    assert server.cooldown
    assert (server.failed_in_row, server.cooldown_times) == (2, 1)
    assert server.cooldown_start_date == started
    assert server.cooldown_end_date == started + length * MINUTE
    assert server.cooldown_warmup_at == started + slot * MINUTE
    assert server.cooldown_reason == "failed in row"
    assert events_of(server) == [Event.SEND_FAILED, Event.SEND_FAILED, Event.COOLDOWN_STARTED]


def test_history_tells_a_failure_with_old_and_new_and_a_cooldown_with_its_figures(now: dt.datetime) -> None:
    server = ServerFactory.create(failed_in_row=1)
    fail(server, now)
    failed, started = row(server, Event.SEND_FAILED), row(server, Event.COOLDOWN_STARTED)
    assert failed.at == started.at == now
    assert failed.data == {
        "old": {"failed_in_row": 1},
        "new": {"failed_in_row": 2},
        "reason": "message_failed",
        "error_code": 120,
    }
    assert started.note == "cooldown #1 until 2026-09-01 13:00:00 UTC"
    assert started.data["reason"] == "failed in row"
    assert (started.data["number"], started.data["minutes"], started.data["drawn_from"]) == (1, 60, [60, 120])
    assert started.data["group"] is None
    assert started.data["old"]["cooldown"] is False
    assert started.data["new"]["cooldown_end_date"] == "2026-09-01T13:00:00+00:00"


def test_a_delivery_between_two_failures_keeps_them_apart(now: dt.datetime) -> None:
    server = ServerFactory.create()
    fail(server, now)
    record_delivery(server.pk, now=now + MINUTE, recipient_hash=RECIPIENT)
    fail(server, now + 2 * MINUTE)
    assert not server.cooldown
    assert server.failed_in_row == 1


@pytest.mark.parametrize(
    ("group", "failures", "shortest", "longest"),
    [
        pytest.param({"failed_in_row": 1, "cooldown_delay_from": 15, "cooldown_delay_to": 45}, 1, 15, 45, id="quick"),
        pytest.param({"failed_in_row": 0}, 2, 60, 120, id="threshold not set"),
        pytest.param({"cooldown_delay_from": 0, "cooldown_delay_to": 45}, 2, 60, 120, id="delay from 0: the ladder"),
    ],
)
def test_the_group_in_force_decides_threshold_and_length(
    now: dt.datetime, group: dict[str, Any], failures: int, shortest: int, longest: int
) -> None:
    for rng, minutes in ((Lowest(), shortest), (Highest(), longest)):
        server = ServerFactory.create(failed_in_row=failures - 1)
        server.groups.add(GroupFactory.create(**group))
        fail(server, now, rng)
        assert server.cooldown_end_date == now + minutes * MINUTE


def test_one_failure_less_than_the_groups_threshold_starts_nothing(now: dt.datetime) -> None:
    server = ServerFactory.create(failed_in_row=1)
    server.groups.add(GroupFactory.create(failed_in_row=3))
    fail(server, now)
    assert not server.cooldown


@pytest.mark.parametrize(
    ("ladder", "cooldown_times", "ends"),
    [
        pytest.param("standard", 3, False, id="standard, the fourth"),
        pytest.param("standard", 4, True, id="standard, after four"),
        pytest.param("five_step", 4, False, id="five_step, the fifth"),
        pytest.param("five_step", 5, True, id="five_step, after five"),
    ],
)
def test_after_the_last_step_comes_need_check(
    now: dt.datetime, settings: Settings, ladder: str, cooldown_times: int, ends: bool
) -> None:
    settings.COOLDOWN_LADDER = ladder
    server = ServerFactory.create(failed_in_row=1, cooldown_times=cooldown_times)
    fail(server, now)
    assert server.status == (Status.NEED_CHECK if ends else Status.ACTIVE)
    assert server.cooldown is not ends
    assert server.cooldown_times == cooldown_times + (0 if ends else 1)
    if not ends:
        assert server.cooldown_end_date == now + 720 * MINUTE
        return
    assert events_of(server) == [Event.SEND_FAILED, Event.NEED_CHECK]
    assert row(server, Event.NEED_CHECK).data["path"] == "ladder"
    told = LogEvent.objects.get(type="server.need_check")
    assert (told.subject_uuid, told.client_id, told.at) == (server.uuid, None, now)
    assert told.data["path"] == "ladder"


@pytest.mark.parametrize(
    ("preheating", "delivered", "ago", "cooldown_times"),
    [
        pytest.param(False, 11, 14 * HOUR, 0, id="11 in 14 h"),
        pytest.param(False, 10, HOUR, 3, id="10"),
        pytest.param(False, 11, 14 * HOUR + MINUTE, 3, id="11, a minute too long ago"),
        pytest.param(True, 2, HOUR, 0, id="preheating, 2"),
        pytest.param(True, 1, HOUR, 3, id="preheating, 1"),
    ],
)
def test_a_failure_after_enough_deliveries_resets_the_ladder(
    now: dt.datetime, preheating: bool, delivered: int, ago: dt.timedelta, cooldown_times: int
) -> None:
    server = ServerFactory.create(
        cooldown_times=3, preheating=preheating, preheat_started_at=now if preheating else None
    )
    deliver(server, delivered, at=now - ago)
    fail(server, now)
    assert (server.cooldown_times, server.failed_in_row) == (cooldown_times, 1)
    resets = ServerStatusHistory.objects.filter(server=server, event=Event.COUNTERS_RESET)
    if cooldown_times:
        assert not resets.exists()
        return
    assert resets.get().data == {"old": {"cooldown_times": 3}, "new": {"cooldown_times": 0}, "cause": "window"}


def test_with_threshold_1_a_failure_starts_the_next_cooldown_and_resets_nothing(now: dt.datetime) -> None:
    server = ServerFactory.create(cooldown_times=3)
    server.groups.add(GroupFactory.create(failed_in_row=1))
    deliver(server, 11, at=now - HOUR)
    fail(server, now)
    assert server.cooldown
    assert server.cooldown_times == 4


def test_with_threshold_2_the_first_failure_resets_and_the_second_starts_cooldown_1(now: dt.datetime) -> None:
    server = ServerFactory.create(cooldown_times=3)
    deliver(server, 11, at=now - HOUR)
    fail(server, now)
    fail(server, now + MINUTE)
    assert server.cooldown
    assert server.cooldown_times == 1


def test_older_deliveries_do_not_hide_the_newest(now: dt.datetime) -> None:
    server = ServerFactory.create(cooldown_times=3)
    deliver(server, 20, at=now - 48 * HOUR)
    deliver(server, 11, at=now - HOUR)
    fail(server, now)
    assert server.cooldown_times == 0


def test_deliveries_of_another_server_reset_nothing(now: dt.datetime) -> None:
    server = ServerFactory.create(cooldown_times=3)
    deliver(ServerFactory.create(), 11, at=now - HOUR)
    fail(server, now)
    assert server.cooldown_times == 3


@pytest.mark.parametrize(("rule", "cooldown_times"), [("", 3), ("since_release", 0)])
def test_the_groups_reset_rule_goes_before_the_setting(now: dt.datetime, rule: str, cooldown_times: int) -> None:
    server = ServerFactory.create(cooldown_times=3, released_at=now - 48 * HOUR)
    server.groups.add(GroupFactory.create(reset_rule=rule))
    deliver(server, 11, at=now - 24 * HOUR)
    fail(server, now)
    assert server.cooldown_times == cooldown_times


@pytest.mark.parametrize(("rule", "cooldown_times"), [("calendar_window", 0), ("either", 0), ("since_release", 3)])
def test_ten_deliveries_before_a_short_cooldown_and_one_after_it(
    now: dt.datetime, settings: Settings, rule: str, cooldown_times: int
) -> None:
    settings.RESET_RULE = rule
    server = ServerFactory.create(cooldown_times=3, released_at=now - HOUR)
    deliver(server, 10, at=now - 2 * HOUR)
    deliver(server, 1, at=now - MINUTE)
    fail(server, now)
    assert server.cooldown_times == cooldown_times


def test_the_last_attempt_of_several_is_not_counted_and_writes_no_row(now: dt.datetime) -> None:
    server = ServerFactory.create(failed_in_row=1)
    fail(server, now, count=False)
    assert server.failed_in_row == 1
    assert not server.cooldown
    assert events_of(server) == []


def test_the_last_attempt_of_several_starts_the_cooldown_that_the_counter_already_calls_for(now: dt.datetime) -> None:
    server = ServerFactory.create(failed_in_row=2)
    fail(server, now, count=False)
    assert server.failed_in_row == 2
    assert server.cooldown
    assert events_of(server) == [Event.COOLDOWN_STARTED]


def test_a_failure_during_a_cooldown_is_recorded_and_starts_nothing(now: dt.datetime) -> None:
    server = ServerFactory.create(in_cooldown=True, cooldown_end_date=now + HOUR)
    fail(server, now)
    assert (server.failed_in_row, server.cooldown_times) == (3, 1)
    assert server.cooldown_end_date == now + HOUR
    assert events_of(server) == [Event.SEND_FAILED]


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.ACTIVE])
def test_a_failure_of_a_server_that_is_not_active_is_recorded_and_starts_nothing(
    now: dt.datetime, status: Status
) -> None:
    server = ServerFactory.create(status=status, failed_in_row=5, cooldown_times=4)
    fail(server, now)
    assert (server.status, server.failed_in_row, server.cooldown) == (status, 6, False)
    assert events_of(server) == [Event.SEND_FAILED]


def test_a_change_of_the_group_leaves_a_running_cooldown_and_counts_for_the_next_failure(now: dt.datetime) -> None:
    group = GroupFactory.create(failed_in_row=1, cooldown_delay_from=30, cooldown_delay_to=30)
    server = ServerFactory.create()
    server.groups.add(group)
    fail(server, now)
    group.cooldown_delay_from = group.cooldown_delay_to = 15
    group.save()
    fail(server, now + MINUTE)
    assert server.cooldown_end_date == now + 30 * MINUTE
    other = ServerFactory.create()
    other.groups.add(group)
    fail(other, now + MINUTE)
    assert other.cooldown_end_date == now + 16 * MINUTE


def test_a_look_at_the_limits_alone_starts_what_is_due(now: dt.datetime) -> None:
    server = ServerFactory.create(failed_in_row=2)
    check_deliverability_limits(server.pk, now=now, rng=Lowest())
    server.refresh_from_db()
    assert server.cooldown


def test_a_cooldown_can_be_started_for_another_reason_and_climbs_the_same_ladder(now: dt.datetime) -> None:
    server = ServerFactory.create(cooldown_times=2)
    start_cooldown(server.pk, now=now, reason="failure rate", rng=Lowest())
    server.refresh_from_db()
    assert (server.cooldown_times, server.cooldown_reason) == (3, "failure rate")
    assert server.cooldown_end_date == now + 720 * MINUTE
    assert row(server, Event.COOLDOWN_STARTED).data["reason"] == "failure rate"


def test_a_cooldown_is_not_started_twice(now: dt.datetime) -> None:
    server = ServerFactory.create()
    start_cooldown(server.pk, now=now, reason="failure rate", rng=Lowest())
    assert start_cooldown(server.pk, now=now + MINUTE, reason="failure rate", rng=Lowest()) == NoChange()
    server.refresh_from_db()
    assert server.cooldown_times == 1
    assert server.cooldown_start_date == now
