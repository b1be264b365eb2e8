"""Clients are made, disabled and given keys; a key is shown once, and by nothing but the page that made it."""

from __future__ import annotations

import datetime as dt
import io
import logging
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.db import connection
from django.db.models import ProtectedError
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from otp_service.events.models import Event
from otp_service.messages import api_keys
from otp_service.messages.models import ApiKey, Client
from tests.factories import NOON, ApiKeyFactory, ClientFactory, FlowFactory, MessageFactory

pytestmark = pytest.mark.django_db

CLIENTS, KEYS = "/admin/otp_messages/client/", "/admin/otp_messages/apikey/"


@pytest.fixture(autouse=True)
def at_noon_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otp_service.messages.admin_clients.utc_now", lambda: NOON)


def page_of(client: Client) -> str:
    return f"{CLIENTS}{client.pk}/change/"


def new_key(client: Client) -> str:
    return reverse("admin:otp_messages_client_new_key", args=[client.pk])


def revoke_page(key: ApiKey) -> str:
    return reverse("admin:otp_messages_apikey_revoke", args=[key.pk])


def staff(*codenames: str) -> Browser:
    user = User.objects.create_user("eve", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    browser = Browser()
    browser.force_login(user)
    return browser


def form_of(client: Client, **changed: str) -> dict[str, str]:
    """What the browser sends of a client's form."""
    inline = {"api_keys-TOTAL_FORMS": "0", "api_keys-INITIAL_FORMS": "0"}
    return inline | {"name": client.name, "enabled": "on" if client.enabled else ""} | changed


def said(answer: Any) -> str:
    return " ".join(str(message) for message in answer.context["messages"])


def events() -> list[tuple[Any, ...]]:
    return list(Event.objects.order_by("id").values_list("type", "subject_uuid", "client_id", "data"))


@pytest.mark.parametrize("listing", [CLIENTS, KEYS])
def test_list_takes_as_many_queries_for_ten_rows_as_for_one(admin_client: Browser, listing: str) -> None:
    counts = []
    for number in (1, 9):
        ApiKeyFactory.create_batch(number)
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(listing).status_code == 200
        counts.append(len(captured))
    assert counts[0] == counts[1]


def test_page_takes_as_many_queries_for_ten_keys_as_for_one(admin_client: Browser) -> None:
    client = ClientFactory.create()
    counts = []
    admin_client.get(page_of(client))  # fills caches
    for number in (1, 9):
        ApiKeyFactory.create_batch(number, client=client)
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(page_of(client)).status_code == 200
        counts.append(len(captured))
    assert counts[0] == counts[1]


def test_list_counts_the_keys_that_are_not_revoked(admin_client: Browser) -> None:
    client = ClientFactory.create()
    ApiKeyFactory.create_batch(2, client=client)
    ApiKeyFactory.create(client=client, revoked_at=NOON)
    (row,) = admin_client.get(CLIENTS).context["cl"].result_list
    assert row.keys_left == 2


def test_client_is_made(admin_client: Browser) -> None:
    answer = admin_client.post(f"{CLIENTS}add/", {"name": "Shop"})
    assert answer.status_code == 302
    client = Client.objects.get()
    assert (client.name, client.enabled, client.created_at) == ("Shop", True, NOON)


@pytest.mark.parametrize(
    "name", [pytest.param("", id="none"), pytest.param("Taken", id="taken"), pytest.param("x" * 101, id="101 letters")]
)
def test_client_needs_a_name_of_its_own(admin_client: Browser, name: str) -> None:
    ClientFactory.create(name="Taken")
    answer = admin_client.post(f"{CLIENTS}add/", {"name": name})
    assert answer.status_code == 200
    assert answer.context["errors"]
    assert Client.objects.count() == 1


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True)])
def test_client_is_disabled_and_enabled(admin_client: Browser, before: bool, after: bool) -> None:
    client = ClientFactory.create(enabled=before)
    admin_client.post(page_of(client), form_of(client, enabled="on" if after else ""))
    assert Client.objects.get().enabled is after


