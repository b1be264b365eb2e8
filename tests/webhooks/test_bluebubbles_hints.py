"""What a BlueBubbles server posts has its host asked soon, and changes nothing by itself."""

from __future__ import annotations

import datetime as dt
import json
import logging
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from structlog.testing import capture_logs

from otp_service.messages.models import Attempt, Message
from otp_service.messages.rules import AttemptState
from servers.hosts import webhook_path
from servers.models import Host, Server
from servers.relay.bluebubbles_tokens import webhook_token
from servers.relay.events import BODY_LIMIT
from tests.factories import NOON, AttemptFactory, HostFactory, InternalSendFactory, ServerFactory
from webhooks.inbound import bluebubbles
from webhooks.inbound.bluebubbles import HINT_WAIT
from webhooks.inbound.models import RawCall

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("at_noon")]

UNIT = 4_000_228
PASSWORD, OLD_PASSWORD = "p&ss w=rd", "older"
GUID = "5F1C2B7A-98D3-5E10-8C44-1A2B3C4D5E6F"  # of the payloads
SOON, LATER = NOON + HINT_WAIT, NOON + dt.timedelta(minutes=2)
MICROSECOND = dt.timedelta(microseconds=1)
PAYLOADS = Path(__file__).parent / "payloads" / "bluebubbles"


def payload(name: str) -> bytes:
    return (PAYLOADS / f"{name}.json").read_bytes()


def named(attempt_uuid: uuid.UUID) -> bytes:
    """A new message that carries our id."""
    document = json.loads(payload("new_message"))
    document["data"]["tempGuid"] = str(attempt_uuid)
    return json.dumps(document).encode()


@pytest.fixture
def host(db: None) -> Host:
    return HostFactory.create(number=UNIT, protocol="bluebubbles", secret=PASSWORD, last_seen_at=None)


@pytest.fixture
def server(host: Host) -> Server:
    return ServerFactory.create(host=host, unit=UNIT)


def attempt_on(server: Server, **fields: Any) -> Attempt:
    return AttemptFactory.create(
        server=server, **{"provider_message_id": GUID, "check_at": LATER, "checks_made": 3, **fields}
    )


def post(client: Client, path: str, body: bytes) -> int:
    return client.post(path, body, content_type="application/json").status_code


def row(attempt: Attempt) -> Mapping[str, Any]:
    return Attempt.objects.values().get(pk=attempt.pk)


@pytest.mark.parametrize(
    "name",
    ["new_message", "updated_message_delivered", "updated_message_read", "message_send_error", "new_message_by_sms"],
)
def test_a_post_about_an_attempt_has_its_host_asked_soon_and_changes_nothing_else(
    client: Client, host: Host, server: Server, name: str
) -> None:
    attempt = attempt_on(server, uuid=uuid.UUID(int=1))
    before, message = row(attempt), Message.objects.values().get(pk=attempt.message_id)
    assert post(client, webhook_path(host), payload(name)) == 200
    assert row(attempt) == {**before, "check_at": SOON, "checks_made": 2}
    assert Message.objects.values().get(pk=attempt.message_id) == message
    assert Host.objects.get(pk=host.pk).last_seen_at is None


def test_our_own_id_names_an_attempt_whose_guid_is_not_known(client: Client, host: Host, server: Server) -> None:
    attempt = attempt_on(server, provider_message_id="", state=AttemptState.UNKNOWN)
    assert post(client, webhook_path(host), named(attempt.uuid)) == 200
    assert row(attempt)["check_at"] == SOON


@pytest.mark.parametrize(
    ("fields", "asked_at"),
    [
        pytest.param({"check_at": SOON + MICROSECOND}, SOON, id="asked later"),
        pytest.param({"check_at": SOON}, SOON, id="asked then"),
        pytest.param({"check_at": NOON}, NOON, id="asked before"),
        pytest.param({"check_at": None, "checks_made": 8}, SOON, id="asked often enough"),
        pytest.param({"check_at": None, "state": "delivered", "finished_at": NOON}, None, id="ended"),
        pytest.param({"check_at": None, "state": "submitting", "settled_at": None}, None, id="not settled"),
    ],
)
def test_an_attempt_is_asked_about_once_in_a_second_and_while_something_is_open(
    client: Client, host: Host, server: Server, fields: dict[str, Any], asked_at: dt.datetime | None
) -> None:
    attempt = attempt_on(server, **fields)
    for _ in range(3):
        assert post(client, webhook_path(host), payload("updated_message_delivered")) == 200
    assert row(attempt)["check_at"] == asked_at


def test_a_flood_uses_up_no_question_and_is_kept_once(client: Client, host: Host, server: Server) -> None:
    attempt = attempt_on(server, checks_made=7)
    for _ in range(5):
        assert post(client, webhook_path(host), payload("updated_message_delivered")) == 200
        # What the resolver does when it asks.
        Attempt.objects.filter(pk=attempt.pk).update(check_at=LATER, checks_made=row(attempt)["checks_made"] + 1)
    assert row(attempt)["checks_made"] == 7
    assert [bytes(call.body.encode()) for call in RawCall.objects.all()] == [payload("updated_message_delivered")]


