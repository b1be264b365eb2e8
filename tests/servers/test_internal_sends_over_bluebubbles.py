"""Internal sends of a BlueBubbles server, over real HTTP: handed over, hinted at, and believed when its Mac says so."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_django.live_server_helper import LiveServer

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import ReportedState
from otp_service.simulation.bluebubbles_host import Quirks
from servers import internal_sends
from servers.hosts import webhook_path
from servers.models import Host, InternalSend, Server
from servers.rules import InternalKind
from tests.bluebubbles_thread import BlueBubblesThread
from tests.deadline import eventually
from tests.factories import HostFactory, ServerFactory
from tests.http import call

pytestmark = pytest.mark.django_db(transaction=True)

UNIT, PASSWORD = 4_000_228, "p&ss w=rd"
LATER = dt.timedelta(hours=1)
Play = Callable[[Quirks], BlueBubblesThread]


@pytest.fixture
def server(db: None) -> Server:
    host = HostFactory.create(number=UNIT, protocol="bluebubbles", secret=PASSWORD)
    return ServerFactory.create(host=host, unit=UNIT)


@pytest.fixture
def play(server: Server, live_server: LiveServer) -> Iterator[Play]:
    """Starts the server's Mac."""
    started: list[BlueBubblesThread] = []

    def start(quirks: Quirks) -> BlueBubblesThread:
        url = live_server.url + webhook_path(server.host)
        mac = BlueBubblesThread(number=UNIT, password=PASSWORD, webhook_url=url, quirks=quirks)
        started.append(mac.__enter__())
        Host.objects.filter(pk=server.host_id).update(base_url=mac.base_url)
        server.refresh_from_db()
        return mac

    yield start
    for mac in started:
        mac.__exit__(None, None, None)


def sent_by(server: Server, receiver: Server) -> InternalSend:
    """What came of the handing over of one."""
    now = utc_now()
    outgoing = internal_sends.begin(InternalKind.PREHEAT, [(server, receiver)], now=now, rng=random.Random(1))
    internal_sends.hand_over(outgoing, now=now, rng=random.Random(1))
    return InternalSend.objects.get(sender=server)


def fresh(send: InternalSend) -> InternalSend:
    return InternalSend.objects.get(pk=send.pk)


def asked(send: InternalSend, *, after: dt.timedelta) -> InternalSend:
    """What is known of it when the hosts were asked about everything that is due by then."""
    internal_sends.ask_about_silence(now=utc_now() + after)
    return fresh(send)


def test_a_delivery_is_hinted_at_and_then_asked_about(server: Server, play: Play) -> None:
    mac, receiver = play(Quirks(update_after=dt.timedelta(milliseconds=300))), ServerFactory.create()
    send = sent_by(server, receiver)
    assert (send.state, bool(send.guid)) == ("accepted", True)
    InternalSend.objects.update(check_at=utc_now() + LATER)
    mac.settle()
    eventually(lambda: (fresh(send).check_at or utc_now() + LATER) < utc_now() + LATER / 2)
    assert fresh(send).state == "accepted"  # nobody has asked yet
    assert asked(send, after=dt.timedelta(seconds=2)).state == "delivered"
    assert len(mac.sends(receiver.handle)) == 1


def test_one_without_a_clear_answer_is_found_on_the_mac_by_what_it_looks_like(server: Server, play: Play) -> None:
    mac, receiver = play(Quirks(answers_500_after_sending=True)), ServerFactory.create()
    send = sent_by(server, receiver)
    assert (send.state, send.guid) == ("unknown", "")
    mac.settle()
    found = asked(send, after=internal_sends.LEASE + dt.timedelta(seconds=1))
    assert (found.state, found.service, bool(found.guid)) == ("delivered", "imessage", True)


def test_one_that_has_left_is_asked_about_until_it_has_arrived(server: Server, play: Play) -> None:
    mac = play(Quirks())
    send = sent_by(server, ServerFactory.create())
    mac.settle()
    InternalSend.objects.update(check_at=utc_now())
    report = internal_sends.News(send.pk, ReportedState.SENT, "query", "imessage")
    internal_sends.take_news(report, now=utc_now())
    assert fresh(send).check_at is not None
    assert asked(send, after=dt.timedelta(seconds=1)).check_at is None


def test_a_forged_delivery_is_not_believed(server: Server, play: Play, live_server: LiveServer) -> None:
    mac = play(Quirks(signed_out=True))
    send = sent_by(server, ServerFactory.create())
    assert send.state == "unknown"
    forged: dict[str, Any] = {"type": "updated-message", "data": {"guid": "G", "tempGuid": str(send.uuid)}}
    forged["data"] |= {"isFromMe": True, "isDelivered": True, "error": 0}
    answer = call("POST", live_server.url + webhook_path(server.host), forged)
    assert answer.status == 200
    assert (asked(send, after=dt.timedelta(seconds=2)).state, fresh(send).guid) == ("unknown", "")
    mac.settle()


def test_the_same_text_of_another_send_is_not_taken_for_this_one(server: Server, play: Play, settings: Any) -> None:
    settings.WARMUP_TEXTS = ("Hi",)
    mac, receiver = play(Quirks()), ServerFactory.create()
    first = sent_by(server, receiver)
    mac.settle()
    lost = InternalSend.objects.create(
        kind=InternalKind.PREHEAT,
        sender=server,
        receiver=receiver,
        state="unknown",
        created_at=utc_now(),
        check_at=utc_now(),
    )
    assert asked(lost, after=dt.timedelta()).state == "unknown"
    assert (fresh(lost).guid, bool(fresh(first).guid)) == ("", True)
