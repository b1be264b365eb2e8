"""Nobody without a valid key of the right client gets anything, or learns anything."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable

import pytest
from django.http import HttpResponse

from otp_service.messages import api_keys
from otp_service.messages.models import ApiKey, Client, IdempotencyKey, Message
from tests.factories import ClientFactory, MessageFactory
from tests.messages.client_api import LEAST, MESSAGES, ClientApi, body, code

CALLS: dict[str, Callable[[ClientApi, Message], HttpResponse]] = {
    "post": lambda api, _: api.send(key="k"),
    "list": lambda api, _: api.get(MESSAGES),
    "get": lambda api, message: api.get(f"{MESSAGES}{message.uuid}/"),
    "explain": lambda api, message: api.get(f"{MESSAGES}{message.uuid}/explain/"),
    "cancel": lambda api, message: api.call("POST", f"{MESSAGES}{message.uuid}/cancel/"),
}


@pytest.fixture
def message(api: ClientApi) -> Message:
    """A message of the client whose key is tried."""
    return MessageFactory.create(flow__client=api.client)


@pytest.fixture(params=CALLS)
def attempt(request: pytest.FixtureRequest, api: ClientApi, message: Message) -> Callable[[], HttpResponse]:
    return lambda: CALLS[request.param](api, message)


def refused(answer: HttpResponse, expected: str) -> bool:
    """401, with a challenge, and the message as it was."""
    assert (answer.status_code, code(answer)) == (401, expected)
    assert answer["WWW-Authenticate"] == 'Bearer realm="api"'
    assert list(Message.objects.values_list("status", flat=True)) == ["queued"]
    return not IdempotencyKey.objects.exists()


def test_valid_key_opens_what_the_tests_below_try(attempt: Callable[[], HttpResponse]) -> None:
    assert attempt().status_code in {200, 202}


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param("", "not_authenticated", id="none"),
        pytest.param("Basic b3RwOm90cA==", "not_a_bearer_token", id="another scheme"),
        pytest.param("Bearer", "not_a_bearer_token", id="a scheme alone"),
        pytest.param("Bearer  ", "key_not_valid", id="spaces"),
        pytest.param("Bearer otp", "key_not_valid", id="no key"),
        pytest.param(f"Bearer otp_{'a' * 12}_{'A' * 43}", "key_not_valid", id="an unknown key"),
        pytest.param(f"Bearer otp_{'é' * 12}_{'A' * 43}", "key_not_valid", id="not ASCII"),
        pytest.param(f"Bearer otp_{'a' * 12}_{'A' * 100_000}", "key_not_valid", id="endless"),
    ],
)
def test_header_that_is_no_key_is_refused(api: ClientApi, message: Message, header: str, expected: str) -> None:
    answer = api.call("GET", MESSAGES, headers={"Authorization": header})
    assert refused(answer, expected)


def test_scheme_may_be_written_in_any_case(api: ClientApi) -> None:
    assert api.call("GET", MESSAGES, headers={"Authorization": f"bearer {api.key}"}).status_code == 200


def test_wrong_secret_is_refused(api: ClientApi, attempt: Callable[[], HttpResponse]) -> None:
    api.key = api.key[:-1] + ("A" if api.key[-1] != "A" else "B")
    assert refused(attempt(), "key_not_valid")


def test_revoked_key_is_refused(api: ClientApi, attempt: Callable[[], HttpResponse], now: dt.datetime) -> None:
    assert api_keys.revoke(ApiKey.objects.get().prefix, now=now)
    assert refused(attempt(), "key_revoked")


@pytest.mark.parametrize(("left_s", "opens"), [(0, False), (0.000001, True)])
def test_key_opens_until_it_expires(
    api: ClientApi, message: Message, now: dt.datetime, left_s: float, opens: bool
) -> None:
    ApiKey.objects.update(expires_at=now + dt.timedelta(seconds=left_s))
    answer = api.get(MESSAGES)
    assert answer.status_code == 200 if opens else refused(answer, "key_expired")


def test_key_of_a_disabled_client_is_refused(api: ClientApi, attempt: Callable[[], HttpResponse]) -> None:
    Client.objects.update(enabled=False)
    assert refused(attempt(), "client_disabled")


def test_what_is_wrong_with_a_key_is_told_only_to_who_has_its_secret(api: ClientApi, now: dt.datetime) -> None:
    ApiKey.objects.update(revoked_at=now)
    assert code(api.get(MESSAGES)) == "key_revoked"
    prefix = ApiKey.objects.get().prefix
    answer = api.call("GET", MESSAGES, headers={"Authorization": f"Bearer otp_{prefix}_{'A' * 43}"})
    assert code(answer) == "key_not_valid"


def test_key_without_the_scope_is_forbidden(
    api: ClientApi, attempt: Callable[[], HttpResponse], now: dt.datetime
) -> None:
    _, api.key = api_keys.create(api.client, [], now)
    answer = attempt()
    assert (answer.status_code, code(answer)) == (403, "scope_missing")
    assert "messages" in body(answer)["detail"]
    assert list(Message.objects.values_list("status", flat=True)) == ["queued"]


@pytest.mark.parametrize("name", ["get", "explain", "cancel"])
def test_another_clients_message_is_as_one_that_does_not_exist(
    api: ClientApi, message: Message, now: dt.datetime, name: str
) -> None:
    stranger = ClientApi(ClientFactory.create(), now=now)
    nobodys = MessageFactory.build(flow=message.flow, uuid=uuid.uuid4())
    foreign, unknown = CALLS[name](stranger, message), CALLS[name](stranger, nobodys)
    assert (foreign.status_code, code(foreign)) == (404, "not_found")
    assert foreign.content == unknown.content
    assert list(Message.objects.values_list("status", flat=True)) == ["queued"]
    assert CALLS[name](api, message).status_code == 200


def test_another_clients_messages_are_not_listed(api: ClientApi, message: Message, now: dt.datetime) -> None:
    stranger = ClientApi(ClientFactory.create(), now=now)
    for query in ({}, {"to": "+34600000000"}, {"status": "queued"}):
        assert body(stranger.get(MESSAGES, **query))["results"] == []
    assert len(body(api.get(MESSAGES))["results"]) == 1


def test_another_clients_cursor_shows_only_ones_own(api: ClientApi, message: Message, now: dt.datetime) -> None:
    MessageFactory.create(flow=message.flow)
    cursor = body(api.get(MESSAGES, limit="1"))["next_cursor"]
    stranger = ClientApi(ClientFactory.create(), now=now)
    assert body(stranger.get(MESSAGES, cursor=cursor))["results"] == []


def test_another_clients_idempotency_key_is_free(api: ClientApi, now: dt.datetime) -> None:
    stranger = ClientApi(ClientFactory.create(), now=now)
    first, second = api.send(key="k"), stranger.send({**LEAST, "text": "Another"}, key="k")
    assert (first.status_code, second.status_code) == (202, 202)
    assert body(first)["id"] != body(second)["id"]
