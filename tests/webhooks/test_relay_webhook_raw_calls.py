"""Calls are kept as they came, encrypted, for a week."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from django.db import connection

from tests.factories import HostFactory
from tests.webhooks.relay_poster import RelayPoster, event
from webhooks.inbound.models import RawCall, RelayEvent
from webhooks.inbound.retention import KEPT_FOR, remove_old

CANARY = "canary 4711 ☎"
SAID: dict[str, Any] = {"from": "+34600000001", "to": "a@example.org", "text": CANARY, "guid": "guid-1"}
INBOUND = event("inbound", **SAID)


def test_a_call_is_kept_as_it_came(poster: RelayPoster, now: dt.datetime) -> None:
    body = json.dumps(INBOUND, ensure_ascii=False, indent=3).encode()
    poster.posts(body)
    kept = RawCall.objects.get()
    assert (kept.body.encode(), kept.host, kept.received_at) == (body, poster.host, now)


def test_its_text_cannot_be_read_in_the_database(poster: RelayPoster) -> None:
    poster.posts(INBOUND)
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_jsonb(r)::text, r.body FROM webhooks_inbound_rawcall r")
        row, body = cursor.fetchone()
        cursor.execute("SELECT to_jsonb(e)::text FROM webhooks_inbound_relayevent e")
        (stored,) = cursor.fetchone()
    for word in ("canary", "4711", "+34600000001"):
        assert word not in row + stored
        assert word.encode() not in bytes(body)


def test_nothing_of_it_is_logged(poster: RelayPoster, capsys: pytest.CaptureFixture[str]) -> None:
    poster.posts(INBOUND)
    poster.posts(INBOUND | {"at": CANARY})
    printed = capsys.readouterr()
    assert "canary" not in printed.out + printed.err


@pytest.mark.django_db
def test_calls_and_ids_are_forgotten_after_a_week(now: dt.datetime) -> None:
    host = HostFactory.create()
    for age in (KEPT_FOR, KEPT_FOR + dt.timedelta(microseconds=1)):
        RawCall.objects.create(host=host, received_at=now - age, body="{}")
        event_id = "7d3c1f7e-0000-4000-8000-00000000000" + ("1" if age == KEPT_FOR else "2")
        RelayEvent.objects.create(host=host, event_id=event_id, type="heartbeat", received_at=now - age)
    assert remove_old(now=now) == 2
    assert remove_old(now=now) == 0
    assert RawCall.objects.get().received_at == RelayEvent.objects.get().received_at == now - KEPT_FOR


@pytest.mark.django_db
def test_what_is_forgotten_goes_in_batches_the_oldest_first(now: dt.datetime) -> None:
    host = HostFactory.create()
    for days in (8, 10, 9):
        RawCall.objects.create(host=host, received_at=now - dt.timedelta(days=days), body="{}")
    assert [remove_old(now=now, batch=2), RawCall.objects.get().received_at] == [2, now - dt.timedelta(days=8)]
    assert [remove_old(now=now, batch=2), remove_old(now=now, batch=2)] == [1, 0]
