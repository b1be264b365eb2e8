"""Several connections that reserve at once: no server's slot is given twice."""

from __future__ import annotations

import datetime as dt
import random
import threading
from functools import partial

import pytest
from django.db import transaction

from servers import selection
from servers.deliverability_limits import start_cooldown
from servers.models import Server
from servers.selection import SendRequest
from tests.draws import Lowest
from tests.factories import RecipientLinkFactory, ServerFactory
from tests.racing import PATIENCE, Racer

pytestmark = pytest.mark.django_db(transaction=True)


def reserve(
    keys: range, now: dt.datetime, *, seed: int = 1, recipient_hash: bytes = b"r" * 32, pool: str = "es"
) -> list[int]:
    """The servers that so many messages got; committed when it returns, if nothing is open around it."""
    requests = [SendRequest(key, (pool,), recipient_hash, "+34600000000") for key in keys]
    with transaction.atomic():
        got = selection.reserve(requests, now=now, rng=random.Random(seed))
    return [reservation.server_id for reservation in got.values()]


def test_what_one_holds_another_passes_over_without_waiting(now: dt.datetime) -> None:
    ServerFactory.create_batch(selection.SPARE + 12)
    with transaction.atomic():
        mine = reserve(range(4), now)
        theirs = Racer(lambda: reserve(range(4), now)).result()
    assert len(mine) == len(theirs) == 4
    assert not set(mine) & set(theirs)


def test_the_last_server_goes_to_one_of_two(now: dt.datetime) -> None:
    server = ServerFactory.create()
    with transaction.atomic():
        mine = reserve(range(1), now)
        theirs = Racer(lambda: reserve(range(1), now)).result()
    assert (mine, theirs) == ([server.pk], [])
    assert reserve(range(1), now) == []


def test_a_sticky_server_that_somebody_holds_is_passed_over(now: dt.datetime) -> None:
    sticky = ServerFactory.create(next_send_date=now - dt.timedelta(seconds=1))
    other = ServerFactory.create(next_send_date=now - dt.timedelta(hours=1))
    link = RecipientLinkFactory.create(server=sticky)
    with transaction.atomic():
        Server.objects.select_for_update(no_key=True).get(pk=sticky.pk)
        theirs = Racer(lambda: reserve(range(1), now, recipient_hash=bytes(link.recipient_hash))).result()
    assert theirs == [other.pk]


def test_a_server_that_is_going_into_a_cooldown_is_not_reserved(now: dt.datetime) -> None:
    server = ServerFactory.create()
    with transaction.atomic():
        start_cooldown(server.pk, now=now, reason="failed in row", rng=Lowest())
        assert Racer(lambda: reserve(range(1), now)).result() == []
    assert reserve(range(1), now) == []


def test_a_reservation_that_is_rolled_back_frees_its_server(now: dt.datetime) -> None:
    server = ServerFactory.create()
    with transaction.atomic():
        assert reserve(range(1), now) == [server.pk]
        transaction.set_rollback(True)
    assert reserve(range(1), now) == [server.pk]


def test_many_at_once_give_no_server_twice_and_in_the_end_use_them_all(now: dt.datetime) -> None:
    servers = ServerFactory.create_batch(60)
    start = threading.Barrier(4)

    def work(seed: int) -> list[int]:
        start.wait(PATIENCE)
        return [server for _ in range(5) for server in reserve(range(3), now, seed=seed)]

    racers = [Racer(partial(work, seed)) for seed in range(4)]
    taken = [server for racer in racers for server in racer.result()]
    taken += reserve(range(60), now)
    assert sorted(taken) == sorted(server.pk for server in servers)
