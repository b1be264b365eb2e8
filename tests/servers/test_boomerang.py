"""A server that is back in Need Check soon after somebody brought it back."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from servers.deliverability_limits import record_failed_send, set_need_check
from servers.models import ServerStatusHistory
from servers.rules import Event, NeedCheckPath
from tests.draws import Lowest
from tests.factories import ServerFactory

pytestmark = pytest.mark.django_db
HOUR = dt.timedelta(hours=1)
SECOND = dt.timedelta(seconds=1)
RECOVERIES = [Event.RECOVERED, Event.MARKED_ACTIVE, Event.PREHEAT_STARTED, Event.CHAT_PREHEAT_STARTED]


def need_check_after(now: dt.datetime, *rows: tuple[Event, str, dt.timedelta]) -> dict[str, Any]:
    """The data of a server's Need Check, with these rows of event, old status and age in its history."""
    server = ServerFactory.create()
    for event, status, ago in rows:
        data = {"old": {"status": status}, "new": {"status": "active"}}
        ServerStatusHistory.objects.create(server=server, event=event, at=now - ago, data=data)
    set_need_check(server.pk, now=now, path=NeedCheckPath.FAIL_OPEN)
    data = ServerStatusHistory.objects.get(server=server, event=Event.NEED_CHECK).data
    return {key: data[key] for key in ("boomerang", "recovered_at") if key in data}


@pytest.mark.parametrize("event", RECOVERIES)
def test_need_check_within_a_day_of_a_recovery_is_a_boomerang(now: dt.datetime, event: Event) -> None:
    data = need_check_after(now, (event, "need_check", 24 * HOUR))
    assert data == {"boomerang": True, "recovered_at": "2026-08-31T12:00:00+00:00"}


@pytest.mark.parametrize(
    "row",
    [
        pytest.param((Event.RECOVERED, "need_check", 24 * HOUR + SECOND), id="longer ago"),
        pytest.param((Event.MARKED_ACTIVE, "lost", HOUR), id="from another status"),
        pytest.param((Event.COUNTERS_RESET, "need_check", HOUR), id="another event"),
    ],
)
def test_anything_else_is_no_boomerang(now: dt.datetime, row: tuple[Event, str, dt.timedelta]) -> None:
    assert need_check_after(now, row) == {"boomerang": False}


def test_without_a_history_there_is_no_boomerang(now: dt.datetime) -> None:
    assert need_check_after(now) == {"boomerang": False}


def test_the_newest_recovery_is_named(now: dt.datetime) -> None:
    data = need_check_after(
        now,
        (Event.RECOVERED, "need_check", HOUR),
        (Event.RECOVERED, "need_check", 20 * HOUR),
        (Event.MARKED_ACTIVE, "new", SECOND),
    )
    assert data["recovered_at"] == "2026-09-01T11:00:00+00:00"


def test_the_recovery_of_another_server_is_none_of_its_own(now: dt.datetime) -> None:
    need_check_after(now, (Event.RECOVERED, "need_check", HOUR))
    assert need_check_after(now) == {"boomerang": False}


def test_a_boomerang_by_the_ladder_is_told_too(now: dt.datetime) -> None:
    server = ServerFactory.create(failed_in_row=1, cooldown_times=4)
    ServerStatusHistory.objects.create(
        server=server, event=Event.RECOVERED, at=now - HOUR, data={"old": {"status": "need_check"}}
    )
    record_failed_send(server.pk, now=now, reason="message_failed", rng=Lowest())
    data = ServerStatusHistory.objects.get(server=server, event=Event.NEED_CHECK).data
    assert (data["path"], data["boomerang"]) == ("ladder", True)
