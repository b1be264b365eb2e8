"""Two of everything at once: one warm-up, one confirmation, one verdict."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import transaction

from otp_service.core.outcomes import ReportedState
from servers import internal_sends
from servers.cooldown import check_cooldown_servers, confirm_cooldown_warmup_delivery
from servers.deliverability_limits import record_failed_send
from servers.history import lock_servers
from servers.internal_sends import News
from servers.models import InternalSend, Server, ServerStatusHistory
from servers.preheat import preheat_otp_sender_names
from servers.rules import Event
from tests.factories import InternalSendFactory, ServerFactory
from tests.racing import Racer
from tests.servers.scripted_relay import ACCEPTED, NOT_CONNECTED, ScriptedRelay

pytestmark = pytest.mark.django_db(transaction=True)
MINUTE = dt.timedelta(minutes=1)


def events_of(server: Server) -> list[int]:
    return list(server.history.order_by("id").values_list("event", flat=True))


def test_a_second_run_in_the_middle_of_the_first_ones_call_sends_nothing(now: dt.datetime) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    ServerFactory.create_batch(3)
    second = ScriptedRelay()

    def run_beside() -> None:
        Racer(lambda: preheat_otp_sender_names(now=now, adapter=second)).result()

    first = ScriptedRelay(while_calling=run_beside)
    assert preheat_otp_sender_names(now=now, adapter=first) == 1
    assert (len(first.sends), len(second.sends)) == (1, 0)
    assert events_of(server) == [Event.WARMUP_SENT]


def test_two_runs_that_claim_at_once_send_one(now: dt.datetime) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    ServerFactory.create_batch(3)
    relays = [ScriptedRelay(), ScriptedRelay()]
    racers = [Racer(lambda relay=relay: preheat_otp_sender_names(now=now, adapter=relay)) for relay in relays]  # type: ignore[misc]  # a default binds the loop's value
    assert sum(racer.result() for racer in racers) == 1
    assert sum(len(relay.sends) for relay in relays) == 1
    assert InternalSend.objects.count() == 1
    assert events_of(server) == [Event.WARMUP_SENT]


def test_a_run_passes_over_a_server_that_somebody_holds(now: dt.datetime) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    ServerFactory.create()
    relay = ScriptedRelay()
    with transaction.atomic():
        lock_servers([server.pk])
        assert Racer(lambda: preheat_otp_sender_names(now=now, adapter=relay)).result() == 0
    assert relay.sends == []


def test_a_report_that_is_faster_than_our_own_settling_is_told_in_order(now: dt.datetime) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    ServerFactory.create()

    def report() -> None:
        news = News(InternalSend.objects.get().pk, ReportedState.SENT, "message_sent", "imessage", "guid-1")
        Racer(lambda: internal_sends.take_news(news, now=now)).result()

    relay = ScriptedRelay(ACCEPTED, while_calling=lambda: Racer(report).result())
    preheat_otp_sender_names(now=now, adapter=relay)
    assert events_of(server) == [Event.WARMUP_SENT, Event.WARMUP_CONFIRMED]
    assert InternalSend.objects.get().state == "sent"


def test_a_report_stands_where_our_call_seemed_to_fail(now: dt.datetime) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    ServerFactory.create()

    def report() -> None:
        news = News(InternalSend.objects.get().pk, ReportedState.SENT, "message_sent", "imessage")
        Racer(lambda: internal_sends.take_news(news, now=now)).result()

    preheat_otp_sender_names(
        now=now, adapter=ScriptedRelay(NOT_CONNECTED, while_calling=lambda: Racer(report).result())
    )
    assert InternalSend.objects.get().state == "sent"
    assert events_of(server) == [Event.WARMUP_SENT, Event.WARMUP_CONFIRMED]


def test_two_confirmations_at_once_are_one(now: dt.datetime) -> None:
    server = ServerFactory.create(wants_warm_up=True, cooldown_warmup_sent_date=now)
    with transaction.atomic():
        lock_servers([server.pk])
        second = Racer(lambda: confirm_cooldown_warmup_delivery(server.pk, now=now, via="inbound"))
        second.wait_until_blocked()
        assert confirm_cooldown_warmup_delivery(server.pk, now=now, via="message_sent")
    assert second.result() is False
    assert events_of(server) == [Event.WARMUP_CONFIRMED]


def test_a_confirmation_and_a_verdict_at_once_leave_a_server_that_is_out_or_proved(now: dt.datetime) -> None:
    server = ServerFactory.create(
        wants_warm_up=True, cooldown_warmup_sent_date=now - 10 * MINUTE, cooldown_end_date=now
    )
    InternalSendFactory.create(sender=server, created_at=now - 10 * MINUTE)
    with transaction.atomic():
        lock_servers([server.pk])
        confirming = Racer(lambda: confirm_cooldown_warmup_delivery(server.pk, now=now, via="inbound"))
        confirming.wait_until_blocked()
        assert check_cooldown_servers(now=now) == 1
    assert confirming.result() is True  # the send of the first round proves the second
    assert events_of(server) == [Event.COOLDOWN_EXTENDED, Event.WARMUP_CONFIRMED]


def test_a_failure_and_a_release_at_once_have_one_effect_each(now: dt.datetime) -> None:
    server = ServerFactory.create(in_cooldown=True)
    with transaction.atomic():
        lock_servers([server.pk])
        failing = Racer(lambda: record_failed_send(server.pk, now=now, reason="message_sent", error_code=120))
        failing.wait_until_blocked()
        assert check_cooldown_servers(now=now) == 1
    failing.result()
    server.refresh_from_db()
    assert (server.cooldown, server.failed_in_row, server.cooldown_times) == (False, 1, 1)
    assert events_of(server) == [Event.COOLDOWN_FINISHED, Event.SEND_FAILED]


def test_a_run_that_died_in_the_middle_is_found_and_the_warm_up_is_sent_again(now: dt.datetime) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    ServerFactory.create_batch(2)
    InternalSendFactory.create(sender=server, state="submitting", created_at=now - 2 * MINUTE, check_at=now - MINUTE)
    assert preheat_otp_sender_names(now=now, adapter=ScriptedRelay()) == 0
    asked = ScriptedRelay()
    assert internal_sends.ask_about_silence(now=now, adapter=asked) == 1
    assert len(asked.withdrawn) == 1
    assert preheat_otp_sender_names(now=now, adapter=ScriptedRelay()) == 1
    assert ServerStatusHistory.objects.filter(event=Event.WARMUP_SENT).count() == 1
