"""STOP and START that people write to the Mac of a BlueBubbles host."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from structlog.testing import capture_logs

from otp_service.messages import recipients
from otp_service.messages.recipient_models import Recipient
from otp_service.messages.recipients import note_start, preferences
from servers.hosts import webhook_path
from servers.models import Host
from servers.relay.events import TEXT_LIMIT
from tests.factories import NOON, HostFactory
from webhooks.inbound.models import RawCall

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("at_noon")]

UNIT = 4_000_229
NUMBER = "+34600000017"  # of the payloads
PAYLOADS = Path(__file__).parent / "payloads" / "bluebubbles"


@pytest.fixture
def host() -> Host:
    return HostFactory.create(number=UNIT, protocol="bluebubbles", secret="a password")


def post(host: Host, body: bytes) -> int:
    return Client().post(webhook_path(host), body, content_type="application/json").status_code


def written(text: Any = "STOP 🛑", *, case: str = "inbound", sender: Any = NUMBER, **more: Any) -> bytes:
    """A payload with another text and sender; `more` is of the message."""
    document = json.loads((PAYLOADS / f"{case}.json").read_bytes())
    document["data"] |= {"text": text, **more}
    document["data"]["handle"]["address"] = sender
    return json.dumps(document).encode()


def test_stop_and_start_are_heeded_and_kept(host: Host) -> None:
    assert post(host, written()) == 200
    assert preferences(NUMBER).stopped
    assert post(host, written("Start", guid="another")) == 200
    assert not preferences(NUMBER).stopped
    assert RawCall.objects.count() == 2


def test_a_repetition_does_not_stop_again_who_has_started(host: Host) -> None:
    assert post(host, written()) == 200
    note_start(NUMBER, now=NOON)
    assert post(host, written()) == 200
    assert not preferences(NUMBER).stopped
    assert RawCall.objects.count() == 1


def test_one_that_cannot_be_written_comes_again(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = recipients.note_stop

    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise RuntimeError("the database is away")

    monkeypatch.setattr(recipients, "note_stop", refuse)
    with pytest.raises(RuntimeError):
        post(host, written())
    assert not RawCall.objects.exists()
    monkeypatch.setattr(recipients, "note_stop", whole)
    assert post(host, written()) == 200
    assert preferences(NUMBER).stopped


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(written("STOP", case="inbound_in_a_group"), id="to a group"),
        pytest.param(written("STOP", case="inbound_reaction"), id="as a reaction"),
        pytest.param(written("STOP", case="inbound_updated"), id="later"),
        pytest.param(written("STOP", isFromMe=True), id="by ourselves"),
        pytest.param(written("STOP", sender="ann@example.com"), id="from an e-mail address"),
        pytest.param(written("STOP", sender="ACME"), id="from a name"),
        pytest.param(written("STOP", sender="12345"), id="from a short code"),
        pytest.param(written("please stop"), id="more than a word"),
        pytest.param(written(None), id="no text"),
        pytest.param(written("." * TEXT_LIMIT), id="a huge text"),
    ],
)
def test_everything_else_stops_nobody(host: Host, body: bytes) -> None:
    assert post(host, body) == 200
    assert not Recipient.objects.exists()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(written("STOP", sender=""), id="from nobody"),
        pytest.param(written("STOP", sender=None), id="from null"),
        pytest.param(written("ST\x00OP"), id="with a NUL in it"),
        pytest.param(written("." * (TEXT_LIMIT + 1)), id="more than a text may have"),
        pytest.param(written().replace(b"STOP", b"STOP\xff"), id="no UTF-8"),
    ],
)
def test_what_is_no_message_is_refused(host: Host, body: bytes) -> None:
    assert post(host, body) == 400
    assert not Recipient.objects.exists()


def test_with_a_wrong_token_nothing_is_taken(host: Host) -> None:
    path = webhook_path(host)[:-2] + "/"
    assert Client().post(path, written(), content_type="application/json").status_code == 404
    assert not Recipient.objects.exists()


def test_neither_the_text_nor_the_number_is_in_any_log(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with capture_logs() as logs:
        assert post(host, written("unsubscribe")) == 200
        assert post(host, written("my secret question", guid="another")) == 200
    said = f"{logs} {caplog.text}".lower()
    for secret in ("unsubscribe", "secret", NUMBER[1:]):
        assert secret not in said
