"""Calls that concern the same chats from their two ends do not wait for each other for ever."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pytest
from django.db import connection, transaction

from otp_service.core.outcomes import ReportedState
from servers.internal_sends import News
from servers.models import ChatPreheat, InternalSend, Server
from tests.factories import ChatPreheatFactory, InternalSendFactory, ServerFactory
from tests.racing import Racer
from webhooks.inbound import fleet
from webhooks.inbound.fleet import FleetNews

pytestmark = pytest.mark.django_db(transaction=True)


def chat_between(server: Server, partner: Server) -> ChatPreheat:
    return ChatPreheatFactory.create(server=server, partner=partner, awaited=True)


def message(chat: ChatPreheat, sender: Server, receiver: Server) -> InternalSend:
    return InternalSendFactory.create(kind="chat_preheat", chat=chat, sender=sender, receiver=receiver)


def apply(sends: Sequence[InternalSend], now: dt.datetime) -> None:
    news = [(send.sender_id, News(send.pk, ReportedState.DELIVERED, "delivered", "imessage")) for send in sends]
    with transaction.atomic():
        fleet.apply(FleetNews(news, []), now=now)


def test_two_lists_about_two_chats_from_their_two_ends(now: dt.datetime) -> None:
    a, b, c, d = (ServerFactory.create() for _ in range(4))
    x, y = chat_between(a, d), chat_between(c, b)  # by sender: x before y from a and c, y before x from b and d
    from_a, from_c = message(x, a, d), message(y, c, b)
    from_d, from_b = message(x, d, a), message(y, b, c)
    with transaction.atomic():
        # Somebody holds the first chat, so that both calls stand where they take their chats.
        list(ChatPreheat.objects.filter(pk=x.pk).select_for_update(no_key=True))
        one = Racer(lambda: apply([from_a, from_c], now))
        one.wait_until_blocked()
        other = Racer(lambda: apply([from_d, from_b], now))
        other.wait_until_blocked()
    one.result()
    other.result()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM servers_internalsend WHERE state = 'delivered'")
        assert cursor.fetchone() == (4,)
