"""Deliveries: counters that go back to 0, and the server that is asked first the next time."""

from __future__ import annotations

import datetime as dt

import pytest
from pytest_django import Settings

from servers.deliverability_limits import record_delivery, reset_deliverability_counters
from servers.models import RecipientLink, Server, ServerDelivery, ServerStatusHistory
from servers.rules import Event, Status
from tests.factories import GroupFactory, ServerDeliveryFactory, ServerFactory

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)
HOUR = dt.timedelta(hours=1)
RECIPIENT = b"\xff" * 32


def deliver(server: Server, at: dt.datetime, recipient: bytes = RECIPIENT) -> None:
    record_delivery(server.pk, now=at, recipient_hash=recipient)
    server.refresh_from_db()


def causes(server: Server) -> list[str]:
    rows = ServerStatusHistory.objects.filter(server=server, event=Event.COUNTERS_RESET).order_by("id")
    return [row.data["cause"] for row in rows]


@pytest.mark.parametrize("status", [Status.ACTIVE, Status.NEED_CHECK])
def test_a_delivery_is_kept_and_ends_the_failures_in_a_row(now: dt.datetime, status: Status) -> None:
    server = ServerFactory.create(failed_in_row=1, status=status)
    deliver(server, now)
    assert server.failed_in_row == 0
    assert ServerDelivery.objects.get(server=server).at == now
    row = ServerStatusHistory.objects.get(server=server)
    assert row.event == Event.COUNTERS_RESET
    assert row.data == {"old": {"failed_in_row": 1}, "new": {"failed_in_row": 0}, "cause": "delivery"}


def test_a_delivery_that_changes_no_counter_writes_no_history(now: dt.datetime) -> None:
    server = ServerFactory.create()
    deliver(server, now)
    assert not ServerStatusHistory.objects.exists()


@pytest.mark.parametrize(
    ("rule", "at_the_tenth", "at_the_eleventh"),
    [("calendar_window", 3, 3), ("since_release", 3, 0), ("either", 3, 0)],
)
def test_eleven_deliveries_after_a_long_cooldown_reset_by_the_rules_that_look_at_deliveries(
    now: dt.datetime, settings: Settings, rule: str, at_the_tenth: int, at_the_eleventh: int
) -> None:
    settings.RESET_RULE = rule
    server = ServerFactory.create(cooldown_times=3, released_at=now)
    for number in range(1, 11):
        deliver(server, now + number * 15 * MINUTE)
    assert server.cooldown_times == at_the_tenth
    deliver(server, now + 3 * HOUR)
    assert server.cooldown_times == at_the_eleventh
    assert causes(server) == ([] if at_the_eleventh else ["window" if rule == "either" else "release"])


def test_either_resets_by_deliveries_since_a_release_long_ago(now: dt.datetime, settings: Settings) -> None:
    settings.RESET_RULE = "either"
    server = ServerFactory.create(cooldown_times=3, released_at=now - 100 * HOUR)
    ServerDeliveryFactory.create_batch(10, server=server, at=now - 50 * HOUR)
    deliver(server, now)
    assert server.cooldown_times == 0
    assert causes(server) == ["release"]


def test_a_delivery_that_resets_both_counters_tells_each_once(now: dt.datetime, settings: Settings) -> None:
    settings.RESET_RULE = "since_release"
    server = ServerFactory.create(cooldown_times=3, failed_in_row=1, released_at=now - HOUR)
    ServerDeliveryFactory.create_batch(10, server=server, at=now - MINUTE)
    deliver(server, now)
    assert (server.failed_in_row, server.cooldown_times) == (0, 0)
    assert causes(server) == ["delivery", "release"]


def test_the_groups_reset_rule_holds_for_deliveries_too(now: dt.datetime) -> None:
    server = ServerFactory.create(cooldown_times=3, released_at=now - HOUR)
    server.groups.add(GroupFactory.create(reset_rule="since_release"))
    ServerDeliveryFactory.create_batch(10, server=server, at=now - MINUTE)
    deliver(server, now)
    assert server.cooldown_times == 0


def test_a_late_delivery_leaves_the_number_of_a_running_cooldown(now: dt.datetime, settings: Settings) -> None:
    settings.RESET_RULE = "either"
    server = ServerFactory.create(in_cooldown=True, cooldown_end_date=now + HOUR)
    ServerDeliveryFactory.create_batch(11, server=server, at=now - HOUR)
    deliver(server, now)
    assert server.cooldown
    assert (server.failed_in_row, server.cooldown_times) == (0, 1)


def test_the_first_delivery_ties_a_recipient_to_its_server(now: dt.datetime) -> None:
    server = ServerFactory.create()
    deliver(server, now)
    link = RecipientLink.objects.get()
    assert bytes(link.recipient_hash) == RECIPIENT
    assert (link.server_id, link.first_at, link.delivered_at) == (server.pk, now, now)


def test_a_further_delivery_by_the_same_server_keeps_when_it_was_the_first(now: dt.datetime) -> None:
    server = ServerFactory.create()
    deliver(server, now)
    deliver(server, now + HOUR)
    link = RecipientLink.objects.get()
    assert (link.first_at, link.delivered_at) == (now, now + HOUR)


def test_a_delivery_by_another_server_ties_the_recipient_to_that_one(now: dt.datetime) -> None:
    deliver(ServerFactory.create(), now)
    other = ServerFactory.create()
    deliver(other, now + HOUR)
    link = RecipientLink.objects.get()
    assert (link.server_id, link.first_at, link.delivered_at) == (other.pk, now + HOUR, now + HOUR)


def test_an_older_delivery_does_not_undo_a_newer_tie(now: dt.datetime) -> None:
    server = ServerFactory.create()
    deliver(server, now)
    deliver(ServerFactory.create(), now - MINUTE)
    assert RecipientLink.objects.get().server_id == server.pk


def test_a_reset_by_hand_zeroes_all_counters_in_one_row(now: dt.datetime) -> None:
    server = ServerFactory.create(failed_in_row=1, cooldown_times=3, fail_open_streak=2)
    assert reset_deliverability_counters(server.pk, now=now)
    server.refresh_from_db()
    assert (server.failed_in_row, server.cooldown_times, server.fail_open_streak) == (0, 0, 0)
    row = ServerStatusHistory.objects.get()
    assert row.data["old"] == {"failed_in_row": 1, "cooldown_times": 3, "fail_open_streak": 2}
    assert row.data["cause"] == "admin"


def test_a_reset_of_what_stands_at_0_changes_and_tells_nothing(now: dt.datetime) -> None:
    assert not reset_deliverability_counters(ServerFactory.create().pk, now=now)
    assert not ServerStatusHistory.objects.exists()
