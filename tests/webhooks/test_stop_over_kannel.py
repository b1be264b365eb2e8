"""STOP and START that an sms-service of Kannel's calls the address of receipts with."""

from __future__ import annotations

import json
import logging
from urllib.parse import urlencode

import pytest
from django.test import Client
from structlog.testing import capture_logs

from otp_service.messages.recipient_models import Recipient
from otp_service.messages.recipients import preferences
from otp_service.routes.models import OrphanReceipt
from tests.factories import AttemptFactory, RouteFactory
from webhooks.inbound.models import ProviderCall

pytestmark = pytest.mark.django_db

PATH = "/webhooks/providers/sms:kannel/"
TOKEN = "a+b/c=%41"
NUMBER = "+34600000017"


@pytest.fixture(autouse=True)
def _route() -> None:
    RouteFactory.create(
        name="sms:kannel",
        kind="kannel",
        settings={"url": "http://kannel.example/cgi-bin/sendsms"},
        credentials=json.dumps({"username": "u", "password": "p", "receipt_token": TOKEN}),
    )


def call(query: str) -> int:
    return Client().get(f"{PATH}?{query}").status_code


def written(text: str = "STOP", sender: str = NUMBER, **more: str) -> int:
    return call(urlencode({"from": sender, "text": text, "t": TOKEN, **more}))


@pytest.mark.parametrize("sender", [NUMBER, NUMBER[1:], "00" + NUMBER[1:]], ids=["with a +", "bare", "with 00"])
def test_stop_and_start_are_heeded_and_kept(sender: str) -> None:
    assert written("Stop", sender) == 204
    assert preferences(NUMBER).stopped
    assert written("start", sender) == 204
    assert not preferences(NUMBER).stopped
    assert ProviderCall.objects.count() == 2


@pytest.mark.parametrize("token", ["", "another", "a+b/c=A"])
def test_with_a_wrong_token_nothing_is_taken(token: str) -> None:
    assert written(t=token) == 403
    assert not Recipient.objects.exists()
    assert not ProviderCall.objects.exists()


@pytest.mark.parametrize(
    ("text", "sender"),
    [
        pytest.param("please stop", NUMBER, id="more than a word"),
        pytest.param("", NUMBER, id="no text"),
        pytest.param("STOP " * 10_000, NUMBER, id="a huge text"),
        pytest.param("ST\x00OP", NUMBER, id="with a NUL in it"),
        pytest.param("STOP", "", id="from nobody"),
        pytest.param("STOP", "ACME", id="from a name"),
        pytest.param("STOP", "12345", id="from a short code"),
        pytest.param("STOP", "9" * 10_000, id="from a huge number"),
    ],
)
def test_everything_else_is_kept_and_changes_nothing(text: str, sender: str) -> None:
    assert written(text, sender) == 204
    assert ProviderCall.objects.count() == 1
    assert not Recipient.objects.exists()
    assert not OrphanReceipt.objects.exists()


def test_a_text_that_is_no_utf_8_changes_nothing() -> None:
    known = urlencode({"from": NUMBER, "t": TOKEN})
    assert call(f"{known}&text=S%FFT%FEOP") == 204
    assert not Recipient.objects.exists()


def test_a_receipt_that_quotes_a_stop_stops_nobody() -> None:
    attempt = AttemptFactory.create(server=None, route="sms:kannel", state="accepted")
    query = {"attempt": str(attempt.uuid), "type": "1", "from": NUMBER, "text": "STOP", "t": TOKEN}
    assert call(urlencode(query)) == 204
    attempt.refresh_from_db()
    assert attempt.state == "delivered"
    assert not Recipient.objects.exists()


def test_neither_the_text_nor_the_number_is_in_any_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with capture_logs() as logs:
        assert written("unsubscribe") == 204
        assert written("my secret question") == 204
    said = f"{logs} {caplog.text}".lower()
    for secret in ("unsubscribe", "secret", NUMBER[1:]):
        assert secret not in said
