"""What hosts report of internal sends, in any order."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pytest

from otp_service.core.outcomes import ReportedState
from servers.internal_sends import News, arrived, of_host, take_news
from servers.models import InternalSend, Server, ServerStatusHistory
from servers.rules import Event, Status
from tests.factories import InternalSendFactory, ServerFactory

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)


@pytest.fixture
def server(now: dt.datetime) -> Server:
    """In cooldown, its warm-up sent five minutes before noon."""
    return ServerFactory.create(wants_warm_up=True, cooldown_warmup_sent_date=now - 5 * MINUTE)


@pytest.fixture
def send(now: dt.datetime, server: Server) -> InternalSend:
    return InternalSendFactory.create(sender=server, created_at=now - 5 * MINUTE, check_at=now + MINUTE)


def take(send: InternalSend, now: dt.datetime, state: ReportedState, **fields: Any) -> bool:
    return take_news(News(send.pk, state, **{"via": "message_sent", **fields}), now=now)


def is_confirmed(server: Server) -> bool:
    return Server.objects.get(pk=server.pk).cooldown_warmup_delivered


@pytest.mark.parametrize(
    ("state", "service"),
    [
        (ReportedState.SENT, "sms"),
        (ReportedState.DELIVERED, "sms"),
        (ReportedState.SENT, ""),
        (ReportedState.SENT, "carrier pigeon"),
        (ReportedState.FAILED, "imessage"),
        (ReportedState.QUEUED, "imessage"),
        (ReportedState.NEVER, "imessage"),
        (ReportedState.UNKNOWN, "imessage"),
    ],
)
def test_what_did_not_go_out_as_imessage_proves_nothing(
    now: dt.datetime, server: Server, send: InternalSend, state: ReportedState, service: str
) -> None:
    take(send, now, state, service=service)
    assert not is_confirmed(server)
    assert not ServerStatusHistory.objects.filter(event=Event.WARMUP_CONFIRMED).exists()


@pytest.mark.parametrize("state", [ReportedState.SENT, ReportedState.DELIVERED])
def test_what_went_out_as_imessage_proves_life(
    now: dt.datetime, server: Server, send: InternalSend, state: ReportedState
) -> None:
    take(send, now, state, service="imessage")
    assert is_confirmed(server)
    assert ServerStatusHistory.objects.filter(event=Event.WARMUP_CONFIRMED).count() == 1


def test_an_sms_of_a_warm_up_is_no_reason_for_need_check(now: dt.datetime, server: Server, send: InternalSend) -> None:
    take(send, now, ReportedState.SENT, service="sms")
    server.refresh_from_db()
    assert (server.status, server.cooldown) == (Status.ACTIVE, True)


def test_the_same_news_twice_changes_nothing(now: dt.datetime, server: Server, send: InternalSend) -> None:
    assert take(send, now, ReportedState.SENT, service="imessage")
    assert not take(send, now, ReportedState.SENT, service="imessage")
    assert ServerStatusHistory.objects.count() == 1


_ANY_ORDER = [
    {"state": ReportedState.SENT, "service": "imessage", "guid": "guid-1"},
    {"state": ReportedState.DELIVERED, "via": "delivered"},
    {"state": ReportedState.QUEUED, "via": "query"},
]


@pytest.mark.parametrize("order", list(itertools.permutations(_ANY_ORDER)))
def test_where_a_send_ends_does_not_depend_on_the_order(
    now: dt.datetime, server: Server, send: InternalSend, order: list[dict[str, Any]]
) -> None:
    for fields in order:
        take(send, now, **fields)
    send.refresh_from_db()
    assert (send.state, send.service, send.guid, send.check_at) == ("delivered", "imessage", "guid-1", None)
    assert (send.sent_at, send.finished_at) == (now, now)
    assert is_confirmed(server)
    assert ServerStatusHistory.objects.count() == 1


def test_a_delivery_after_a_failure_stands(now: dt.datetime, server: Server, send: InternalSend) -> None:
    take(send, now, ReportedState.FAILED, error_code=120)
    send.refresh_from_db()
    assert (send.state, send.error_code, send.finished_at) == ("failed", 120, now)
    take(send, now, ReportedState.DELIVERED, service="imessage")
    take(send, now, ReportedState.FAILED, error_code=120)
    send.refresh_from_db()
    assert (send.state, send.error_code) == ("delivered", None)
    assert is_confirmed(server)


def test_a_failed_internal_send_counts_against_nobody(now: dt.datetime, server: Server, send: InternalSend) -> None:
    take(send, now, ReportedState.FAILED, error_code=120)
    server.refresh_from_db()
    assert server.failed_in_row == 2
    assert not ServerStatusHistory.objects.exists()


def test_a_warm_up_whose_acceptance_was_never_heard_counts_as_sent_when_it_is_reported(now: dt.datetime) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    send = InternalSendFactory.create(sender=server, state="unknown", created_at=now - 5 * MINUTE)
    take(send, now, ReportedState.FAILED, error_code=120)
    server.refresh_from_db()
    assert server.cooldown_warmup_sent_date == now - 5 * MINUTE
    assert ServerStatusHistory.objects.get().event == Event.WARMUP_SENT


def test_news_of_an_earlier_round_sends_nothing_in_this_one(now: dt.datetime) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    old = InternalSendFactory.create(sender=server, state="unknown", created_at=now - 31 * MINUTE)
    take(old, now, ReportedState.FAILED, error_code=120)
    server.refresh_from_db()
    assert server.cooldown_warmup_sent_date is None


def test_a_host_names_its_own_sends_only(send: InternalSend) -> None:
    InternalSend.objects.update(guid="guid-1")
    assert of_host(send.sender.host_id, [send.uuid], ["guid-1"]) == ({send.uuid: send.pk}, {"guid-1": send.pk})
    assert of_host(send.receiver.host_id, [send.uuid], ["guid-1"]) == ({}, {})


def test_what_comes_in_is_the_newest_of_the_two_that_left(now: dt.datetime, send: InternalSend) -> None:
    pair = {"sender": send.sender, "receiver": send.receiver}
    newer = InternalSendFactory.create(**pair, created_at=now - MINUTE, state="delivered", finished_at=now)
    InternalSendFactory.create(**pair, created_at=now, state="not_submitted", finished_at=now)
    InternalSendFactory.create(sender=send.sender, created_at=now)
    assert arrived(send.sender_id, send.receiver_id, now=now) == newer.pk
    assert arrived(send.receiver_id, send.sender_id, now=now) is None


@pytest.mark.parametrize(("minutes", "found"), [(180, True), (181, False)])
def test_what_comes_in_is_nothing_that_left_hours_ago(now: dt.datetime, minutes: int, found: bool) -> None:
    old = InternalSendFactory.create(created_at=now - minutes * MINUTE)
    assert (arrived(old.sender_id, old.receiver_id, now=now) == old.pk) is found


def test_one_that_is_only_accepted_is_still_asked_about(now: dt.datetime, server: Server, send: InternalSend) -> None:
    InternalSend.objects.update(state="unknown", check_at=None)
    take(send, now, ReportedState.QUEUED, guid="guid-1")
    send.refresh_from_db()
    assert (send.state, send.check_at) == ("accepted", now + 2 * MINUTE)


def test_a_late_success_that_moves_nothing_keeps_the_error(
    now: dt.datetime, server: Server, send: InternalSend
) -> None:
    take(send, now, ReportedState.FAILED, error_code=120)
    take(send, now, ReportedState.SENT, service="imessage")
    send.refresh_from_db()
    assert (send.state, send.error_code, send.service) == ("failed", 120, "imessage")
