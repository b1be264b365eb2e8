"""A person's verdict and the machine's, at once."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import transaction

from servers.cooldown import check_cooldown_servers
from servers.deliverability_limits import record_failed_send
from servers.history import lock_servers
from servers.models import Server
from servers.recovery import Outcome, carry_out
from servers.recovery_rules import PersonVerdict
from servers.rules import Event, Status
from tests.factories import ServerFactory
from tests.racing import Racer

pytestmark = pytest.mark.django_db(transaction=True)


def decide(verdict: PersonVerdict, server: Server, now: dt.datetime, *, by: str = "ada") -> Outcome:
    return carry_out(verdict, [server.pk], now=now, by=by)


def events_of(server: Server) -> list[int]:
    return list(server.history.order_by("id").values_list("event", flat=True))


def fail(server: Server, now: dt.datetime) -> None:
    record_failed_send(server.pk, now=now, reason="message_sent", error_code=120)


def fail_twice(server: Server, now: dt.datetime) -> None:
    for _ in range(2):
        fail(server, now)


def test_a_verdict_that_comes_first_takes_the_failure_back_and_the_next_one_counts(now: dt.datetime) -> None:
    server = ServerFactory.create(failed_in_row=1)
    with transaction.atomic():
        decide(PersonVerdict.MARK_ACTIVE, server, now)
        failing = Racer(lambda: fail(server, now))
        failing.wait_until_blocked()
    failing.result()
    server.refresh_from_db()
    assert (server.cooldown, server.failed_in_row) == (False, 1)
    assert events_of(server) == [Event.MARKED_ACTIVE, Event.SEND_FAILED]


def test_a_verdict_that_comes_second_ends_the_cooldown_that_just_began(now: dt.datetime) -> None:
    server = ServerFactory.create(failed_in_row=1)
    with transaction.atomic():
        fail(server, now)
        deciding = Racer(lambda: decide(PersonVerdict.MARK_ACTIVE, server, now))
        deciding.wait_until_blocked()
    deciding.result()
    server.refresh_from_db()
    assert (server.cooldown, server.failed_in_row, server.cooldown_times) == (False, 0, 0)
    assert events_of(server) == [Event.SEND_FAILED, Event.COOLDOWN_STARTED, Event.MARKED_ACTIVE]


def test_a_recovery_that_waits_for_the_end_of_the_ladder_brings_the_server_back(now: dt.datetime) -> None:
    server = ServerFactory.create(cooldown_times=4)
    with transaction.atomic():
        fail(server, now)
        fail(server, now)
        deciding = Racer(lambda: decide(PersonVerdict.RECOVER, server, now))
        deciding.wait_until_blocked()
    deciding.result()
    server.refresh_from_db()
    assert (server.status, server.failed_in_row, server.cooldown_times) == (Status.ACTIVE, 0, 0)
    assert events_of(server) == [Event.SEND_FAILED, Event.SEND_FAILED, Event.NEED_CHECK, Event.RECOVERED]


def test_two_failures_that_wait_for_a_recovery_start_the_first_cooldown(now: dt.datetime) -> None:
    server = ServerFactory.create(status=Status.NEED_CHECK, failed_in_row=2, cooldown_times=4)
    with transaction.atomic():
        decide(PersonVerdict.RECOVER, server, now)
        failing = Racer(lambda: fail_twice(server, now))
        failing.wait_until_blocked()
    failing.result()
    server.refresh_from_db()
    assert (server.cooldown, server.failed_in_row, server.cooldown_times) == (True, 2, 1)
    assert events_of(server) == [Event.RECOVERED, Event.SEND_FAILED, Event.SEND_FAILED, Event.COOLDOWN_STARTED]


def test_of_two_recoveries_at_once_one_is_written(now: dt.datetime) -> None:
    server = ServerFactory.create(status=Status.NEED_CHECK)
    with transaction.atomic():
        decide(PersonVerdict.RECOVER, server, now)
        second = Racer(lambda: decide(PersonVerdict.RECOVER, server, now, by="bob"))
        second.wait_until_blocked()
    assert second.result().unchanged == (server.pk,)
    assert events_of(server) == [Event.RECOVERED]
    assert server.history.get().data["by"] == "ada"


def test_sets_that_overlap_do_not_wait_for_each_other_whatever_their_order(now: dt.datetime) -> None:
    first, held, last = (server.pk for server in ServerFactory.create_batch(3, status=Status.NEED_CHECK))
    with transaction.atomic():
        lock_servers([held])
        one = Racer(lambda: carry_out(PersonVerdict.RECOVER, [first, held, last], now=now, by="ada"))
        one.wait_until_blocked()
        other = Racer(lambda: carry_out(PersonVerdict.RECOVER, [last, held, first], now=now, by="bob"))
        other.wait_until_blocked()
    assert one.result().changed == (first, held, last)
    assert other.result().unchanged == (first, held, last)


def test_a_set_that_waits_for_a_failure_recovers_the_others_too(now: dt.datetime) -> None:
    climbing = ServerFactory.create(failed_in_row=1, cooldown_times=4)
    others = ServerFactory.create_batch(2, status=Status.NEED_CHECK)
    ids = [climbing.pk, *(server.pk for server in others)]
    with transaction.atomic():
        fail(climbing, now)
        deciding = Racer(lambda: carry_out(PersonVerdict.RECOVER, ids, now=now, by="ada"))
        deciding.wait_until_blocked()
    assert deciding.result().changed == tuple(sorted(ids))
    assert events_of(climbing) == [Event.SEND_FAILED, Event.NEED_CHECK, Event.RECOVERED]


def test_a_server_that_is_being_disabled_is_not_released_too(now: dt.datetime) -> None:
    server = ServerFactory.create(in_cooldown=True)
    with transaction.atomic():
        lock_servers([server.pk])
        disabling = Racer(lambda: decide(PersonVerdict.DISABLE, server, now))
        disabling.wait_until_blocked()
        assert Racer(lambda: check_cooldown_servers(now=now)).result() == 0
    disabling.result()
    assert check_cooldown_servers(now=now) == 0
    assert events_of(server) == [Event.DISABLED]
