"""A form that was opened before somebody else's change does not undo it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models import Model
from django.test import Client as Browser
from django.urls import reverse
from django_celery_beat.models import CrontabSchedule

from otp_service.events.models import Event
from otp_service.messages.models import Client
from servers.models import Group, Host, Server
from tests.factories import ClientFactory, GroupFactory, HostFactory, ServerFactory

pytestmark = pytest.mark.django_db


@dataclass(frozen=True, slots=True)
class Case:
    """A row as it was; what is changed of it, by whom, in which field."""

    model: type[Model]
    before: dict[str, Any]
    mine: tuple[str, str]
    theirs: tuple[str, Any]  # of another field
    also: tuple[str, Any]  # what they make of mine

    def make(self) -> Any:
        if self.model is CrontabSchedule:
            return CrontabSchedule.objects.create(**self.before)
        factories: dict[type[Model], Any] = {
            Client: ClientFactory,
            Host: HostFactory,
            Group: GroupFactory,
            Server: ServerFactory,
        }
        return factories[self.model].create(**self.before)

    def they_set(self, field: tuple[str, Any]) -> None:
        self.model._default_manager.update(**{field[0]: field[1]})

    def now(self) -> dict[str, Any]:
        return dict(self.model._default_manager.values(*self.before).get())


CASES = [
    pytest.param(
        Case(Client, {"name": "Shop", "enabled": True}, ("name", "Mine"), ("enabled", False), ("name", "Theirs")),
        id="client",
    ),
    pytest.param(
        Case(Host, {"name": "Attic", "enabled": True}, ("name", "Mine"), ("enabled", False), ("name", "Theirs")),
        id="host",
    ),
    pytest.param(
        Case(
            Host,
            {"number": 7, "base_url": "https://a.example"},
            ("number", "8"),
            ("base_url", "https://b.example"),
            ("number", 9),
        ),
        id="address of a host",
    ),
    pytest.param(
        Case(Group, {"name": "Quick", "failed_in_row": 2}, ("name", "Mine"), ("failed_in_row", 5), ("name", "Theirs")),
        id="group",
    ),
    pytest.param(
        Case(Group, {"priority": 3, "to_time": "23:59:59"}, ("priority", "4"), ("to_time", "08:00"), ("priority", 5)),
        id="window of a group",
    ),
    pytest.param(
        Case(
            Server,
            {"name": "first", "handle": "+34600000001"},
            ("name", "Mine"),
            ("handle", "+34600000002"),
            ("name", "Theirs"),
        ),
        id="server",
    ),
    pytest.param(
        Case(
            CrontabSchedule,
            {"minute": "1", "timezone": "UTC"},
            ("minute", "2"),
            ("timezone", "Asia/Tokyo"),
            ("minute", "3"),
        ),
        id="schedule",
    ),
]


def address(row: Model) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def as_shown(page: Any) -> dict[str, Any]:
    """What a browser sends of the form of a page that nobody has typed into."""
    form = page.context["adminform"].form
    sent: dict[str, Any] = {}
    for bound in form:
        value = bound.value()
        if isinstance(value, list):
            value = [getattr(item, "pk", item) for item in value]
        if value is not None and value is not False:
            sent[bound.html_name] = value if isinstance(value, list) else str(value)
    for tag in re.findall(r'<input type="hidden"[^>]*>', page.content.decode()):
        name, given = re.search(r'name="([^"]*)"', tag), re.search(r'value="([^"]*)"', tag)
        assert name
        if name[1].startswith("initial-") and isinstance(sent.get(name[1].removeprefix("initial-")), list):
            sent.setdefault(name[1], []).append(given[1] if given else "")
        elif name[1] != "csrfmiddlewaretoken":
            sent[name[1]] = unescape(given[1]) if given else ""
    return sent


@pytest.mark.parametrize("case", CASES)
def test_a_form_that_nobody_edited_changes_nothing(admin_client: Browser, case: Case) -> None:
    row = case.make()
    shown = as_shown(admin_client.get(address(row)))
    case.they_set(case.theirs)
    case.they_set(case.also)
    now = case.now()
    assert admin_client.post(address(row), shown).status_code == 302
    assert case.now() == now
    assert not Event.objects.exists()


@pytest.mark.parametrize("case", CASES)
def test_an_edit_leaves_what_somebody_else_changed_meanwhile(admin_client: Browser, case: Case) -> None:
    row = case.make()
    shown = as_shown(admin_client.get(address(row)))
    case.they_set(case.theirs)
    theirs = case.now()[case.theirs[0]]
    assert admin_client.post(address(row), shown | dict([case.mine])).status_code == 302
    assert str(case.now()[case.mine[0]]) == case.mine[1]
    assert case.now()[case.theirs[0]] == theirs
    assert case.theirs[0] not in LogEntry.objects.get().change_message


@pytest.mark.parametrize("case", CASES)
def test_what_both_changed_is_refused_once_with_how_it_is_now(admin_client: Browser, case: Case) -> None:
    row = case.make()
    shown = as_shown(admin_client.get(address(row)))
    case.they_set(case.also)
    before = case.now()
    answer = admin_client.post(address(row), shown | dict([case.mine]))
    assert answer.status_code == 200
    (sentence,) = answer.context["adminform"].form.errors.pop(case.mine[0])
    assert f"It is now: {case.also[1]}." in sentence
    assert not answer.context["adminform"].form.errors
    assert case.now() == before
    again = as_shown(answer)
    assert again[case.mine[0]] == case.mine[1]
    assert admin_client.post(address(row), again).status_code == 302
    assert str(case.now()[case.mine[0]]) == case.mine[1]


@pytest.mark.parametrize("case", CASES)
def test_what_both_made_the_same_is_no_fault(admin_client: Browser, case: Case) -> None:
    row = case.make()
    shown = as_shown(admin_client.get(address(row)))
    case.they_set(case.also)
    assert admin_client.post(address(row), shown | {case.also[0]: str(case.also[1])}).status_code == 302
    assert str(case.now()[case.also[0]]) == str(case.also[1])


@pytest.mark.parametrize("case", CASES)
def test_a_form_that_does_not_say_what_it_showed_is_compared_with_the_row_as_it_is(
    admin_client: Browser, case: Case
) -> None:
    row = case.make()
    shown = as_shown(admin_client.get(address(row)))
    bare = {name: value for name, value in shown.items() if not name.startswith("initial-")}
    assert admin_client.post(address(row), bare).status_code == 302
    assert LogEntry.objects.get().change_message == "[]"
    assert admin_client.post(address(row), bare | dict([case.mine])).status_code == 302
    assert str(case.now()[case.mine[0]]) == case.mine[1]


def test_a_number_that_the_form_showed_and_is_another_hosts_by_now_is_no_fault(admin_client: Browser) -> None:
    host = HostFactory.create(number=7, name="Attic")
    shown = as_shown(admin_client.get(address(host)))
    Host.objects.update(number=8)
    other = HostFactory.create(number=7)
    assert admin_client.post(address(host), shown | {"name": "Mine"}).status_code == 302
    assert list(Host.objects.order_by("pk").values_list("number", "name")) == [(8, "Mine"), (7, other.name)]


def test_groups_of_a_server_that_both_changed_are_refused_once(admin_client: Browser) -> None:
    server, held, mine, theirs = ServerFactory.create(), *(GroupFactory.create(name=name) for name in "ABC")
    server.groups.set([held])
    shown = as_shown(admin_client.get(address(server)))
    server.groups.set([theirs])
    answer = admin_client.post(address(server), shown | {"groups": [mine.pk]})
    assert "It is now: C." in answer.context["adminform"].form.errors["groups"][0]
    assert list(server.groups.all()) == [theirs]
    assert admin_client.post(address(server), as_shown(answer)).status_code == 302
    assert list(server.groups.all()) == [mine]


def test_a_host_of_a_server_that_somebody_else_chose_stays(admin_client: Browser) -> None:
    server, host = ServerFactory.create(last_sent_at=None, name=""), HostFactory.create()
    shown = as_shown(admin_client.get(address(server)))
    Server.objects.update(host=host)
    assert admin_client.post(address(server), shown | {"name": "Mine"}).status_code == 302
    server.refresh_from_db()
    assert (server.host, server.name) == (host, "Mine")


@pytest.mark.parametrize("nonsense", ["x", "\0", "99999999999999999999999"])
def test_nonsense_in_what_was_shown_is_no_error(admin_client: Browser, nonsense: str) -> None:
    server = ServerFactory.create(name="old")
    shown = as_shown(admin_client.get(address(server)))
    for name in ("unit", "host", "groups", "name"):
        answer = admin_client.post(address(server), shown | {f"initial-{name}": nonsense, "name": "new"})
        assert answer.status_code in (200, 302)
