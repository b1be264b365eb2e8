"""One host whose secret no key opens any more keeps nobody else from working."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection

from otp_service.core.crypto import CryptoError
from servers.cooldown import check_cooldown_servers
from servers.deliverability_limits import record_failed_send
from servers.hosts import address_of
from servers.internal_sends import ask_about_silence
from servers.models import Host, InternalSend, Server
from servers.preheat import preheat_otp_sender_names
from servers.rules import Status
from tests.factories import HostFactory, InternalSendFactory, ServerFactory
from tests.servers.scripted_relay import ScriptedRelay

pytestmark = pytest.mark.django_db


@pytest.fixture
def broken() -> Host:
    host = HostFactory.create()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE servers_host SET secret = %s WHERE id = %s", [b"k9:no such key", host.pk])
    return Host.objects.get(pk=host.pk)


def test_its_address_is_one_that_nothing_can_be_signed_for(broken: Host, now: dt.datetime) -> None:
    assert address_of(broken, now=now).secrets == ()
    with pytest.raises(CryptoError):
        _ = broken.secret


def test_its_servers_come_out_of_cooldown_and_go_into_need_check(now: dt.datetime, broken: Host) -> None:
    cooling = ServerFactory.create(host=broken, in_cooldown=True)
    failing = ServerFactory.create(host=broken, failed_in_row=1, cooldown_times=4)
    assert check_cooldown_servers(now=now) == 1
    record_failed_send(failing.pk, now=now, reason="message_sent")
    assert not Server.objects.get(pk=cooling.pk).cooldown
    assert Server.objects.get(pk=failing.pk).status == Status.NEED_CHECK


def test_warm_ups_of_others_are_sent_to_its_servers_too(now: dt.datetime, broken: Host) -> None:
    ServerFactory.create(host=broken, wants_warm_up=True)
    sender = ServerFactory.create(wants_warm_up=True)
    ServerFactory.create_batch(2, host=broken)
    relay = ScriptedRelay()
    preheat_otp_sender_names(now=now, adapter=relay)
    assert sender.host.number in [number for number, _ in relay.sends]
    assert InternalSend.objects.filter(sender=sender, state="accepted").exists()


def test_others_are_asked_about_silence(now: dt.datetime, broken: Host) -> None:
    for host in (broken, HostFactory.create()):
        InternalSendFactory.create(sender=ServerFactory.create(host=host), check_at=now)
    assert ask_about_silence(now=now, adapter=ScriptedRelay()) == 2
