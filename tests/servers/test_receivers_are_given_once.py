"""In one run a receiver gets one internal message, also when there are more senders than receivers."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import transaction

from servers.history import lock_servers
from servers.hosts import online_hosts
from servers.internal_sends import begin
from servers.models import InternalSend, Server
from servers.preheat import preheat_otp_sender_names
from servers.receivers import pair
from servers.rules import InternalKind
from tests.draws import Lowest
from tests.factories import ServerFactory
from tests.racing import Racer
from tests.servers.scripted_relay import ScriptedRelay


@pytest.mark.django_db
@pytest.mark.parametrize("region", ["es", "pt"], ids=["of the senders' region", "of another region"])
def test_two_senders_do_not_get_the_one_receiver_that_there_is(now: dt.datetime, region: str) -> None:
    ServerFactory.create_batch(2, wants_warm_up=True)
    ServerFactory.create(region=region)
    assert preheat_otp_sender_names(now=now, adapter=ScriptedRelay()) == 1
    assert InternalSend.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_runs_at_once_do_not_choose_the_same_one(now: dt.datetime) -> None:
    ServerFactory.create_batch(2, wants_warm_up=True)
    ServerFactory.create()
    with transaction.atomic():
        hosts = online_hosts(now)
        (first, _) = Server.objects.filter(cooldown=True).order_by("id")
        lock_servers([first.pk])
        begin(InternalKind.WARM_UP, pair([first], hosts=hosts, now=now, rng=Lowest(1)), now=now, rng=Lowest(1))
        second = Racer(lambda: preheat_otp_sender_names(now=now, adapter=ScriptedRelay()))
        second.wait_until_blocked()
    assert second.result() == 0
    assert InternalSend.objects.count() == 1
