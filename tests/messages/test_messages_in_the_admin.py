"""Operators find messages, clients and keys; they see no text, no whole number and no digest."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from factory.django import DjangoModelFactory

from otp_service.messages.models import Client
from tests.factories import ApiKeyFactory, ClientFactory, FlowFactory, MessageFactory

FACTORIES: dict[str, type[DjangoModelFactory[Any]]] = {
    "client": ClientFactory,
    "apikey": ApiKeyFactory,
    "flow": FlowFactory,
    "message": MessageFactory,
}
PAGES = list(FACTORIES)


@pytest.fixture
def browser(db: None) -> Browser:
    browser = Browser()
    browser.force_login(User.objects.create(username="ops", is_staff=True, is_superuser=True))
    return browser


def listing(model: str) -> str:
    return reverse(f"admin:otp_messages_{model}_changelist")


def page_of(model: str, pk: int) -> str:
    return reverse(f"admin:otp_messages_{model}_change", args=[pk])


def make(model: str, number: int) -> list[int]:
    return [row.pk for row in FACTORIES[model].create_batch(number)]


@pytest.mark.parametrize("model", PAGES)
def test_list_takes_as_many_queries_for_ten_rows_as_for_one(browser: Browser, model: str) -> None:
    counts = []
    for number in (1, 9):
        make(model, number)
        with CaptureQueriesContext(connection) as queries:
            assert browser.get(listing(model)).status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("model", PAGES)
def test_page_of_one_row_opens(browser: Browser, model: str) -> None:
    (pk,) = make(model, 1)
    assert browser.get(page_of(model, pk)).status_code == 200


def test_message_shows_no_text_and_no_whole_number(browser: Browser) -> None:
    message = MessageFactory.create(text="Your code is 739184", number="+34612345678")
    for address in (listing("message"), page_of("message", message.pk)):
        with CaptureQueriesContext(connection) as queries:
            shown = browser.get(address).content.decode()
        assert not [query for query in queries if '"otp_messages_message"."text"' in query["sql"]]
        assert str(message.uuid) in shown
        assert "+34 6•• ••• •78" in shown
        assert "739184" not in shown
        assert "612345678" not in shown


@pytest.mark.parametrize("found_by", ["uuid", "reference"])
def test_message_is_found_by(browser: Browser, found_by: str) -> None:
    wanted, other = MessageFactory.create(reference="order 42"), MessageFactory.create(reference="order 421")
    shown = browser.get(listing("message"), {"q": str(getattr(wanted, found_by))}).content.decode()
    assert str(wanted.uuid) in shown
    assert str(other.uuid) not in shown


def test_key_shows_no_digest(browser: Browser) -> None:
    key = ApiKeyFactory.create()
    shown = browser.get(page_of("apikey", key.pk)).content.decode()
    assert key.prefix in shown
    assert "digest" not in shown.lower()
    assert bytes(key.digest).hex() not in shown


@pytest.mark.parametrize("model", ["apikey", "flow", "message"])
@pytest.mark.parametrize("action", ["add", "delete", "change"])
def test_what_services_write_is_not_edited(browser: Browser, model: str, action: str) -> None:
    (pk,) = make(model, 1)
    arguments = [] if action == "add" else [pk]
    assert browser.post(reverse(f"admin:otp_messages_{model}_{action}", args=arguments), {}).status_code == 403


def test_client_is_disabled_in_the_admin(browser: Browser) -> None:
    client = ClientFactory.create()
    browser.post(page_of("client", client.pk), {"name": client.name})
    assert not Client.objects.get().enabled


def test_editing_a_client_writes_only_what_was_edited(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    client = ClientFactory.create(name="Shop")
    original = Client.save

    def save_after_another_did(self: Client, *args: Any, **kwargs: Any) -> None:
        Client.objects.filter(pk=self.pk).update(enabled=False)
        original(self, *args, **kwargs)

    monkeypatch.setattr(Client, "save", save_after_another_did)
    answer = browser.post(page_of("client", client.pk), {"name": "Shop 2", "enabled": "on"})
    assert answer.status_code == 302
    client.refresh_from_db()
    assert (client.name, client.enabled) == ("Shop 2", False)
