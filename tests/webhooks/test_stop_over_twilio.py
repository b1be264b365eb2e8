"""STOP and START that a Twilio account tells of: written to it, or behind a message that it refused."""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from structlog.testing import capture_logs
from twilio.request_validator import RequestValidator  # type: ignore[import-untyped]  # it has no types

from otp_service.messages.models import Attempt
from otp_service.messages.recipient_models import InvalidReport, Recipient
from otp_service.messages.recipients import note_stop, preferences
from otp_service.routes.models import OrphanReceipt
from servers.relay.events import BODY_LIMIT
from tests.factories import NOON, AttemptFactory, MessageFactory, RouteFactory
from webhooks.inbound.models import ProviderCall

pytestmark = pytest.mark.django_db

PUBLIC = "https://otp.example.com"
PATH = "/webhooks/providers/sms:twilio/"
TOKEN = "an auth token"
NUMBER = "+34600000017"


@pytest.fixture(autouse=True)
def _route(settings: Any) -> None:
    settings.PUBLIC_URL = PUBLIC
    credentials = json.dumps({"account_sid": "AC" + "0" * 32, "auth_token": TOKEN})
    RouteFactory.create(name="sms:twilio", kind="twilio", settings={}, credentials=credentials)


def post(token: str = TOKEN, **fields: str) -> int:
    signature = RequestValidator(token).compute_signature(PUBLIC + PATH, fields)
    kind = "application/x-www-form-urlencoded"
    body = urlencode(fields, errors="surrogatepass")
    return Client().post(PATH, body, content_type=kind, headers={"X-Twilio-Signature": signature}).status_code


def written(text: str = "Stop", sender: str = NUMBER, **more: str) -> int:
    """What Twilio posts of a message to a number of the account."""
    ids = {
        "MessageSid": "SM1",
        "SmsSid": "SM1",
        "SmsMessageSid": "SM1",
        "AccountSid": "AC1",
        "ApiVersion": "2010-04-01",
    }
    state = {"SmsStatus": "received", "NumMedia": "0", "NumSegments": "1", "To": "+34600000001"}
    return post(**ids, **state, From=sender, Body=text, **more)


def stopped(number: str = NUMBER) -> bool | None:
    return preferences(number).stopped


def test_stop_and_start_are_heeded_and_kept() -> None:
    assert written("Stop.") == 204
    assert stopped()
    assert written("unstop") == 204
    assert not stopped()
    assert ProviderCall.objects.count() == 2
    assert not OrphanReceipt.objects.exists()


@pytest.mark.parametrize(
    ("text", "understood", "stops"),
    [
        pytest.param("ARRET", "STOP", True, id="STOP in another language"),
        pytest.param("stop", "HELP", False, id="STOP that is a word for help there"),
        pytest.param("info", "HELP", False, id="help"),
        pytest.param("", "STOP", True, id="no text"),
    ],
)
def test_what_the_provider_understood_goes_before_the_text(text: str, understood: str, stops: bool) -> None:
    assert written(text, OptOutType=understood) == 204
    assert stopped() is stops


def test_what_the_provider_understood_as_start_is_one() -> None:
    note_stop(NUMBER, now=NOON)
    assert written("DEMARRER", OptOutType="START") == 204
    assert not stopped()


def test_one_that_its_provider_did_not_sign_is_refused() -> None:
    ids = {"MessageSid": "SM1", "From": NUMBER, "Body": "STOP"}
    assert post(token="another", **ids) == 403
    assert not stopped()
    assert not ProviderCall.objects.exists()
    assert post(**ids) == 204
    assert stopped()


@pytest.mark.parametrize(
    ("text", "sender"),
    [
        pytest.param("please stop", NUMBER, id="more than a word"),
        pytest.param("", NUMBER, id="no text"),
        pytest.param("STOP " * 50_000, NUMBER, id="a huge text"),
        pytest.param("ST\x00OP", NUMBER, id="with a NUL in it"),
        pytest.param("STOP", "", id="from nobody"),
        pytest.param("STOP", "ACME", id="from a name"),
        pytest.param("STOP", "12345", id="from a short code"),
        pytest.param("STOP", "whatsapp:" + NUMBER, id="over something else"),
        pytest.param("STOP", "+34\x00600000017", id="from no number"),
        pytest.param("STOP", "+" + "9" * 10_000, id="from a huge number"),
    ],
)
def test_everything_else_is_kept_and_changes_nothing(text: str, sender: str) -> None:
    assert written(text, sender) == 204
    assert ProviderCall.objects.count() == 1
    assert not Recipient.objects.exists()
    assert not OrphanReceipt.objects.exists()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"From=%2B34600000017&Body=STOP\xff", 403, id="no UTF-8"),
        pytest.param(b"&".join(b"Body=STOP" for _ in range(500)), 403, id="too many fields"),
        pytest.param(b"From=" + b"9" * BODY_LIMIT, 413, id="too large"),
    ],
)
def test_what_cannot_be_read_is_refused(body: bytes, status: int) -> None:
    kind = "application/x-www-form-urlencoded"
    answer = Client().post(PATH, body, content_type=kind, headers={"X-Twilio-Signature": "c2lnbmVk"})
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
    assert not Recipient.objects.exists()


def test_neither_the_text_nor_the_number_is_in_any_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with capture_logs() as logs:
        assert written("unsubscribe") == 204
        assert written("my secret question") == 204
    said = f"{logs} {caplog.text}".lower()
    for secret in ("unsubscribe", "secret", NUMBER[1:]):
        assert secret not in said


# --- behind a message that the account refused -----------------------------------------------------------


def sent() -> Attempt:
    message = MessageFactory.create(number=NUMBER, status="submitted", attempts_made=1, attempts_charged=1)
    return AttemptFactory.create(
        message=message, server=None, route="sms:twilio", provider_message_id="SM1", state="accepted"
    )


def failed(code: str) -> int:
    return post(MessageSid="SM1", MessageStatus="failed", To=NUMBER, From="ACME", ErrorCode=code)


def test_the_recipient_of_a_message_that_failed_for_a_stop_is_stopped() -> None:
    attempt = sent()
    assert failed("21610") == 204
    attempt.refresh_from_db()
    assert (attempt.state, attempt.error_class, attempt.error_code) == ("failed", "recipient_unreachable", 21610)
    assert stopped()


def test_a_number_that_stopped_is_not_taken_for_one_that_cannot_be() -> None:
    sent()
    assert failed("21610") == 204
    assert not InvalidReport.objects.exists()


def test_a_message_that_failed_for_anything_else_stops_nobody() -> None:
    sent()
    assert failed("21211") == 204
    assert not stopped()
    assert InvalidReport.objects.count() == 1
