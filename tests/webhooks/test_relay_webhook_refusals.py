"""What is not accepted, with which answer; nothing of it is stored."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import Any

import pytest
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from otp_service.core.clock import utc_now
from otp_service.core.signing import new_secret, signature_headers
from servers.models import Host
from tests.factories import NOON, HostFactory
from tests.http import call
from tests.webhooks.relay_poster import NUMBER, Answered, RelayPoster, event
from webhooks.inbound.models import RawCall, RelayEvent

MINUTE = dt.timedelta(minutes=1)
SECOND = dt.timedelta(seconds=1)
BEAT = json.dumps(event("heartbeat")).encode()


def assert_refused(answer: Answered, status: int, code: str) -> None:
    assert (answer.status, answer.body["status"], answer.body["code"]) == (status, status, code)
    assert not RelayEvent.objects.exists()
    assert not RawCall.objects.exists()


def headers(changes: dict[str, str] | None = None) -> dict[str, str]:
    secret = Host.objects.get(number=NUMBER).secret
    return signature_headers([secret], message_id="call-1", now=NOON, body=BEAT) | (changes or {})


# --- who posts -----------------------------------------------------------------------------------------


def test_a_right_signature_is_accepted(poster: RelayPoster) -> None:
    assert poster.posts_unsigned(BEAT, headers()).counts == (1, 0)


def test_another_secret_is_not(poster: RelayPoster) -> None:
    assert_refused(poster.posts(BEAT, secrets=[new_secret()]), 401, "invalid_signature")


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_refused(poster: RelayPoster, missing: str) -> None:
    rest = {name: value for name, value in headers().items() if name != missing}
    answer = poster.posts_unsigned(BEAT, rest)
    assert_refused(answer, 401, "invalid_signature")
    assert answer.body["reason"] == "missing_header"


def test_no_header_at_all_is_refused(poster: RelayPoster) -> None:
    assert_refused(poster.posts_unsigned(BEAT), 401, "invalid_signature")


@pytest.mark.parametrize(
    ("off_by", "accepted"),
    [(-5 * MINUTE, True), (-5 * MINUTE - SECOND, False), (5 * MINUTE, True), (5 * MINUTE + SECOND, False)],
    ids=str,
)
def test_a_recorded_call_is_refused_when_it_is_old(poster: RelayPoster, off_by: dt.timedelta, accepted: bool) -> None:
    answer = poster.posts(BEAT, at=NOON + off_by)
    if accepted:
        assert answer.counts == (1, 0)
    else:
        assert_refused(answer, 401, "invalid_signature")


@pytest.mark.parametrize(
    "changes",
    [{"webhook-signature": "v1,bm90IHJlYWxseQ=="}, {"webhook-id": "call-2"}, {"webhook-timestamp": "1788264001"}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_header_that_was_changed_is_refused(poster: RelayPoster, changes: dict[str, str]) -> None:
    assert_refused(poster.posts_unsigned(BEAT, headers(changes)), 401, "invalid_signature")


def test_a_body_that_was_changed_is_refused(poster: RelayPoster) -> None:
    assert_refused(poster.posts_unsigned(BEAT + b" ", headers()), 401, "invalid_signature")


def test_another_hosts_signature_is_refused(poster: RelayPoster) -> None:
    other = HostFactory.create(secret=new_secret())
    assert_refused(poster.posts(BEAT, number=other.number), 401, "invalid_signature")


def test_both_secrets_are_good_during_a_rotation(poster: RelayPoster, now: dt.datetime) -> None:
    old, new = poster.host.secret, new_secret()
    poster.host.secret, poster.host.previous_secret = new, old
    poster.host.previous_secret_until = now + SECOND
    poster.host.save()
    assert poster.posts(event("heartbeat"), secrets=[old]).counts == (1, 0)
    assert poster.posts(event("heartbeat"), secrets=[new]).counts == (1, 0)
    assert poster.posts(event("heartbeat"), secrets=[new_secret(), new]).counts == (1, 0)


def test_the_old_secret_is_no_good_after_the_rotation(poster: RelayPoster, now: dt.datetime) -> None:
    old = poster.host.secret
    poster.host.secret, poster.host.previous_secret, poster.host.previous_secret_until = new_secret(), old, now
    poster.host.save()
    assert_refused(poster.posts(BEAT, secrets=[old]), 401, "invalid_signature")


def test_a_secret_of_ours_that_is_unusable_is_our_fault(poster: RelayPoster) -> None:
    Host.objects.filter(pk=poster.host.pk).update(secret="whsec_not base64")
    assert_refused(poster.posts(BEAT), 503, "signing_secret_unusable")


def test_a_bearer_token_is_refused_unless_the_setting_allows_it(poster: RelayPoster) -> None:
    answer = poster.posts_unsigned(BEAT, {"Authorization": f"Bearer {poster.host.secret}"})
    assert_refused(answer, 401, "invalid_signature")


def test_a_bearer_token_is_accepted_where_the_setting_allows_it(poster: RelayPoster, settings: Any) -> None:
    settings.RELAY_BEARER_ALLOWED = True
    assert poster.posts_unsigned(BEAT, {"Authorization": f"Bearer {poster.host.secret}"}).counts == (1, 0)


@pytest.mark.parametrize("token", ["", "wrong", "Bearer", "s\xe9cret"], ids=ascii)
def test_a_wrong_bearer_token_is_refused(poster: RelayPoster, settings: Any, token: str) -> None:
    settings.RELAY_BEARER_ALLOWED = True
    assert_refused(poster.posts_unsigned(BEAT, {"Authorization": f"Bearer {token}"}), 401, "invalid_signature")


def test_a_signature_is_still_accepted_where_tokens_are(poster: RelayPoster, settings: Any) -> None:
    settings.RELAY_BEARER_ALLOWED = True
    assert poster.posts(BEAT).counts == (1, 0)


# --- what is posted ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"3", b'"text"', b"[[]]", b"[null]", b"\xff\xfe", b'{"id": NaN}', b"[" * 100_000],
    ids=["empty", "cut off", "null", "number", "text", "list in list", "null in list", "no UTF-8", "NaN", "deep"],
)
def test_what_is_no_event_is_refused(poster: RelayPoster, body: bytes) -> None:
    assert_refused(poster.posts(body), 400, "invalid_relay_event")


@pytest.mark.parametrize(
    ("field", "value"),
    [("id", "4711"), ("type", ""), ("at", "yesterday"), ("unit", "one"), ("data", [])],
)
def test_a_field_that_is_wrong_is_named(poster: RelayPoster, field: str, value: object) -> None:
    answer = poster.posts(event("message_sent", attempt_id=str(uuid.uuid4()), success=True) | {field: value})
    assert_refused(answer, 400, "invalid_relay_event")
    assert (answer.body["index"], answer.body["field"]) == (0, field)


def test_the_answer_does_not_repeat_what_was_posted(poster: RelayPoster) -> None:
    answer = poster.posts(event("inbound", to="+34600000000", text="canary-4711") | {"at": "canary-4712"})
    assert answer.status == 400
    assert "canary" not in json.dumps(answer.body)


def test_a_body_over_the_limit_is_refused_before_it_is_looked_at(poster: RelayPoster) -> None:
    limit = 1024 * 1024
    assert_refused(poster.posts(b" " * (limit + 1)), 413, "body_too_large")
    assert_refused(poster.posts_unsigned(b" " * (limit + 1)), 413, "body_too_large")
    padded = BEAT + b" " * (limit - len(BEAT))
    assert poster.posts(padded).counts == (1, 0)


# --- where it is posted --------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, NUMBER + 1, 2**31, 2**63, 10**40], ids=str)
def test_an_unknown_host_is_refused(poster: RelayPoster, number: int) -> None:
    assert_refused(poster.posts(BEAT, number=number), 404, "unknown_host")


@pytest.mark.parametrize(
    "number", ["9" * 5000, "-7", "7.0", "seven", "%37x", "\N{ARABIC-INDIC DIGIT SEVEN}"], ids=ascii
)
def test_an_address_without_a_number_does_not_exist(poster: RelayPoster, number: str) -> None:
    response = poster.client.post(f"/webhooks/relay/{number}/", BEAT, content_type="application/json")
    assert response.status_code == 404
    assert response.json()["code"] in {"not_found", "unknown_host"}


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "HEAD"])
def test_other_methods_are_not_offered(poster: RelayPoster, method: str) -> None:
    response = poster.client.generic(method, f"/webhooks/relay/{NUMBER}/", BEAT, headers=headers())
    assert response.status_code == 405
    assert response["Allow"] == "POST"
    assert not RelayEvent.objects.exists()


def test_what_is_refused_does_not_show_that_the_host_is_alive(poster: RelayPoster) -> None:
    Host.objects.update(last_seen_at=None)
    poster.posts(BEAT, secrets=[new_secret()])
    assert Host.objects.get().last_seen_at is None


@pytest.mark.django_db(transaction=True)
def test_all_of_it_over_a_socket(live_server: LiveServer) -> None:
    host = HostFactory.create()
    address = f"{live_server.url}/webhooks/relay/{host.number}/"
    signed = signature_headers([host.secret], message_id="call-1", now=utc_now(), body=BEAT)
    assert call("POST", address, BEAT, signed).body == {"accepted": 1, "duplicates": 0}
    assert call("POST", address, BEAT, signed).body == {"accepted": 0, "duplicates": 1}
    refused = call("POST", address, BEAT)
    assert (refused.status, refused.headers["Content-Type"]) == (401, "application/problem+json")
    assert call("GET", address).status == 405


def test_no_cross_site_token_is_asked_for(poster: RelayPoster) -> None:
    strict = RelayPoster(poster.host, Client(enforce_csrf_checks=True))
    assert strict.posts(BEAT).counts == (1, 0)
