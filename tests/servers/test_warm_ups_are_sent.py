"""The run that sends the warm-ups of cooldowns that end soon."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from otp_service.core.outcomes import SubmitResult
from servers.models import Host, InternalSend, Server, ServerStatusHistory
from servers.preheat import preheat_otp_sender_names
from servers.rules import Event, Status
from tests.factories import HostFactory, InternalSendFactory, ServerFactory
from tests.servers.scripted_relay import (
    ACCEPTED,
    BAD_NUMBER,
    NOT_CONNECTED,
    SIGNED_OUT,
    THROTTLED,
    UNKNOWN,
    ScriptedRelay,
)

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)


@pytest.fixture
def receiver() -> Server:
    return ServerFactory.create()


def run(now: dt.datetime, relay: ScriptedRelay | None = None) -> ScriptedRelay:
    relay = relay or ScriptedRelay()
    preheat_otp_sender_names(now=now, adapter=relay)
    return relay


def run_later(at: dt.datetime) -> ScriptedRelay:
    """A later run, with every host heard of meanwhile."""
    Host.objects.update(last_seen_at=at)
    return run(at)


def test_a_warm_up_goes_from_the_server_to_another_one_and_is_written_down(
    now: dt.datetime, receiver: Server, settings: Any
) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    relay = run(now)
    send = InternalSend.objects.get()
    ((host, submitted),) = relay.sends
    assert (host, submitted.unit, submitted.to) == (server.host.number, server.unit, receiver.handle)
    assert submitted.attempt_uuid == send.uuid
    assert submitted.text in settings.WARMUP_TEXTS
    assert (send.kind, send.sender, send.receiver, send.state) == ("warm_up", server, receiver, "accepted")
    server.refresh_from_db()
    assert (server.cooldown_warmup_uuid, server.cooldown_warmup_sent_date) == (send.uuid, now)
    assert (server.cooldown, server.cooldown_warmup_delivered) == (True, False)
    row = ServerStatusHistory.objects.get()
    assert (row.server, row.event, row.at, row.note) == (server, Event.WARMUP_SENT, now, "sent")
    assert row.data["new"] == {"cooldown_warmup_uuid": str(send.uuid), "cooldown_warmup_sent_date": now.isoformat()}
    assert receiver.handle not in str(row.data)


def test_one_warm_up_is_sent_in_a_round(now: dt.datetime, receiver: Server) -> None:
    ServerFactory.create(wants_warm_up=True)
    run(now)
    assert run_later(now + 5 * MINUTE).sends == []


def test_an_extension_is_a_new_round(now: dt.datetime, receiver: Server) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    run(now)
    Server.objects.filter(pk=server.pk).update(
        cooldown_extensions=1,
        cooldown_warmup_at=now + 10 * MINUTE,
        cooldown_end_date=now + 60 * MINUTE,
        cooldown_warmup_uuid=None,
        cooldown_warmup_sent_date=None,
    )
    assert len(run_later(now + 10 * MINUTE).sends) == 1


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"cooldown_warmup_at": dt.timedelta(seconds=1)}, id="before its slot"),
        pytest.param({"cooldown_warmup_at": None}, id="no slot"),
        pytest.param({"cooldown_end_date": dt.timedelta(0)}, id="at the end: the verdict's turn"),
        pytest.param({"cooldown_end_date": dt.timedelta(minutes=75, seconds=1)}, id="too early"),
        pytest.param({"cooldown_warmup_sent_date": dt.timedelta(minutes=-5)}, id="sent"),
        pytest.param({"cooldown_warmup_delivered": True}, id="proved otherwise"),
        pytest.param({"signed_in": False}, id="signed out"),
        pytest.param({"status": Status.DISABLED}, id="disabled"),
        pytest.param({"status": Status.LOST}, id="lost"),
    ],
)
def test_nothing_is_sent_where_no_warm_up_is_wanted(now: dt.datetime, receiver: Server, fields: dict[str, Any]) -> None:
    values = {name: now + value if isinstance(value, dt.timedelta) else value for name, value in fields.items()}
    ServerFactory.create(wants_warm_up=True, **values)
    assert run(now).sends == []
    assert not ServerStatusHistory.objects.exists()


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"last_seen_at": dt.timedelta(seconds=-91)}, id="its host is offline"),
        pytest.param({"enabled": False}, id="its host is disabled"),
    ],
)
def test_a_server_whose_host_is_away_is_left_for_later(
    now: dt.datetime, receiver: Server, fields: dict[str, Any]
) -> None:
    values = {name: now + value if isinstance(value, dt.timedelta) else value for name, value in fields.items()}
    ServerFactory.create(wants_warm_up=True, host=HostFactory.create(**values))
    assert run(now).sends == []
    assert not InternalSend.objects.exists()


def test_without_a_receiver_nothing_is_sent_and_nothing_counts(now: dt.datetime) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    assert run(now).sends == []
    server.refresh_from_db()
    assert server.cooldown_warmup_sent_date is None


def test_servers_get_receivers_of_their_own(now: dt.datetime) -> None:
    ServerFactory.create_batch(3, wants_warm_up=True)
    ServerFactory.create_batch(3)
    run(now)
    assert len(set(InternalSend.objects.values_list("receiver", flat=True))) == 3


@pytest.mark.parametrize(
    ("result", "counts", "state"),
    [
        pytest.param(ACCEPTED, True, "accepted", id="accepted"),
        pytest.param(SIGNED_OUT, True, "not_submitted", id="refused for the server's sake"),
        pytest.param(THROTTLED, False, "not_submitted", id="throttled"),
        pytest.param(BAD_NUMBER, False, "not_submitted", id="the receiver's number is no good"),
        pytest.param(NOT_CONNECTED, False, "not_submitted", id="nobody answers"),
        pytest.param(UNKNOWN, False, "unknown", id="no clear answer"),
        pytest.param(RuntimeError("ours"), False, "unknown", id="a fault of ours"),
    ],
)
def test_what_the_host_answers_decides_whether_it_counts_as_sent(
    now: dt.datetime, receiver: Server, result: SubmitResult | Exception, counts: bool, state: str
) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    run(now, ScriptedRelay(result))
    server.refresh_from_db()
    assert (server.cooldown_warmup_sent_date == now) is counts
    assert InternalSend.objects.get().state == state
    assert ServerStatusHistory.objects.filter(event=Event.WARMUP_SENT).count() == int(counts)


def test_a_refusal_for_the_servers_sake_says_so(now: dt.datetime, receiver: Server) -> None:
    ServerFactory.create(wants_warm_up=True)
    run(now, ScriptedRelay(SIGNED_OUT))
    row = ServerStatusHistory.objects.get()
    assert (row.note, row.data["refused"], row.data["error_code"]) == ("refused by the host (130)", True, 130)


@pytest.mark.parametrize("result", [THROTTLED, BAD_NUMBER, NOT_CONNECTED])
def test_one_that_was_not_taken_is_tried_again_at_the_next_run(
    now: dt.datetime, receiver: Server, result: SubmitResult
) -> None:
    ServerFactory.create(wants_warm_up=True)
    run(now, ScriptedRelay(result))
    assert len(run_later(now + 5 * MINUTE).sends) == 1


def test_one_that_may_have_left_is_not_sent_a_second_time(now: dt.datetime, receiver: Server) -> None:
    ServerFactory.create(wants_warm_up=True)
    run(now, ScriptedRelay(UNKNOWN))
    assert run_later(now + 5 * MINUTE).sends == []


def test_a_warm_up_of_an_earlier_cooldown_keeps_none_back(now: dt.datetime, receiver: Server) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    InternalSendFactory.create(sender=server, state="unknown", created_at=now - 31 * MINUTE)
    assert len(run(now).sends) == 1


def test_a_fleet_takes_the_same_queries_for_each_server_however_large(
    now: dt.datetime, django_assert_max_num_queries: Any
) -> None:
    ServerFactory.create_batch(20, wants_warm_up=True)
    ServerFactory.create_batch(20)
    with django_assert_max_num_queries(20 + 20 * 9):
        run(now)
    assert InternalSend.objects.count() == 20


def test_texts_and_addresses_are_not_shown(now: dt.datetime, receiver: Server) -> None:
    ServerFactory.create(wants_warm_up=True)
    ((_, submitted),) = run(now).sends
    assert submitted.text not in repr(submitted)
    assert receiver.handle not in repr(submitted)
