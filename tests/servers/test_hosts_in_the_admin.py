"""Hosts in the admin: whether they are heard of, and their secrets, which are shown once."""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.sessions.models import Session
from django.db import IntegrityError, connection
from django.test import Client

from servers import creation
from servers.api import queries
from servers.creation import PREVIOUS_SECRET_FOR, CreationRefused, rotate_secret
from servers.hosts import online_hosts
from servers.models import Host
from tests.factories import NOON, HostFactory, ServerFactory
from tests.staff_members import allow, logged_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("_noon")]

PAGE = "/admin/servers/host/"
TICK = dt.timedelta(microseconds=1)
OLD, OLDER = "whsec_" + "B" * 42 + "E=", "whsec_" + "C" * 42 + "E="
NEW = {"number": 7, "name": "Attic", "base_url": "https://relay.example/h/", "protocol": "native"}


@pytest.fixture
def _noon() -> Any:
    with time_machine.travel(NOON, tick=False):
        yield


@pytest.fixture
def keeper(client: Client) -> Client:
    """Staff who may look at hosts; tests give more."""
    return logged_in(client, "servers.view_host")


def edit(host: Host, **changes: Any) -> dict[str, Any]:
    """What the form of a host sends."""
    names = ("number", "name", "base_url", "protocol")
    return {name: getattr(host, name) for name in names} | {"enabled": "on"} | changes


def nowhere_else(client: Client, secret: str, caplog: pytest.LogCaptureFixture) -> bool:
    """Whether a secret is in none of the places that keep things."""
    places = [
        *(entry.change_message + entry.object_repr for entry in LogEntry.objects.all()),
        *(str(session.get_decoded()) for session in Session.objects.all()),
        *(morsel.value for morsel in client.cookies.values()),
        caplog.text,
        *(client.get(address).content.decode() for address in (PAGE, f"{PAGE}{Host.objects.get().pk}/change/")),
    ]
    return all(secret not in place for place in places)


# --- the list and the form -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "online"),
    [
        pytest.param({"last_seen_at": NOON}, True, id="heard of now"),
        pytest.param({"last_seen_at": NOON, "enabled": False}, False, id="disabled"),
        pytest.param({"last_seen_at": None}, False, id="never heard of"),
        pytest.param({"last_seen_at": NOON - dt.timedelta(hours=1)}, False, id="silent"),
        pytest.param({"last_seen_at": NOON - settings.HOST_OFFLINE_AFTER}, True, id="just in time"),
        pytest.param({"last_seen_at": NOON - settings.HOST_OFFLINE_AFTER - TICK}, False, id="just too long ago"),
    ],
)
def test_pages_say_which_hosts_are_online(admin_client: Client, fields: dict[str, Any], online: bool) -> None:
    made = HostFactory.create(**fields)
    page = admin_client.get(PAGE)
    (host,) = page.context["cl"].result_list
    assert page.context["cl"].model_admin.is_online(host) is online
    form = admin_client.get(f"{PAGE}{made.pk}/change/").context["adminform"]
    assert form.model_admin.is_online(form.form.instance) is online
    assert (made.pk in online_hosts(NOON)) is online
    assert [row.online for row in queries.hosts(NOON)] == [online]  # type: ignore[attr-defined]  # an annotation


def test_the_list_counts_servers_and_leads_to_them(admin_client: Client) -> None:
    host = HostFactory.create()
    for _ in range(2):
        ServerFactory.create(host=host)
    ServerFactory.create()
    address = f"/admin/servers/server/?host__id__exact={host.pk}"
    assert f'<a href="{address}" class="text-link">2</a>' in admin_client.get(PAGE).content.decode()
    assert admin_client.get(address).context["cl"].result_count == 2


def test_no_page_of_a_host_shows_its_secrets(admin_client: Client) -> None:
    host = HostFactory.create(secret=OLD, previous_secret=OLDER, previous_secret_until=NOON)
    for address in ("", f"{host.pk}/change/", f"{host.pk}/new-secret/", f"{host.pk}/history/"):
        page = admin_client.get(PAGE + address)
        assert page.status_code == 200
        assert "whsec" not in page.content.decode()


def test_a_host_is_edited_without_touching_its_secrets(admin_client: Client) -> None:
    host = HostFactory.create(secret=OLD)
    form = edit(host, name="Cellar", base_url="https://new.example/h/", secret=OLDER, enabled="")
    assert admin_client.post(f"{PAGE}{host.pk}/change/", form).status_code == 302
    host.refresh_from_db()
    assert (host.name, host.base_url, host.enabled, host.secret) == ("Cellar", "https://new.example/h", False, OLD)