def test_editing_a_client_writes_only_what_was_edited(admin_client: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    client = ClientFactory.create(name="Shop")
    original = Client.save

    def save_after_another_did(self: Client, *args: Any, **kwargs: Any) -> None:
        Client.objects.filter(pk=self.pk).update(enabled=False)
        original(self, *args, **kwargs)

    monkeypatch.setattr(Client, "save", save_after_another_did)
    assert admin_client.post(page_of(client), form_of(client, name="Shop 2")).status_code == 302
    client.refresh_from_db()
    assert (client.name, client.enabled) == ("Shop 2", False)


def test_client_without_messages_is_deleted_with_its_keys(admin_client: Browser) -> None:
    key = ApiKeyFactory.create()
    FlowFactory.create(client=key.client)
    answer = admin_client.post(f"{CLIENTS}{key.client.pk}/delete/", {"post": "yes"}, follow=True)
    assert answer.status_code == 200
    assert not Client.objects.exists()
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize("method", ["get", "post"])
def test_client_with_messages_stays_and_it_is_said_why(admin_client: Browser, method: str) -> None:
    client = MessageFactory.create().client
    answer = getattr(admin_client, method)(f"{CLIENTS}{client.pk}/delete/", {"post": "yes"}, follow=True)
    assert answer.status_code == 200
    assert f"{client} has messages, so it cannot be deleted. Disable it" in said(answer)
    assert Client.objects.exists()


def test_a_message_that_comes_while_its_client_is_deleted_keeps_it(
    admin_client: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = ClientFactory.create()

    def too_late(self: Client) -> None:
        raise ProtectedError("has messages", set())

    monkeypatch.setattr(Client, "delete", too_late)
    answer = admin_client.post(f"{CLIENTS}{client.pk}/delete/", {"post": "yes"}, follow=True)
    assert "has messages" in said(answer)
    assert not LogEntry.objects.exists()


def test_clients_are_not_deleted_many_at_once(admin_client: Browser) -> None:
    client = MessageFactory.create().client
    chosen = {"action": "delete_selected", "_selected_action": str(client.pk), "post": "yes"}
    assert admin_client.post(CLIENTS, chosen).status_code in {200, 302}
    assert Client.objects.exists()


def test_a_new_key_opens_and_is_shown_by_one_page(admin_client: Browser, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client = ClientFactory.create()
    answer = admin_client.post(new_key(client), {"scopes": ["messages"]})
    text = answer.context["shown"].text
    assert text in answer.content.decode()
    assert "no-store" in answer["Cache-Control"]
    assert api_keys.caller(text, now=NOON).client_id == client.pk
    secret = text.split("_", 2)[2]
    kept = [
        [session.get_decoded() for session in Session.objects.all()],
        [cookie.value for cookie in admin_client.cookies.values()],
        list(LogEntry.objects.values()),
        list(Event.objects.values()),
        list(ApiKey.objects.values()),
        [record.__dict__ for record in caplog.records if record.name != "django.db.backends"],
        [admin_client.get(page).content.decode() for page in (page_of(client), KEYS, CLIENTS, new_key(client))],
    ]
    assert secret not in str(kept)


def test_making_a_key_leaves_an_event_that_the_client_cannot_see(admin_client: Browser, admin_user: User) -> None:
    client = ClientFactory.create()
    admin_client.post(new_key(client), {"scopes": ["messages"]})
    prefix = ApiKey.objects.get().prefix
    assert events() == [("api_key.created", client.uuid, None, {"prefix": prefix, "by": admin_user.username})]


@pytest.mark.parametrize(
    ("days", "expires_at"),
    [
        pytest.param("", None, id="none"),
        pytest.param("1", NOON + dt.timedelta(days=1), id="1"),
        pytest.param("3650", NOON + dt.timedelta(days=3650), id="3650"),
    ],
)
def test_a_key_may_end_by_itself(admin_client: Browser, days: str, expires_at: dt.datetime | None) -> None:
    admin_client.post(new_key(ClientFactory.create()), {"scopes": ["messages"], "days": days})
    assert ApiKey.objects.get().expires_at == expires_at


@pytest.mark.parametrize(
    "form",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"scopes": []}, id="no scope"),
        pytest.param({"scopes": ["everything"]}, id="no such scope"),
        *[pytest.param({"scopes": ["messages"], "days": d}, id=d) for d in ("0", "3651", "-1", "soon", "9" * 30)],
    ],
)
def test_no_key_is_made_by_a_form_with_faults(admin_client: Browser, form: dict[str, Any]) -> None:
    answer = admin_client.post(new_key(ClientFactory.create()), form)
    assert answer.status_code == 200
    assert answer.context["form"].errors
    assert not ApiKey.objects.exists()


def test_no_key_is_made_by_a_link(admin_client: Browser) -> None:
    assert admin_client.get(new_key(ClientFactory.create()), {"scopes": "messages"}).status_code == 200
    assert not ApiKey.objects.exists()


def test_a_page_makes_one_key_however_often_it_is_sent(admin_client: Browser) -> None:
    client = ClientFactory.create()
    sent = {"scopes": ["messages"], "seen": admin_client.get(new_key(client)).context["form"]["seen"].value()}
    assert "shown" in admin_client.post(new_key(client), sent).context
    again = admin_client.post(new_key(client), sent)
    assert "was made since this page was opened" in again.content.decode()
    assert client.api_keys.count() == 1
    sent["seen"] = admin_client.get(new_key(client)).context["form"]["seen"].value()
    assert "shown" in admin_client.post(new_key(client), sent).context
    assert client.api_keys.count() == 2


