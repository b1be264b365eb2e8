"""A message that was stored wakes the dispatchers; one that was not wakes nobody."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from django.db import connection, transaction

from otp_service.messages import intake
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