@pytest.mark.parametrize("base_url", ["", "relay", "ftp://relay.example", "https://relay.example/?a=b", "https://a b"])
@pytest.mark.parametrize("adding", [True, False])
def test_an_address_that_nobody_can_call_is_a_fault_of_its_field(
    admin_client: Client, adding: bool, base_url: str
) -> None:
    host = None if adding else HostFactory.create(base_url="https://old.example")
    form = NEW if host is None else edit(host)
    answer = admin_client.post(PAGE + ("add/" if host is None else f"{host.pk}/change/"), form | {"base_url": base_url})
    assert answer.status_code == 200
    assert answer.context["adminform"].form.errors.keys() == {"base_url"}
    assert list(Host.objects.values_list("base_url", flat=True)) == ([] if adding else ["https://old.example"])


def test_a_host_is_never_deleted(admin_client: Client) -> None:
    host = HostFactory.create()
    assert admin_client.post(f"{PAGE}{host.pk}/delete/", {"post": "yes"}).status_code == 403
    assert Host.objects.exists()


# --- adding --------------------------------------------------------------------------------------------


def test_a_host_that_is_added_is_as_the_command_makes_it_and_its_secret_is_shown_once(
    admin_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert admin_client.get(f"{PAGE}add/").status_code == 200
    answer = admin_client.post(f"{PAGE}add/", NEW)
    host = Host.objects.get()
    assert (host.number, host.name, host.base_url) == (7, "Attic", "https://relay.example/h")
    assert (host.enabled, host.last_seen_at, host.previous_secret) == (True, None, None)
    assert answer.status_code == 200
    assert host.secret in answer.content.decode()
    assert "http://testserver/webhooks/relay/7/" in answer.content.decode()
    assert "no-store" in answer.headers["Cache-Control"]
    assert LogEntry.objects.get().object_id == str(host.pk)
    assert nowhere_else(admin_client, host.secret, caplog)


def test_a_number_that_is_taken_is_a_fault_of_its_field(admin_client: Client) -> None:
    HostFactory.create(number=7, secret=OLD)
    answer = admin_client.post(f"{PAGE}add/", NEW)
    assert answer.context["adminform"].form.errors.keys() == {"number"}
    assert Host.objects.get().secret == OLD


def test_a_number_that_somebody_takes_at_this_moment_is_a_fault_of_the_form(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = creation.create_host

    def create_after_another(*args: Any, **kwargs: Any) -> Host:
        HostFactory.create(number=7)
        return original(*args, **kwargs)

    monkeypatch.setattr(creation, "create_host", create_after_another)
    answer = admin_client.post(f"{PAGE}add/", NEW)
    assert answer.status_code == 200
    assert "There is a host 7 already." in answer.content.decode()
    assert "whsec" not in answer.content.decode()


def test_a_number_that_somebody_takes_while_a_host_is_edited_is_a_fault_of_the_form(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = HostFactory.create(number=6)
    original = Host.save

    def save_after_another(self: Host, *args: Any, **kwargs: Any) -> None:
        Host.objects.bulk_create([HostFactory.build(number=7)])
        original(self, *args, **kwargs)

    monkeypatch.setattr(Host, "save", save_after_another)
    answer = admin_client.post(f"{PAGE}{host.pk}/change/", edit(host, number=7))
    assert answer.status_code == 200
    assert "Somebody was faster" in answer.content.decode()
    assert list(Host.objects.values_list("number", flat=True)) == [6]


@pytest.mark.parametrize("field", ["base_url", "name"])
def test_a_fault_that_is_nobodys_race_is_not_taken_for_one(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    host = HostFactory.create(number=6)
    original = Host.save

    def save_without_a_value(self: Host, *args: Any, **kwargs: Any) -> None:
        setattr(self, field, None)
        original(self, *args, **kwargs)

    monkeypatch.setattr(Host, "save", save_without_a_value)
    with pytest.raises(IntegrityError):
        admin_client.post(f"{PAGE}{host.pk}/change/", edit(host, **{field: "https://new.example"}))
    assert Host.objects.filter(number=6).exists()


# --- a new secret --------------------------------------------------------------------------------------


def test_a_new_secret_is_made_after_a_page_that_asks_and_shown_once(
    admin_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    host = HostFactory.create(secret=OLD)
    assert f'href="{PAGE}{host.pk}/new-secret/"' in admin_client.get(f"{PAGE}{host.pk}/change/").content.decode()
    page = admin_client.get(f"{PAGE}{host.pk}/new-secret/").content.decode()
    assert "For 24 hours" in page
    host.refresh_from_db()
    assert host.secret == OLD
    answer = admin_client.post(f"{PAGE}{host.pk}/new-secret/", {"seen": ""})
    host.refresh_from_db()
    assert host.secret != OLD
    assert host.secrets(NOON + PREVIOUS_SECRET_FOR - dt.timedelta(seconds=1)) == [host.secret, OLD]
    assert host.secrets(NOON + PREVIOUS_SECRET_FOR) == [host.secret]
    assert host.secret in answer.content.decode()
    assert OLD not in answer.content.decode()
    assert "no-store" in answer.headers["Cache-Control"]
    assert LogEntry.objects.get().change_message == "Made a new secret."
    assert nowhere_else(admin_client, host.secret, caplog)


def test_saying_yes_twice_makes_one_new_secret(admin_client: Client) -> None:
    host = HostFactory.create(secret=OLD)
    address = f"{PAGE}{host.pk}/new-secret/"
    admin_client.post(address, {"seen": ""})
    first = Host.objects.get().secret
    answer = admin_client.post(address, {"seen": ""}, follow=True)
    assert "Somebody gave" in answer.content.decode()
    assert "whsec" not in answer.content.decode()
    assert Host.objects.get().secrets(NOON) == [first, OLD]


@pytest.mark.parametrize(("until", "warned"), [(NOON + dt.timedelta(hours=1), True), (NOON, False)])
def test_a_secret_before_the_present_one_ends_with_a_warning(
    admin_client: Client, until: dt.datetime, warned: bool
) -> None:
    host = HostFactory.create(secret=OLD, previous_secret=OLDER, previous_secret_until=until)
    address = f"{PAGE}{host.pk}/new-secret/"
    assert ("It would end now" in admin_client.get(address).content.decode()) is warned
    assert admin_client.post(address, {"seen": until.isoformat()}).status_code == 200
    assert Host.objects.get().secrets(NOON)[1:] == [OLD]


def test_a_new_secret_that_loses_a_race_is_not_made(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostFactory.create(secret=OLD)
    original = creation.rotate_secret

    def rotate_after_another(host_id: int, **kwargs: Any) -> Host:
        original(host_id, now=NOON, previous_until=None)
        return original(host_id, **kwargs)

    monkeypatch.setattr(creation, "rotate_secret", rotate_after_another)
    answer = admin_client.post(f"{PAGE}{host.pk}/new-secret/", {"seen": ""}, follow=True)
    assert "Somebody gave" in answer.content.decode()
    assert Host.objects.get().previous_secret == OLD


def test_a_secret_that_no_key_opens_is_replaced(admin_client: Client) -> None:
    host = HostFactory.create(secret=OLD)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE servers_host SET secret = %s", [b"sealed with a key that is gone"])
    address = f"{PAGE}{host.pk}/new-secret/"
    assert admin_client.get(address).status_code == 200
    answer = admin_client.post(address, {"seen": ""})
    host = Host.objects.get()
    assert host.secret in answer.content.decode()
    assert (host.previous_secret, host.previous_secret_until) == (None, None)


def test_a_host_that_is_not_there_gets_no_secret(admin_client: Client) -> None:
    assert admin_client.get(f"{PAGE}999999/new-secret/").status_code == 404
    with pytest.raises(Host.DoesNotExist):
        rotate_secret(999_999, now=NOON, previous_until=None)
    host = HostFactory.create()
    with pytest.raises(CreationRefused):
        rotate_secret(host.pk, now=NOON, previous_until=NOON)


@pytest.mark.parametrize("count", [1, 2])
def test_the_action_leads_one_host_to_the_page_that_asks(admin_client: Client, count: int) -> None:
    hosts = [HostFactory.create() for _ in range(count)]
    chosen = {"action": "choose_new_secret", "_selected_action": [host.pk for host in hosts]}
    answer = admin_client.post(PAGE, chosen)
    asks = f"{PAGE}{hosts[0].pk}/new-secret/"
    assert answer.headers["Location"] == (asks if count == 1 else PAGE)


# --- who may -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("permission", "may"), [("add_host", False), ("change_host", True)])
def test_a_new_secret_takes_the_permission_to_change(keeper: Client, permission: str, may: bool) -> None:
    allow(f"servers.{permission}")
    host = HostFactory.create(secret=OLD)
    address = f"{PAGE}{host.pk}/new-secret/"
    assert ("new-secret" in keeper.get(f"{PAGE}{host.pk}/change/").content.decode()) is may
    assert (keeper.get(PAGE).context["action_form"] is not None) is may
    assert keeper.get(address).status_code == (200 if may else 403)
    assert keeper.post(address, {"seen": ""}).status_code == (200 if may else 403)
    assert (Host.objects.get().secret != OLD) is may


@pytest.mark.parametrize(("permission", "may"), [("change_host", False), ("add_host", True)])
def test_a_host_takes_the_permission_to_add(keeper: Client, permission: str, may: bool) -> None:
    allow(f"servers.{permission}")
    assert keeper.post(f"{PAGE}add/", NEW).status_code == (200 if may else 403)
    assert Host.objects.exists() is may


@pytest.mark.parametrize("address", ["", "add/", "1/change/", "1/new-secret/"])
def test_strangers_are_sent_to_log_in(client: Client, address: str) -> None:
    for answer in (client.get(PAGE + address), client.post(PAGE + address, NEW)):
        assert (answer.status_code, answer.headers["Location"].split("?")[0]) == (302, "/admin/login/")
    assert not Host.objects.exists()
