"""The sweep over cooldowns that are over."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from otp_service.events.models import Event as LogEvent
from servers.cooldown import check_cooldown_servers
from servers.models import Server, ServerStatusHistory
from servers.rules import Event, Status
from tests.draws import Drawn
from tests.factories import ServerFactory

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)
SECOND = dt.timedelta(seconds=1)


def cooling(now: dt.datetime, **fields: Any) -> Server:
    return ServerFactory.create(in_cooldown=True, cooldown_end_date=now, **fields)


def sent(now: dt.datetime) -> dict[str, Any]:
    """A warm-up that was sent in the last hour of the cooldown."""
    return {
        "cooldown_warmup_at": now - 60 * MINUTE,
        "cooldown_warmup_uuid": uuid.UUID(int=1),
        "cooldown_warmup_sent_date": now - 50 * MINUTE,
    }


@pytest.mark.parametrize(
    ("early", "released"),
    [
        pytest.param(SECOND, False, id="a second early"),
        pytest.param(0 * SECOND, True, id="to the second"),
        pytest.param(-24 * 60 * MINUTE, True, id="a day late"),
    ],
)
def test_a_server_is_let_out_when_its_cooldown_is_over(now: dt.datetime, early: dt.timedelta, released: bool) -> None:
    server = cooling(now)
    assert check_cooldown_servers(now=now - early) == int(released)
    server.refresh_from_db()
    assert server.cooldown is not released


def test_a_release_clears_the_cooldown_and_the_failures_and_keeps_the_place_on_the_ladder(now: dt.datetime) -> None:
    server = cooling(now, cooldown_times=3, fail_open_streak=1)
    at = now + 3 * MINUTE
    check_cooldown_servers(now=at)
    server.refresh_from_db()
    assert (server.failed_in_row, server.cooldown_times, server.fail_open_streak) == (0, 3, 1)
    assert (server.cooldown_start_date, server.cooldown_end_date, server.cooldown_reason) == (None, None, "")
    assert server.released_at == at
    assert server.next_send_date == now + 10 * MINUTE
    row = ServerStatusHistory.objects.get()
    assert (row.event, row.at, row.note) == (Event.COOLDOWN_FINISHED, at, "cooldown #3: neutral")
    assert row.data["verdict"] == "neutral"
    assert (row.data["old"]["failed_in_row"], row.data["old"]["cooldown_reason"]) == (2, "failed in row")
    assert row.data["new"]["released_at"] == at.isoformat()
    assert row.data["new"]["next_send_date"] == "2026-09-01T12:10:00+00:00"
    assert (row.data["end"], row.data["reason"]) == ("2026-09-01T12:00:00+00:00", "failed in row")


@pytest.mark.parametrize(
    ("warmup_at", "streak"),
    [pytest.param(None, 2, id="too short for a warm-up"), pytest.param(-30 * MINUTE, 2, id="a slot, never sent")],
)
def test_a_cooldown_without_a_warm_up_ends_neutral(
    now: dt.datetime, warmup_at: dt.timedelta | None, streak: int
) -> None:
    server = cooling(now, cooldown_warmup_at=None if warmup_at is None else now + warmup_at, fail_open_streak=streak)
    check_cooldown_servers(now=now)
    server.refresh_from_db()
    assert server.status == Status.ACTIVE
    assert server.fail_open_streak == streak
    assert ServerStatusHistory.objects.get().data["verdict"] == "neutral"


def test_a_confirmed_warm_up_ends_the_streak(now: dt.datetime) -> None:
    server = cooling(now, **sent(now), cooldown_warmup_delivered=True, fail_open_streak=2)
    check_cooldown_servers(now=now)
    server.refresh_from_db()
    assert (server.cooldown, server.fail_open_streak) == (False, 0)
    assert ServerStatusHistory.objects.get().data["verdict"] == "verified"


def test_an_unconfirmed_warm_up_keeps_the_server_in_for_another_round(now: dt.datetime) -> None:
    server = cooling(now, **sent(now))
    check_cooldown_servers(now=now + 2 * MINUTE, rng=Drawn(60, 7))
    server.refresh_from_db()
    assert server.cooldown
    assert server.cooldown_end_date == now + 60 * MINUTE
    assert server.cooldown_warmup_at == now + 7 * MINUTE
    assert (server.cooldown_warmup_uuid, server.cooldown_warmup_sent_date) == (None, None)
    assert (server.cooldown_extensions, server.failed_in_row) == (1, 2)
    row = ServerStatusHistory.objects.get()
    assert row.event == Event.COOLDOWN_EXTENDED
    assert row.data["old"]["cooldown_end_date"] == "2026-09-01T12:00:00+00:00"


def test_the_third_exit_in_a_row_without_proof_is_need_check(now: dt.datetime) -> None:
    second = cooling(now, **sent(now), cooldown_extensions=2, fail_open_streak=1)
    third = cooling(now, **sent(now), cooldown_extensions=2, fail_open_streak=2)
    check_cooldown_servers(now=now)
    second.refresh_from_db()
    third.refresh_from_db()
    assert (second.status, second.cooldown, second.fail_open_streak) == (Status.ACTIVE, False, 2)
    assert (third.status, third.cooldown, third.fail_open_streak) == (Status.NEED_CHECK, False, 3)
    row = ServerStatusHistory.objects.get(server=third)
    assert (row.event, row.data["path"]) == (Event.NEED_CHECK, "fail_open")
    assert row.data["new"]["fail_open_streak"] == 3
    assert LogEvent.objects.get().subject_uuid == third.uuid


@pytest.mark.parametrize("status", [Status.DISABLED, Status.LOST])
@pytest.mark.parametrize("unproved", [False, True])
def test_a_server_out_of_rotation_leaves_its_cooldown_and_keeps_its_status(
    now: dt.datetime, status: Status, unproved: bool
) -> None:
    third = {**sent(now), "cooldown_extensions": 2, "fail_open_streak": 2} if unproved else {}
    server = cooling(now, status=status, **third)
    check_cooldown_servers(now=now)
    server.refresh_from_db()
    assert (server.cooldown, server.status) == (False, status)


def test_everything_that_is_due_is_let_out_once_however_many_batches_it_takes(now: dt.datetime) -> None:
    for _ in range(7):
        cooling(now)
    waiting = cooling(now + MINUTE)
    assert check_cooldown_servers(now=now, batch=3) == 7
    assert check_cooldown_servers(now=now, batch=3) == 0
    assert list(Server.objects.filter(cooldown=True)) == [waiting]
    assert ServerStatusHistory.objects.filter(event=Event.COOLDOWN_FINISHED).count() == 7


def test_a_batch_of_releases_takes_the_same_queries_however_large(
    now: dt.datetime, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for due in (1, 20):
        for _ in range(due):
            cooling(now)
        with django_assert_num_queries(5):  # savepoint, lock, update, history, release of the savepoint
            check_cooldown_servers(now=now, batch=50, rng=random.Random(1))
