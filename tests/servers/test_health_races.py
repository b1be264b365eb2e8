"""Two connections at one server at once."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection, transaction

from servers.cooldown import check_cooldown_servers
from servers.deliverability_limits import record_delivery, record_failed_send, start_cooldown
from servers.models import RecipientLink, Server, ServerDelivery, ServerStatusHistory
from servers.rules import Event, NoChange
from tests.draws import Lowest
from tests.factories import ServerFactory
from tests.racing import Racer

pytestmark = pytest.mark.django_db(transaction=True)
RECIPIENT = b"r" * 32


def rows(server: Server, event: Event) -> int:
    return ServerStatusHistory.objects.filter(server=server, event=event).count()


def fail(server_id: int, now: dt.datetime) -> None:
    record_failed_send(server_id, now=now, reason="message_failed", error_code=120, rng=Lowest())


def test_two_failures_at_once_start_one_cooldown(now: dt.datetime) -> None:
    server = ServerFactory.create()
    with transaction.atomic():
        fail(server.pk, now)
        other = Racer(lambda: fail(server.pk, now))
        other.wait_until_blocked()
    other.result()
    server.refresh_from_db()
    assert (server.failed_in_row, server.cooldown_times, server.cooldown) == (2, 1, True)
    assert rows(server, Event.SEND_FAILED) == 2
    assert rows(server, Event.COOLDOWN_STARTED) == 1


def test_two_failures_at_once_over_the_threshold_start_one_cooldown(now: dt.datetime) -> None:
    server = ServerFactory.create(failed_in_row=1)
    with transaction.atomic():
        fail(server.pk, now)
        other = Racer(lambda: fail(server.pk, now))
        other.wait_until_blocked()
    other.result()
    server.refresh_from_db()
    assert (server.failed_in_row, server.cooldown_times) == (3, 1)
    assert rows(server, Event.COOLDOWN_STARTED) == 1


def test_two_starts_at_once_start_one_cooldown(now: dt.datetime) -> None:
    server = ServerFactory.create()
    with transaction.atomic():
        start_cooldown(server.pk, now=now, reason="failure rate", rng=Lowest())
        other = Racer(lambda: start_cooldown(server.pk, now=now, reason="failure rate", rng=Lowest()))
        other.wait_until_blocked()
    assert other.result() == NoChange()
    server.refresh_from_db()
    assert server.cooldown_times == 1


def test_a_failure_that_is_being_recorded_keeps_the_sweep_from_the_server_and_loses_nothing(now: dt.datetime) -> None:
    held, free = ServerFactory.create(in_cooldown=True), ServerFactory.create(in_cooldown=True)
    with transaction.atomic():
        fail(held.pk, now)
        assert Racer(lambda: check_cooldown_servers(now=now)).result() == 1
    held.refresh_from_db()
    free.refresh_from_db()
    assert (held.cooldown, held.failed_in_row) == (True, 3)
    assert not free.cooldown
    assert check_cooldown_servers(now=now) == 1


def test_a_failure_that_waited_for_a_release_counts_as_the_first_after_it(now: dt.datetime) -> None:
    server = ServerFactory.create(in_cooldown=True)
    with transaction.atomic():
        check_cooldown_servers(now=now)
        other = Racer(lambda: fail(server.pk, now))
        other.wait_until_blocked()
    other.result()
    server.refresh_from_db()
    assert (server.failed_in_row, server.cooldown) == (1, False)


def test_two_sweeps_at_once_release_each_server_once(now: dt.datetime) -> None:
    servers = ServerFactory.create_batch(5, in_cooldown=True)
    with transaction.atomic():
        mine = check_cooldown_servers(now=now, batch=3)
        assert mine == 5
        assert Racer(lambda: check_cooldown_servers(now=now, batch=3)).result() == 0
    assert [rows(server, Event.COOLDOWN_FINISHED) for server in servers] == [1] * 5


def test_deliveries_of_two_servers_to_one_recipient_do_not_wait_for_each_other(now: dt.datetime) -> None:
    first, second = ServerFactory.create_batch(2)
    with transaction.atomic():
        record_delivery(first.pk, now=now, recipient_hash=RECIPIENT)
        Racer(lambda: record_delivery(second.pk, now=now, recipient_hash=RECIPIENT)).result()
    assert RecipientLink.objects.get().server_id == first.pk
    assert ServerDelivery.objects.count() == 2


def test_a_row_that_refers_to_a_locked_server_can_be_inserted(now: dt.datetime) -> None:
    server = ServerFactory.create()

    def refer() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '5s'")
        ServerDelivery.objects.create(server_id=server.pk, at=now)

    with transaction.atomic():
        fail(server.pk, now)
        Racer(refer).result()
    assert ServerDelivery.objects.count() == 1
