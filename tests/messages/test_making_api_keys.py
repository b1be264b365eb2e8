"""Keys are shown once, stored as a digest, and ended by their prefix."""

from __future__ import annotations

import datetime as dt
import hashlib
import io

import pytest
from django.core.management import CommandError, call_command

from otp_service.messages import api_keys
from otp_service.messages.api_keys import Scope
from otp_service.messages.models import ApiKey, Client
from otp_service.web.authentication import Caller
from tests.factories import ClientFactory

pytestmark = pytest.mark.django_db


def printed(*command: str) -> str:
    out = io.StringIO()
    call_command(*command, stdout=out)
    return out.getvalue().strip()


def test_keeps_the_prefix_and_a_digest_of_256_random_bits(now: dt.datetime) -> None:
    key, text = api_keys.create(ClientFactory.create(), [Scope.MESSAGES, Scope.MESSAGES], now)
    name, prefix, secret = text.split("_", 2)
    assert (name, prefix, len(prefix), len(secret)) == ("otp", key.prefix, 12, 43)
    stored = ApiKey.objects.values().get()
    assert bytes(stored["digest"]) == hashlib.sha256(secret.encode()).digest()
    assert stored["scopes"] == ["messages"]
    assert secret not in repr((key, str(key), stored))


def test_no_two_keys_are_the_same(now: dt.datetime) -> None:
    client = ClientFactory.create()
    texts = {api_keys.create(client, [Scope.MESSAGES], now)[1] for _ in range(50)}
    assert len(texts) == 50


def test_two_keys_of_a_client_are_valid_at_a_time(now: dt.datetime) -> None:
    client = ClientFactory.create()
    for _ in range(2):
        _, text = api_keys.create(client, [Scope.MESSAGES], now)
        assert api_keys.caller(text, now=now) == Caller(client.pk, frozenset({"messages"}))
    assert client.api_keys.count() == 2


def test_revoking_twice_keeps_the_first_time(now: dt.datetime) -> None:
    key, _ = api_keys.create(ClientFactory.create(), [Scope.MESSAGES], now)
    assert api_keys.revoke(key.prefix, now=now)
    assert not api_keys.revoke(key.prefix, now=now + dt.timedelta(hours=1))
    key.refresh_from_db()
    assert key.revoked_at == now


def test_create_client_prints_a_key_that_opens(now: dt.datetime) -> None:
    text = printed("create_client", "Shop")
    client = Client.objects.get()
    assert (client.name, client.created_at) == ("Shop", now)
    assert api_keys.caller(text, now=now) == Caller(client.pk, frozenset({"messages"}))


def test_create_client_gives_the_scopes_that_are_named(now: dt.datetime) -> None:
    text = printed("create_client", "Shop", "--scope", "messages")
    assert api_keys.caller(text, now=now).scopes == {"messages"}


def test_create_client_leaves_an_existing_client_alone(now: dt.datetime) -> None:
    ClientFactory.create(name="Shop")
    with pytest.raises(CommandError, match="create_api_key"):
        printed("create_client", "Shop")
    assert not ApiKey.objects.exists()


def test_create_client_refuses_an_unknown_scope() -> None:
    with pytest.raises(CommandError, match="invalid choice"):
        printed("create_client", "Shop", "--scope", "everything")
    assert not Client.objects.exists()


def test_create_api_key_adds_a_key_that_ends(now: dt.datetime) -> None:
    first = printed("create_client", "Shop")
    second = printed("create_api_key", "Shop", "--days", "90")
    later = now + dt.timedelta(days=90)
    assert api_keys.caller(first, now=later) == api_keys.caller(second, now=later - dt.timedelta(seconds=1))
    with pytest.raises(api_keys.KeyRefused, match="expired"):
        api_keys.caller(second, now=later)


def test_create_api_key_names_the_client_that_is_missing() -> None:
    with pytest.raises(CommandError, match="create_client"):
        printed("create_api_key", "Shop")


def test_revoke_api_key_ends_a_key_once(now: dt.datetime) -> None:
    text = printed("create_client", "Shop")
    printed("revoke_api_key", text.split("_")[1])
    with pytest.raises(api_keys.KeyRefused, match="revoked"):
        api_keys.caller(text, now=now)
    with pytest.raises(CommandError, match="no such key"):
        printed("revoke_api_key", text.split("_")[1])
