"""A message that was stored wakes the dispatchers; one that was not wakes nobody."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from otp_service.messages import batch, intake, queue
from otp_service.messages.batch import Item
from otp_service.messages.models import Message, Ready
from otp_service.messages.plan import NewMessage
from otp_service.messages.queue import READY_CHANNEL
from tests.factories import ClientFactory

REQUEST = NewMessage(to="+34600000000", text="Your code is 123456", lane="otp")


@pytest.fixture
def listener(transactional_db: None) -> Iterator[psycopg.Connection]:
    parameters = {name: value for name, value in connection.get_connection_params().items() if name != "context"}
    parameters.pop("cursor_factory", None)
    with psycopg.connect(**parameters, autocommit=True) as listening:
        listening.execute(f"LISTEN {READY_CHANNEL}")
        yield listening


def heard(listener: psycopg.Connection) -> int:
    """How many wake-ups have arrived: what was sent before a round trip has arrived after it."""
    listener.execute("SELECT 1")
    return len(list(listener.notifies(timeout=0)))


def test_wakes_when_it_is_committed(listener: psycopg.Connection, now: dt.datetime) -> None:
    intake.accept(ClientFactory.create().pk, REQUEST, now=now)
    assert heard(listener) == 1


def test_a_batch_wakes_once_if_any_of_it_is_an_otp(listener: psycopg.Connection, now: dt.datetime) -> None:
    client = ClientFactory.create()
    promo = Item(replace(REQUEST, lane="promo"))
    batch.accept_many(client.pk, [promo, promo], now=now)
    assert heard(listener) == 0
    batch.accept_many(client.pk, [promo, Item(REQUEST), Item(REQUEST)], now=now)
    assert heard(listener) == 1


def test_leaves_other_lanes_to_the_poll(listener: psycopg.Connection, now: dt.datetime) -> None:
    intake.accept(ClientFactory.create().pk, replace(REQUEST, lane="promo"), now=now)
    assert heard(listener) == 0


def test_wakes_nobody_for_what_is_rolled_back(listener: psycopg.Connection, now: dt.datetime) -> None:
    client = ClientFactory.create()
    with transaction.atomic():
        intake.accept(client.pk, REQUEST, now=now)
        assert heard(listener) == 0
        transaction.set_rollback(True)
    assert heard(listener) == 0
    intake.accept(client.pk, REQUEST, now=now)  # the flow that was rolled back is not remembered
    assert heard(listener) == 1


def test_a_wake_up_that_fails_takes_nothing_back(
    transactional_db: None, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(queue, "_notify", fails)
    answer = intake.accept(ClientFactory.create().pk, REQUEST, now=now)
    assert Ready.objects.filter(message_id=Message.objects.get(uuid=answer.response["id"]).pk).exists()


def test_it_is_not_told_within_the_transaction_that_stores_the_message(
    listener: psycopg.Connection, now: dt.datetime
) -> None:
    """Commits that notify wait for each other: each would wait for the others' writes to the disk."""
    client = ClientFactory.create()
    intake.accept(client.pk, REQUEST, now=now)
    with CaptureQueriesContext(connection) as sent, transaction.atomic():
        intake.accept(client.pk, REQUEST, now=now)
    told = [number for number, query in enumerate(sent) if "NOTIFY" in query["sql"].upper()]
    committed = [number for number, query in enumerate(sent) if query["sql"] == "COMMIT"]
    assert told == [len(sent) - 1] > committed
