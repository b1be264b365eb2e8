"""A message that was stored wakes the dispatchers; one that was not wakes nobody."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

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


def heard(listener: psycopg.Connection) -> list[str]:
    """The lanes of the wake-ups that have arrived: what was sent before a round trip has arrived after it."""
    listener.execute("SELECT 1")
    return [wake_up.payload for wake_up in listener.notifies(timeout=0)]


def test_wakes_when_it_is_committed(listener: psycopg.Connection, now: dt.datetime) -> None:
    intake.accept(ClientFactory.create().pk, REQUEST, now=now)
    assert heard(listener) == ["otp"]


def test_wakes_nobody_for_what_is_rolled_back(listener: psycopg.Connection, now: dt.datetime) -> None:
    client = ClientFactory.create()
    with transaction.atomic():
        intake.accept(client.pk, REQUEST, now=now)
        assert heard(listener) == []
        transaction.set_rollback(True)
    assert heard(listener) == []
    intake.accept(client.pk, REQUEST, now=now)  # the flow that was rolled back is not remembered
    assert heard(listener) == ["otp"]
