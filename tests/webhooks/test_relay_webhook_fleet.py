"""What hosts post about messages between our own servers."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from servers.models import ChatPreheat, InternalSend, Server, ServerStatusHistory
from servers.rules import Event, Status
from tests.factories import ChatPreheatFactory, InternalSendFactory, ServerFactory
from tests.routes.steps import attempt_of
from tests.webhooks.relay_poster import RelayPoster, about, event

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)
UNIT = 900_031  # far from the units that factories make


@pytest.fixture
def receiver_host(poster: RelayPoster) -> RelayPoster:
    """Another host of ours, on which warm-ups come in."""
    return RelayPoster(ServerFactory.create(unit=UNIT).host, poster.client)


@pytest.fixture
def send(now: dt.datetime, poster: RelayPoster, receiver_host: RelayPoster) -> InternalSend:
    """A warm-up that left the poster's host a minute ago, for a unit of the receiver's."""
    sender = ServerFactory.create(
        wants_warm_up=True, host=poster.host, unit=228, cooldown_warmup_sent_date=now - MINUTE
    )
    receiver = Server.objects.get(host=receiver_host.host)
    return InternalSendFactory.create(sender=sender, receiver=receiver, created_at=now - MINUTE)


def comes_in(send: InternalSend, *, unit: int = UNIT, **fields: Any) -> dict[str, Any]:
    data = {"from": send.sender.handle, "to": send.receiver.handle, "text": "Hello!", "service": "imessage", **fields}
    return event("inbound", unit=unit, **data)


def confirmations() -> list[str]:
    return list(ServerStatusHistory.objects.filter(event=Event.WARMUP_CONFIRMED).values_list("data__via", flat=True))


@pytest.mark.parametrize("by_guid", [False, True], ids=["by our id", "by its own id"])
def test_a_success_of_an_internal_send_proves_life(poster: RelayPoster, send: InternalSend, by_guid: bool) -> None:
    InternalSend.objects.update(guid="guid-1")
    name: dict[str, Any] = {"guid": "guid-1"} if by_guid else {"attempt_id": str(send.uuid)}
    posted = event("message_sent", **name, success=True, service="imessage")
    for _ in range(2):
        assert poster.posts(posted).status == 200
    send.sender.refresh_from_db()
    assert send.sender.cooldown_warmup_delivered
    assert confirmations() == ["message_sent"]


@pytest.mark.parametrize(
    "posted",
    [
        {"success": True, "service": "sms"},
        {"success": True},
        {"success": False, "service": "imessage", "error_code": 120},
    ],
)
def test_what_did_not_leave_as_imessage_proves_nothing(
    poster: RelayPoster, send: InternalSend, posted: dict[str, Any]
) -> None:
    assert poster.posts(event("message_sent", attempt_id=str(send.uuid), **posted)).counts == (1, 0)
    assert confirmations() == []
    send.sender.refresh_from_db()
    assert send.sender.failed_in_row == 2


def test_what_comes_in_from_the_servers_address_proves_life(receiver_host: RelayPoster, send: InternalSend) -> None:
    assert receiver_host.posts(comes_in(send)).counts == (1, 0)
    assert confirmations() == ["inbound"]
    send.refresh_from_db()
    assert (send.state, send.service) == ("delivered", "imessage")


def test_what_comes_in_without_a_known_send_proves_life_too(receiver_host: RelayPoster, send: InternalSend) -> None:
    InternalSend.objects.all().delete()
    receiver_host.posts(comes_in(send))
    assert confirmations() == ["inbound"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"service": "sms"}, id="by sms"),
        pytest.param({"from": "+34600999999"}, id="from a person"),
        pytest.param({"unit": 99}, id="at a unit that is not ours"),
    ],
)
def test_what_else_comes_in_proves_nothing(
    receiver_host: RelayPoster, send: InternalSend, change: dict[str, Any]
) -> None:
    assert receiver_host.posts(comes_in(send, **change)).counts == (1, 0)
    assert confirmations() == []


def test_what_comes_in_when_nothing_was_sent_proves_nothing(receiver_host: RelayPoster, send: InternalSend) -> None:
    InternalSend.objects.all().delete()
    Server.objects.filter(pk=send.sender_id).update(cooldown_warmup_sent_date=None)
    receiver_host.posts(comes_in(send))
    assert confirmations() == []


def test_an_event_with_both_ids_teaches_the_hosts_own_one_to_the_rest_of_the_list(
    poster: RelayPoster, send: InternalSend
) -> None:
    taught = event("message_sent", attempt_id=str(send.uuid), guid="guid-1", success=True, service="imessage")
    poster.posts([taught, event("delivered", guid="guid-1")])
    send.refresh_from_db()
    assert (send.state, send.guid) == ("delivered", "guid-1")


def test_an_e_mail_address_is_the_same_in_any_case(receiver_host: RelayPoster, send: InternalSend) -> None:
    Server.objects.filter(pk=send.sender_id).update(handle="unit228@example.com")
    posted = comes_in(send)
    posted["data"]["from"] = "Unit228@Example.com"
    receiver_host.posts(posted)
    assert confirmations() == ["inbound"]


def test_of_two_servers_with_one_address_the_one_that_wrote_is_proved(
    now: dt.datetime, receiver_host: RelayPoster, send: InternalSend
) -> None:
    twin = ServerFactory.create(wants_warm_up=True, handle=send.sender.handle, cooldown_warmup_sent_date=now)
    receiver_host.posts(comes_in(send))
    send.sender.refresh_from_db()
    twin.refresh_from_db()
    assert (send.sender.cooldown_warmup_delivered, twin.cooldown_warmup_delivered) == (True, False)


def test_a_deleted_server_has_no_address_any_more(receiver_host: RelayPoster, send: InternalSend) -> None:
    Server.objects.filter(pk=send.sender_id).update(status=Status.DELETED)
    receiver_host.posts(comes_in(send))
    assert confirmations() == []


def test_another_host_cannot_report_it(receiver_host: RelayPoster, send: InternalSend) -> None:
    posted = event("message_sent", attempt_id=str(send.uuid), success=True, service="imessage")
    assert receiver_host.posts(posted).counts == (1, 0)
    assert confirmations() == []


def test_the_next_turn_of_a_talk_follows_when_a_message_comes_in(
    now: dt.datetime, receiver_host: RelayPoster, send: InternalSend
) -> None:
    chat = ChatPreheatFactory.create(server=send.sender, partner=send.receiver, awaited=True, due_at=now + 15 * MINUTE)
    InternalSend.objects.update(kind="chat_preheat", chat=chat)
    receiver_host.posts(comes_in(send))
    chat.refresh_from_db()
    assert (chat.made, chat.awaited) == (1, False)
    assert chat.due_at is not None
    assert now + MINUTE <= chat.due_at <= now + 4 * MINUTE


def test_a_talk_that_falls_back_to_sms_ends_in_need_check(
    now: dt.datetime, poster: RelayPoster, receiver_host: RelayPoster
) -> None:
    server = ServerFactory.create(host=poster.host, unit=228)
    chat = ChatPreheatFactory.create(server=server, awaited=True, due_at=now + MINUTE)
    send = InternalSendFactory.create(sender=server, receiver=chat.partner, kind="chat_preheat", chat=chat)
    poster.posts(event("message_sent", attempt_id=str(send.uuid), success=True, service="sms"))
    server.refresh_from_db()
    assert server.status == Status.NEED_CHECK
    assert server.history.get().data["path"] == "chat_preheat"
    assert ChatPreheat.objects.get().outcome == "sms"


def test_clients_messages_and_our_own_may_stand_in_one_list(poster: RelayPoster, send: InternalSend) -> None:
    (one,) = poster.in_flight()
    ours = event("message_sent", attempt_id=str(send.uuid), success=True, service="imessage")
    theirs = event("message_failed", **about(one), error_code=120)
    signed_out = event("unit_status", unit=228, signed_in=False)
    assert poster.posts([theirs, ours, signed_out]).counts == (3, 0)
    send.sender.refresh_from_db()
    assert (send.sender.cooldown_warmup_delivered, send.sender.signed_in) == (True, False)
    assert attempt_of(one).state == "failed"


def test_a_hundred_arrivals_take_some_queries_for_each_and_none_else(
    now: dt.datetime, receiver_host: RelayPoster, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    receiver = Server.objects.get(host=receiver_host.host)
    senders = ServerFactory.create_batch(20, wants_warm_up=True, cooldown_warmup_sent_date=now)
    sends = [InternalSendFactory.create(sender=sender, receiver=receiver) for sender in senders]
    with django_assert_max_num_queries(20 + 20 * 12):
        receiver_host.posts([comes_in(send) for send in sends])
    assert len(confirmations()) == 20