def test_another_hosts_attempts_are_not_named(client: Client, host: Host, server: Server) -> None:
    attempt = attempt_on(ServerFactory.create())
    assert post(client, webhook_path(host), payload("updated_message_delivered")) == 200
    assert row(attempt)["check_at"] == LATER


@pytest.mark.parametrize("name", ["hello_world", "typing_indicator", "aliases_removed", "inbound", "new_server"])
def test_what_names_nothing_of_ours_is_answered_200(client: Client, host: Host, server: Server, name: str) -> None:
    signed_in = server.signed_in
    assert post(client, webhook_path(host), payload(name)) == 200
    assert Server.objects.get(pk=server.pk).signed_in == signed_in


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"", 400, id="empty"),
        pytest.param(b"\xff", 400, id="not UTF-8"),
        pytest.param(b"[]", 400, id="a list"),
        pytest.param(b'{"type": "updated-message", "data": {"isFromMe": true}}', 400, id="names nothing"),
        pytest.param(b"{" + b" " * BODY_LIMIT, 413, id="too large"),
    ],
)
def test_what_is_no_event_is_refused_with_a_sentence(client: Client, host: Host, body: bytes, status: int) -> None:
    answer = client.post(webhook_path(host), body, content_type="application/json")
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
    assert answer.json()["detail"]


def test_only_posts_are_taken(client: Client, host: Host) -> None:
    assert client.get(webhook_path(host)).status_code == 405


# --- the token -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "é",
        ".",
        f"{UNIT}",
        f"{UNIT}.",
        webhook_token(UNIT, PASSWORD)[:-1],
        webhook_token(UNIT, PASSWORD) + "A",
        webhook_token(UNIT, PASSWORD).lower(),
        webhook_token(UNIT, OLD_PASSWORD),
        webhook_token(UNIT + 1, PASSWORD),
        webhook_token(9_999_999_999, PASSWORD),
        webhook_token(10**30, PASSWORD),
        PASSWORD,
    ],
)
def test_with_a_wrong_token_nothing_is_taken(client: Client, host: Host, server: Server, token: str) -> None:
    HostFactory.create(number=UNIT + 1, protocol="bluebubbles", secret="another")
    attempt = attempt_on(server)
    path = webhook_path(host).replace(webhook_token(UNIT, PASSWORD), token)
    assert post(client, path, payload("updated_message_delivered")) == 404
    assert row(attempt)["check_at"] == LATER
    assert not RawCall.objects.exists()


def test_a_native_host_has_no_token(client: Client) -> None:
    native = HostFactory.create(number=UNIT, secret=PASSWORD)
    path = f"/webhooks/bluebubbles/{webhook_token(UNIT, PASSWORD)}/"
    assert post(client, path, payload("new_message")) == 404
    assert webhook_path(native) == f"/webhooks/relay/{UNIT}/"


@pytest.mark.parametrize(("until", "status"), [(NOON + MICROSECOND, 200), (NOON, 404)], ids=["valid", "over"])
def test_the_address_of_the_previous_password_is_good_for_as_long_as_that(
    client: Client, host: Host, until: dt.datetime, status: int
) -> None:
    path = webhook_path(host)
    Host.objects.filter(pk=host.pk).update(secret="new", previous_secret=PASSWORD, previous_secret_until=until)
    assert post(client, path, payload("new_message")) == status


def test_the_token_is_in_no_log_whatever_happens(
    client: Client, host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client.raise_request_exception = False
    token = webhook_token(UNIT, PASSWORD)

    def breaks(*_arguments: object, **_named: object) -> None:
        raise RuntimeError("broken")

    with capture_logs() as logs:
        assert post(client, f"/webhooks/bluebubbles/{token}x/", b"{}") == 404
        assert post(client, webhook_path(host), b"{}") == 400
        monkeypatch.setattr(bluebubbles, "take", breaks)
        assert post(client, webhook_path(host), payload("new_message")) == 500
    assert "/webhooks/bluebubbles/" in caplog.text  # Django's line about the 500
    assert token not in caplog.text + str(logs)
    assert {"host": UNIT, "event": "bluebubbles_token_refused", "log_level": "warning"} in logs


# --- what a hint leads to ------------------------------------------------------------------------------


def test_an_internal_send_is_asked_about_soon(client: Client, host: Host, server: Server) -> None:
    send = InternalSendFactory.create(sender=server, guid=GUID, check_at=LATER)
    assert post(client, webhook_path(host), payload("updated_message_delivered")) == 200
    send.refresh_from_db()
    assert (send.check_at, send.state) == (SOON, "accepted")


def test_one_that_is_handed_over_now_is_left_to_its_process(client: Client, host: Host, server: Server) -> None:
    send = InternalSendFactory.create(sender=server, state="submitting", check_at=LATER)
    assert post(client, webhook_path(host), named(send.uuid)) == 200
    send.refresh_from_db()
    assert send.check_at == LATER