def test_no_key_is_kept_without_its_event(admin_client: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr("otp_service.messages.api_keys.events.record", fails)
    key = ApiKeyFactory.create()
    admin_client.raise_request_exception = False
    assert admin_client.post(new_key(key.client), {"scopes": ["messages"], "seen": key.pk}).status_code == 500
    assert admin_client.post(revoke_page(key), {}).status_code == 500
    assert list(ApiKey.objects.values_list("pk", "revoked_at")) == [(key.pk, None)]


@pytest.mark.parametrize(
    ("codenames", "status"),
    [
        (("view_client", "change_client", "change_apikey"), 403),
        (("add_apikey",), 403),
        (("view_client", "add_apikey"), 200),
    ],
)
def test_it_takes_the_permission_to_add_a_key(codenames: tuple[str, ...], status: int) -> None:
    answer = staff(*codenames).post(new_key(ClientFactory.create()), {"scopes": ["messages"]})
    assert answer.status_code == status
    assert ApiKey.objects.count() == (status == 200)


def test_a_key_is_revoked_from_its_clients_page_once_confirmed(admin_client: Browser, admin_user: User) -> None:
    key = ApiKeyFactory.create()
    assert revoke_page(key) in admin_client.get(page_of(key.client)).content.decode()
    asked = admin_client.get(revoke_page(key))
    assert asked.status_code == 200
    assert key.prefix in asked.content.decode()
    assert not events()
    answer = admin_client.post(revoke_page(key), {"confirmed": "yes"})
    assert (answer.status_code, answer["Location"]) == (302, page_of(key.client))
    key.refresh_from_db()
    assert key.revoked_at == NOON
    data = {"prefix": key.prefix, "by": admin_user.username}
    assert events() == [("api_key.revoked", key.client.uuid, None, data)]
    assert revoke_page(key) not in admin_client.get(page_of(key.client)).content.decode()


def test_keys_are_revoked_from_their_list_once_confirmed(admin_client: Browser) -> None:
    chosen, other = ApiKeyFactory.create_batch(2), ApiKeyFactory.create()
    before = ApiKeyFactory.create(revoked_at=NOON - dt.timedelta(days=1))
    form = {"action": "revoke_selected", "_selected_action": [key.pk for key in (*chosen, before)]}
    asked = admin_client.post(KEYS, form)
    assert all(key.prefix in asked.content.decode() for key in (*chosen, before))
    assert not events()
    answer = admin_client.post(KEYS, form | {"confirmed": "yes"}, follow=True)
    assert said(answer).count("is revoked") == 2
    assert f"{before.prefix} was revoked before" in said(answer)
    assert [row[0] for row in events()] == ["api_key.revoked"] * 2
    left = ApiKey.objects.filter(revoked_at=None)
    assert list(left) == [other]
    before.refresh_from_db()
    assert before.revoked_at == NOON - dt.timedelta(days=1)


@pytest.mark.parametrize(
    ("codenames", "may"),
    [(("view_client", "view_apikey", "add_apikey"), False), (("view_apikey", "change_apikey"), True)],
)
def test_it_takes_the_permission_to_change_keys(codenames: tuple[str, ...], may: bool) -> None:
    browser, key = staff(*codenames), ApiKeyFactory.create()
    form = {"action": "revoke_selected", "_selected_action": [key.pk], "confirmed": "yes"}
    browser.post(KEYS, form)
    assert (ApiKey.objects.get().revoked_at is not None) is may
    assert browser.post(revoke_page(key), {}).status_code == (302 if may else 403)


@pytest.mark.parametrize("key", ["nonsense", "99999999999999999999999", "4711"])
@pytest.mark.parametrize("page", [f"{KEYS}{{}}/revoke/", f"{CLIENTS}{{}}/new-key/"])
def test_what_there_is_not_is_not_found(admin_client: Browser, page: str, key: str) -> None:
    assert admin_client.post(page.format(key), {"scopes": ["messages"]}).status_code == 404


def test_no_page_reads_or_shows_a_digest(admin_client: Browser) -> None:
    key = ApiKeyFactory.create()
    for address in (KEYS, f"{KEYS}{key.pk}/change/", page_of(key.client), revoke_page(key), CLIENTS):
        with CaptureQueriesContext(connection) as captured:
            shown = admin_client.get(address).content.decode()
        assert "digest" not in shown.lower()
        assert bytes(key.digest).hex() not in shown
        assert not [query for query in captured if '"digest"' in query["sql"]]


@pytest.mark.parametrize("action", ["add", "delete", "change"])
def test_a_key_is_not_edited(admin_client: Browser, action: str) -> None:
    arguments = [] if action == "add" else [ApiKeyFactory.create().pk]
    assert admin_client.post(reverse(f"admin:otp_messages_apikey_{action}", args=arguments), {}).status_code == 403


@pytest.mark.parametrize("asked", ["digest", "digest__gt", "client__name", "nonsense"])
def test_an_address_asks_about_nothing_but_the_filters(admin_client: Browser, asked: str) -> None:
    assert admin_client.get(KEYS, {asked: "x"}).status_code == 400


def test_commands_leave_events_too() -> None:
    out = io.StringIO()
    call_command("create_client", "Shop", stdout=out)
    call_command("create_api_key", "Shop", stdout=out)
    first, second = (line.split("_")[1] for line in out.getvalue().split())
    call_command("revoke_api_key", first, stdout=out)
    client = Client.objects.get()
    assert events() == [
        ("api_key.created", client.uuid, None, {"prefix": first, "by": "command line"}),
        ("api_key.created", client.uuid, None, {"prefix": second, "by": "command line"}),
        ("api_key.revoked", client.uuid, None, {"prefix": first, "by": "command line"}),
    ]
