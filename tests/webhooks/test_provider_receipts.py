"""Receipts that a provider posts: genuine ones are kept and applied, once, and only to attempts of its own route."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from structlog.testing import capture_logs
from twilio.request_validator import RequestValidator  # type: ignore[import-untyped]  # it has no types

from otp_service.messages.models import Attempt
from otp_service.routes.models import OrphanReceipt
from tests.factories import AttemptFactory, RouteFactory
from webhooks.inbound.models import ProviderCall

pytestmark = pytest.mark.django_db

PUBLIC = "https://otp.example.com"
TOKEN = "an auth token"
ROUTE = "sms:twilio"


@pytest.fixture(autouse=True)
def _route(settings: Any) -> None:
    settings.PUBLIC_URL = PUBLIC
    account(ROUTE)


def account(name: str) -> None:
    RouteFactory.create(
        name=name,
        kind="twilio",
        settings={"base_url": "https://api.example.com"},
        credentials=json.dumps({"account_sid": "AC" + "0" * 32, "auth_token": TOKEN}),
        sender_names=["ACME"],
    )


def attempt(*, route: str = ROUTE, sid: str = "SM1") -> Attempt:
    return AttemptFactory.create(server=None, route=route, provider_message_id=sid, state="accepted")


def post(route: str = ROUTE, *, query: str = "", token: str = TOKEN, **fields: str) -> Any:
    path = f"/webhooks/providers/{route}/{query}"
    signature = RequestValidator(token).compute_signature(PUBLIC + path, fields)
    kind = "application/x-www-form-urlencoded"
    return Client().post(path, urlencode(fields), content_type=kind, headers={"X-Twilio-Signature": signature})


def state(of: Attempt) -> str:
    of.refresh_from_db()
    return of.state


def test_a_receipt_moves_the_attempt_that_has_its_id() -> None:
    sent = attempt()
    assert post(MessageSid="SM1", MessageStatus="delivered").status_code == 204
    assert state(sent) == "delivered"
    kept = ProviderCall.objects.get()
    assert kept.route == ROUTE
    assert "MessageStatus" in kept.said


def test_a_repetition_changes_nothing_and_is_answered_alike() -> None:
    sent = attempt()
    for _ in range(2):
        assert post(MessageSid="SM1", MessageStatus="delivered").status_code == 204
    assert state(sent) == "delivered"


def test_one_that_its_provider_did_not_sign_is_refused() -> None:
    sent = attempt()
    answer = post(token="another", MessageSid="SM1", MessageStatus="delivered")
    assert (answer.status_code, answer["Content-Type"]) == (403, "application/problem+json")
    assert state(sent) == "accepted"
    assert not ProviderCall.objects.exists()


def test_one_about_another_routes_attempt_changes_nothing() -> None:
    account("sms:other")
    others = attempt(route="sms:other")
    assert post(MessageSid="SM1", MessageStatus="delivered").status_code == 204
    assert state(others) == "accepted"


def test_one_that_comes_before_its_id_is_known_waits(now: dt.datetime) -> None:
    assert post(MessageSid="SM9", MessageStatus="delivered").status_code == 204
    assert OrphanReceipt.objects.get().scope == f"route:{ROUTE}"


def test_one_that_cannot_be_understood_is_kept_and_not_asked_for_again() -> None:
    assert post(MessageSid="SM1", MessageStatus="").status_code == 204
    assert ProviderCall.objects.count() == 1


def test_one_that_is_told_by_its_token_is_told_so() -> None:
    RouteFactory.create(name="sms:kannel", kind="kannel")
    RouteFactory.create(name="sms:token", kind="http_json", settings={"receipt": {"status": "s"}})
    RouteFactory.create(name="sms:signed", kind="http_json", settings={"receipt": {"signature_header": "X-Signature"}})
    for route, said in (
        ("sms:kannel", "The token is missing or wrong."),
        ("sms:token", "The token is missing or wrong."),
        ("sms:signed", "The provider of this route did not sign this."),
        (ROUTE, "The provider of this route did not sign this."),
    ):
        answer = post(route, token="another", MessageSid="SM1")
        assert (answer.status_code, answer.json()["detail"]) == (403, said)


def test_no_other_routes_credentials_are_read_for_one() -> None:
    account("sms:other")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE routes_route SET credentials = %s WHERE name = 'sms:other'", [b"not ours"])
    with capture_logs() as logs:
        assert post(MessageSid="SM1", MessageStatus="delivered").status_code == 204
    assert "route_unreadable" not in {entry["event"] for entry in logs}


@pytest.mark.parametrize("route", ["sms:nobody", "imessage:es", "no name at all", "sms:%00"])
def test_there_is_no_such_route(route: str) -> None:
    assert Client().post(f"/webhooks/providers/{route}/", {"MessageSid": str(uuid.uuid4())}).status_code == 404


def test_more_than_a_receipt_can_have_is_refused() -> None:
    body = b"x" * 10_000_000
    answer = Client().post(f"/webhooks/providers/{ROUTE}/", body, content_type="application/octet-stream")
    assert answer.status_code == 413
