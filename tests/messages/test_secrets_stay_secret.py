"""A text, a number and a key are in no log, no repr, no event and no error."""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any

import pytest
from django.db import connection

from otp_service.events.models import Event
from otp_service.messages import idempotency, intake
from otp_service.messages.models import Message
from otp_service.messages.plan import NewMessage
from tests.messages.client_api import MESSAGES, ClientApi

TEXT, NUMBER = "Canary code 739184", "+34612345678"
PUSH: dict[str, Any] = {"channels": ["sms", "push"], "addresses": {"push": "canary-token-739184"}}


def leaks(shown: str) -> bool:
    return "739184" in shown or "612345678" in shown


def test_requests_have_no_telling_repr(api: ClientApi, now: dt.datetime) -> None:
    request = NewMessage(to=NUMBER, text=TEXT, channels=("push",), addresses=PUSH["addresses"])
    keyed = idempotency.KeyedRequest.of(api.client.pk, "k", request)
    accepted = intake.accept(api.client.pk, request, now=now)
    assert not leaks(repr([request, keyed, accepted, Message.objects.get()]))


def test_database_holds_neither_in_clear(api: ClientApi) -> None:
    api.send({"to": NUMBER, "text": TEXT, **PUSH}, key="k")
    with connection.cursor() as cursor:
        for table in ("message", "ready", "flow", "idempotencykey", "apikey"):
            cursor.execute(f"SELECT row_to_json(t)::text FROM otp_messages_{table} t")
            shown = "".join(row[0] for row in cursor.fetchall())
            assert shown
            assert not leaks(shown)
            assert api.key.split("_", 2)[2] not in shown
            assert TEXT.encode().hex() not in shown
            assert b"canary-token".hex() not in shown


def test_logs_and_events_hold_neither(
    api: ClientApi, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    sent = api.send({"to": NUMBER, "text": TEXT, **PUSH}, key="k")
    api.call("POST", f"{sent['Location']}cancel/")
    api.send({"to": NUMBER, "text": TEXT + "\x00"})
    api.send({"to": NUMBER, "text": TEXT, **PUSH, "channels": ["sms"]})
    api.send({"to": NUMBER, "text": TEXT, "addresses": {"push": "canary-token-739184\n"}})
    api.send({"to": NUMBER, "text": TEXT}, key="k" * 300)
    api.get(MESSAGES, to=NUMBER)
    api.key += "x"
    api.send({"to": NUMBER, "text": TEXT})
    assert Event.objects.exists()
    assert not leaks(str(list(Event.objects.values())))
    ours = [record for record in caplog.records if record.name != "django.db.backends"]  # silent outside DEBUG
    assert not leaks(str([(record.getMessage(), record.__dict__) for record in ours]))
