"""A server that stays signed out is lost."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from django.db import connection, transaction

from servers.history import lock_servers
from servers.host_watch import lose_signed_out, signed_out_for_long
from servers.hosts import set_signed_in
from servers.models import Server, ServerStatusHistory
from servers.recovery import carry_out
from servers.recovery_rules import PersonVerdict
from servers.rules import Event, Status
from tests.factories import HostFactory, ServerFactory
from tests.racing import Racer

pytestmark = pytest.mark.django_db
DAY, SECOND = dt.timedelta(days=1), dt.timedelta(seconds=1)


def signed_out(since: dt.datetime, **fields: Any) -> Server:
    return ServerFactory.create(signed_in=False, signed_out_at=since, **fields)


@pytest.mark.parametrize(("ago", "is_lost"), [(DAY - SECOND, False), (DAY, True)])
def test_a_day_is_too_long(now: dt.datetime, ago: dt.timedelta, is_lost: bool) -> None:
    server = signed_out(now - ago, in_cooldown=True)
    assert lose_signed_out(now=now) == int(is_lost)
    server.refresh_from_db()
    assert (server.status, server.cooldown) == ((Status.LOST, False) if is_lost else (Status.ACTIVE, True))
    assert [row.event for row in server.history.all()] == ([Event.LOST] if is_lost else [])


def test_what_it_loses_and_what_history_says(now: dt.datetime) -> None:
    server = signed_out(now - DAY, in_cooldown=True, preheating=True, preheat_started_at=now - 9 * DAY)
    lose_signed_out(now=now)
    server.refresh_from_db()
    assert (server.cooldown_end_date, server.preheating, server.failed_in_row) == (None, False, 2)
    data = server.history.get().data
    assert (data["signed_out_at"], data["limit_s"]) == ((now - DAY).isoformat(), 86_400)
    assert (data["old"]["status"], data["new"]["status"]) == ("active", "lost")


@pytest.mark.parametrize("verdict", [PersonVerdict.MARK_ACTIVE, PersonVerdict.START_PREHEAT])
def test_one_that_a_person_put_back_gets_the_whole_time_again(now: dt.datetime, verdict: PersonVerdict) -> None:
    server = signed_out(now - DAY)
    assert lose_signed_out(now=now) == 1
    carry_out(verdict, [server.pk], now=now, by="ada")
    assert lose_signed_out(now=now + DAY - SECOND) == 0
    assert lose_signed_out(now=now + DAY) == 1
    assert server.history.filter(event=Event.LOST).count() == 2


def test_signing_in_in_time_starts_it_anew(now: dt.datetime) -> None:
    server = signed_out(now - DAY)
    set_signed_in(server.host_id, server.unit, signed_in=True, now=now)
    set_signed_in(server.host_id, server.unit, signed_in=False, now=now)
    assert lose_signed_out(now=now) == 0
    server.refresh_from_db()
    assert server.signed_out_at == now


@pytest.mark.parametrize(
    ("status", "is_lost"),
    [
        (Status.ACTIVE, True),
        (Status.NEW, True),
        (Status.NEED_CHECK, False),
        (Status.DISABLED, False),
        (Status.DELETED, False),
        (Status.LOST, False),
    ],
)
def test_what_is_out_of_rotation_stays_as_it_is(now: dt.datetime, status: Status, is_lost: bool) -> None:
    server = signed_out(now - DAY, status=status)
    assert lose_signed_out(now=now) == int(is_lost)
    server.refresh_from_db()
    assert server.status == (Status.LOST if is_lost else status)


def test_one_of_which_the_time_is_not_known_gets_its_day(now: dt.datetime) -> None:
    server = ServerFactory.create(signed_in=False)
    assert lose_signed_out(now=now) == 0
    assert not server.history.exists()
    assert lose_signed_out(now=now + DAY - SECOND) == 0
    assert lose_signed_out(now=now + DAY) == 1
    server.refresh_from_db()
    assert server.status == Status.LOST


def test_however_many_they_are_each_is_lost_once_the_longest_first(now: dt.datetime) -> None:
    servers = [signed_out(now - DAY - ago * SECOND) for ago in (3, 1, 7, 5, 2, 6, 4)]
    assert lose_signed_out(now=now, batch=3) == 7
    assert lose_signed_out(now=now, batch=3) == 0
    by_time = sorted(servers, key=lambda server: server.signed_out_at or now)
    lost = ServerStatusHistory.objects.order_by("id").values_list("server_id", flat=True)
    assert list(lost) == [server.pk for server in by_time]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("known", [True, False])
def test_one_that_somebody_holds_is_left_for_the_next_run(now: dt.datetime, known: bool) -> None:
    since = now - DAY if known else None
    held, free = ServerFactory.create_batch(2, signed_in=False, signed_out_at=since)
    with transaction.atomic():
        lock_servers([held.pk])
        assert Racer(lambda: lose_signed_out(now=now)).result() == int(known)
    held.refresh_from_db()
    free.refresh_from_db()
    assert (held.status, held.signed_out_at) == (Status.ACTIVE, since)
    assert (free.status, free.signed_out_at) == ((Status.LOST, since) if known else (Status.ACTIVE, now))


@pytest.mark.django_db(transaction=True)
def test_one_that_signs_in_at_that_moment_is_not_lost(now: dt.datetime) -> None:
    server = signed_out(now - DAY)
    with transaction.atomic():
        set_signed_in(server.host_id, server.unit, signed_in=True, now=now)
        assert Racer(lambda: lose_signed_out(now=now)).result() == 0
    assert lose_signed_out(now=now) == 0


def test_they_are_read_from_their_index_however_large_the_fleet(now: dt.datetime) -> None:
    host = HostFactory.create()
    Server.objects.bulk_create(ServerFactory.build_batch(2_000, host=host))
    signed_out(now - DAY)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE servers_server")
    plan = signed_out_for_long(now)[:200].explain()
    assert "server_signed_out" in plan
    assert not re.search(r"Seq Scan on servers_server\b", plan)  # of the history it may be one: it is empty here
