"""Two messages with one supersede_key at once, and one beside claims and settling: exactly one unsent one stays."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import transaction
from django.http import HttpResponse

from otp_service.messages import batch, intake, lifecycle, queue, supersede
from otp_service.messages.batch import Item
from otp_service.messages.models import Message, Ready
from otp_service.messages.plan import NewMessage
from otp_service.messages.rules import MessageStatus
from tests.factories import FlowFactory, QueuedFactory
from tests.messages.client_api import LEAST, ClientApi
from tests.racing import Racer

pytestmark = pytest.mark.django_db(transaction=True)
NEW = {**LEAST, "supersede_key": "login"}
REQUEST = NewMessage(LEAST["to"], LEAST["text"], supersede_key="login")
OTHER = NewMessage(LEAST["to"], LEAST["text"], supersede_key="other")


@pytest.fixture(autouse=True)
def flow(api: ClientApi) -> None:
    FlowFactory.create(client=api.client, lane="transactional", pools=["es", "zp", "vj"], channels=["imessage", "sms"])


def statuses() -> list[str]:
    return list(Message.objects.order_by("id").values_list("status", flat=True))


def the_newest_alone_stays() -> bool:
    *older, newest = statuses()
    queued = list(Ready.objects.values_list("message_id", flat=True))
    return set(older) == {"cancelled"} and newest == "queued" and queued == [Message.objects.latest("id").pk]


@pytest.mark.parametrize("key", ["", "k"])
def test_second_post_waits_and_takes_the_place_of_the_first(api: ClientApi, now: dt.datetime, key: str) -> None:
    with transaction.atomic():
        intake.accept(api.client.pk, REQUEST, now=now)
        second: Racer[HttpResponse] = Racer(lambda: api.send(NEW, key=key))
        second.wait_until_blocked()
    assert second.result().status_code == 202
    assert the_newest_alone_stays()


def test_second_post_stands_alone_if_the_first_is_undone(api: ClientApi, now: dt.datetime) -> None:
    with transaction.atomic():
        intake.accept(api.client.pk, REQUEST, now=now)
        second: Racer[HttpResponse] = Racer(lambda: api.send(NEW))
        second.wait_until_blocked()
        transaction.set_rollback(True)
    second.result()
    assert statuses() == ["queued"]


def test_another_key_does_not_wait(api: ClientApi, now: dt.datetime) -> None:
    with transaction.atomic():
        intake.accept(api.client.pk, REQUEST, now=now)
        assert Racer(lambda: api.send({**NEW, "supersede_key": "other"})).result().status_code == 202


def test_a_batch_holds_no_key_that_it_may_have_to_give_way_for(api: ClientApi, now: dt.datetime) -> None:
    """It waits for the one with the lower number first: whoever holds that may take the other one."""

    def number(request: NewMessage) -> int:
        return supersede.lock_params(api.client.pk, request.supersede_key)["supersede_lock"]

    low, high = sorted([REQUEST, OTHER], key=number)
    with transaction.atomic():
        intake.accept(api.client.pk, low, now=now)
        both = Racer(lambda: batch.accept_many(api.client.pk, [Item(high), Item(low)], now=now))
        both.wait_until_blocked()
        intake.accept(api.client.pk, high, now=now)
    both.result()
    assert statuses() == ["cancelled"] * 2 + ["queued"] * 2


def test_waits_for_a_claim_and_leaves_what_it_took(api: ClientApi) -> None:
    older = QueuedFactory.create(flow__client=api.client, supersede_key="login")
    with transaction.atomic():
        Message.objects.select_for_update(no_key=True).get(pk=older.pk)
        posting: Racer[HttpResponse] = Racer(lambda: api.send(NEW))
        posting.wait_until_blocked()
        queue.remove([older.pk])
        Message.objects.filter(pk=older.pk).update(status=MessageStatus.SENDING, attempts_made=1)
    assert posting.result().status_code == 202
    assert statuses() == ["sending", "queued"]


def test_finds_what_is_queued_again_while_it_waits(api: ClientApi) -> None:
    older = QueuedFactory.create(flow__client=api.client, supersede_key="login", status=MessageStatus.SENDING)
    queue.remove([older.pk])
    with transaction.atomic():
        Message.objects.select_for_update(no_key=True).get(pk=older.pk)
        posting: Racer[HttpResponse] = Racer(lambda: api.send(NEW))
        posting.wait_until_blocked()
        Message.objects.filter(pk=older.pk).update(status=MessageStatus.QUEUED, attempts_made=1)
        queue.add([queue.ReadyRow(older.pk, older.flow_id, older.expires_at)])
    posting.result()
    assert the_newest_alone_stays()


def test_a_claim_passes_over_what_is_being_superseded(api: ClientApi, now: dt.datetime) -> None:
    older = QueuedFactory.create(flow__client=api.client, supersede_key="login")
    with transaction.atomic():
        intake.accept(api.client.pk, REQUEST, now=now)
        rows = Message.objects.select_for_update(no_key=True, skip_locked=True).filter(pk=older.pk)

        def claim() -> list[Message]:
            with transaction.atomic():
                return list(rows)

        assert Racer(claim).result() == []
    assert the_newest_alone_stays()


def test_its_client_cancels_it_at_the_same_time(api: ClientApi, now: dt.datetime) -> None:
    older = QueuedFactory.create(flow__client=api.client, supersede_key="login")
    with transaction.atomic():
        lifecycle.cancel(api.client.pk, older.uuid, now=now)
        posting: Racer[HttpResponse] = Racer(lambda: api.send(NEW))
        posting.wait_until_blocked()
    posting.result()
    assert Message.objects.order_by("id").values_list("status", "final_reason")[0] == ("cancelled", "cancelled")
    assert the_newest_alone_stays()
