"""What groups are used for: the recipes that operators know, played through from failure to failure."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest

from servers.cooldown import check_cooldown_servers
from servers.deliverability_limits import record_failed_send
from servers.models import Server
from servers.rules import Event, Status
from tests.factories import GroupFactory, InternalSendFactory, ServerFactory

pytestmark = pytest.mark.django_db
MINUTE, HOUR = dt.timedelta(minutes=1), dt.timedelta(hours=1)


def fails_until_need_check(server: Server, start: dt.datetime, rng: random.Random) -> list[dt.datetime]:
    """A server that fails a client message each ten minutes and passes every warm-up: when its cooldowns start."""
    now = start
    while True:
        record_failed_send(server.pk, now=now, reason="message_sent", error_code=120, rng=rng)
        server.refresh_from_db()
        if server.status == Status.NEED_CHECK:
            started = server.history.filter(event=Event.COOLDOWN_STARTED).order_by("at")
            return [*started.values_list("at", flat=True), now]
        if server.cooldown:
            now = leaves(server, rng)
        now += 10 * MINUTE


def leaves(server: Server, rng: random.Random) -> dt.datetime:
    """Proved, and let out at the end of its cooldown; returns when it may send again."""
    assert server.cooldown_end_date is not None
    Server.objects.filter(pk=server.pk).update(cooldown_warmup_delivered=True)
    check_cooldown_servers(now=server.cooldown_end_date, rng=rng)
    return server.cooldown_end_date + 10 * MINUTE


@pytest.mark.parametrize("seed", range(5))
def test_short_cooldowns_find_a_dead_device_within_a_shift(now: dt.datetime, settings: Any, seed: int) -> None:
    settings.COOLDOWN_LADDER = "five_step"
    group = GroupFactory.create(cooldown_delay_from=15, cooldown_delay_to=45)
    server = ServerFactory.create()
    server.groups.add(group)
    *cooldowns, need_check = fails_until_need_check(server, now, random.Random(seed))
    assert len(cooldowns) == 5
    assert 3 * HOUR <= need_check - cooldowns[0] <= 10 * HOUR


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ladder", [("five_step", 5, 27), ("standard", 4, 26)], ids=["five steps", "four steps"])
def test_the_ladder_takes_more_than_a_day(
    now: dt.datetime, settings: Any, seed: int, ladder: tuple[str, int, int]
) -> None:
    settings.COOLDOWN_LADDER, number, least = ladder
    *cooldowns, need_check = fails_until_need_check(ServerFactory.create(), now, random.Random(seed))
    assert len(cooldowns) == number
    assert least * HOUR <= need_check - cooldowns[0] <= 40 * HOUR


def test_a_longer_rest_is_rarer_longer_and_always_has_room_for_a_warm_up(now: dt.datetime) -> None:
    group = GroupFactory.create(failed_in_row=3, cooldown_delay_from=120, cooldown_delay_to=240)
    for seed in range(10):
        server = ServerFactory.create()
        server.groups.add(group)
        for failures in (1, 2, 3):
            record_failed_send(server.pk, now=now, reason="message_sent", rng=random.Random(seed))
            server.refresh_from_db()
            assert server.cooldown is (failures == 3)
        assert server.cooldown_end_date is not None
        assert 120 * MINUTE <= server.cooldown_end_date - now <= 240 * MINUTE
        assert server.cooldown_warmup_at is not None


@pytest.mark.parametrize(
    ("hour", "minutes"),
    [
        pytest.param(12, 15, id="noon"),
        pytest.param(20, 15, id="the last second of the day's window"),
        pytest.param(23, 120, id="night"),
        pytest.param(3, 120, id="after midnight"),
    ],
)
def test_day_and_night_are_two_groups(now: dt.datetime, hour: int, minutes: int) -> None:
    day = GroupFactory.create(
        priority=1_000, from_time=dt.time(8), to_time=dt.time(20), cooldown_delay_from=15, cooldown_delay_to=15
    )
    night = GroupFactory.create(
        from_time=dt.time(20), to_time=dt.time(8), cooldown_delay_from=120, cooldown_delay_to=120
    )
    server = ServerFactory.create(failed_in_row=1)
    server.groups.add(day, night)
    at = now.replace(hour=hour)
    record_failed_send(server.pk, now=at, reason="message_sent")
    server.refresh_from_db()
    assert server.cooldown_end_date == at + minutes * MINUTE


def test_nothing_changes_for_a_running_cooldown_when_the_window_does(now: dt.datetime) -> None:
    short = GroupFactory.create(from_time=dt.time(8), to_time=dt.time(12), cooldown_delay_from=30, cooldown_delay_to=30)
    server = ServerFactory.create(failed_in_row=1)
    server.groups.add(short)
    record_failed_send(server.pk, now=now, reason="message_sent")
    InternalSendFactory.create(sender=server, created_at=now)
    assert check_cooldown_servers(now=now + 29 * MINUTE) == 0
    assert check_cooldown_servers(now=now + 30 * MINUTE) == 1
