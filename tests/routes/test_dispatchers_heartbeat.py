"""Dispatchers that live, by their heartbeats."""

from __future__ import annotations

import datetime as dt
from uuid import uuid4

import pytest

from otp_service.routes import dispatchers
from otp_service.routes.models import Dispatcher
from tests.factories import DispatcherFactory

pytestmark = pytest.mark.django_db

SECOND = dt.timedelta(seconds=1)


def test_the_first_heartbeat_makes_a_row_and_later_ones_keep_its_start(now: dt.datetime) -> None:
    mine = uuid4()
    assert dispatchers.seen(mine, name="a", now=now, stats={"floor": 1}) == 1
    assert dispatchers.seen(mine, name="b", now=now + SECOND, stats={"floor": 2}) == 1
    row = Dispatcher.objects.get()
    assert (row.id, row.name, row.started_at, row.last_seen_at) == (mine, "b", now, now + SECOND)
    assert row.stats == {"floor": 2}


@pytest.mark.parametrize(
    ("ago", "live"), [(dt.timedelta(), 2), (10 * SECOND, 2), (10 * SECOND + dt.timedelta(microseconds=1), 1)]
)
def test_those_that_were_seen_lately_live(now: dt.datetime, ago: dt.timedelta, live: int) -> None:
    DispatcherFactory.create(last_seen_at=now - ago)
    assert dispatchers.seen(uuid4(), name="mine", now=now, stats={}) == live


@pytest.mark.parametrize(("ago", "kept"), [(dt.timedelta(days=1), True), (dt.timedelta(days=1, microseconds=1), False)])
def test_those_that_were_not_seen_for_a_day_are_removed(now: dt.datetime, ago: dt.timedelta, kept: bool) -> None:
    other = DispatcherFactory.create(last_seen_at=now - ago)
    dispatchers.seen(uuid4(), name="mine", now=now, stats={})
    assert Dispatcher.objects.filter(pk=other.pk).exists() is kept


def test_one_that_stops_counts_no_longer(now: dt.datetime) -> None:
    mine, other = uuid4(), DispatcherFactory.create(last_seen_at=now)
    dispatchers.gone(other.pk)
    assert dispatchers.seen(mine, name="mine", now=now, stats={}) == 1


def test_a_name_that_is_too_long_is_cut(now: dt.datetime) -> None:
    dispatchers.seen(uuid4(), name="n" * 300, now=now, stats={})
    assert Dispatcher.objects.get().name == "n" * 100
