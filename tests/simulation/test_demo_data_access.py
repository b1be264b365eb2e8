"""The way in that the demo makes: a key, an administrator, and the file that tells them."""

from __future__ import annotations

import datetime as dt
import json
import stat
from pathlib import Path

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.http import HttpRequest
from pytest_django import Settings

from otp_service.core import phone_numbers
from otp_service.core.clock import utc_now
from otp_service.messages import api_keys
from otp_service.messages.models import ApiKey, Client
from otp_service.simulation.demo_file import read_access
from tests.simulation.demo_runs import DemoRuns

pytestmark = pytest.mark.django_db


@pytest.fixture
def demo(settings: Settings, tmp_path: Path) -> DemoRuns:
    """The command, on an empty state folder."""
    return DemoRuns.local(settings, tmp_path)


def opens(key: str) -> bool:
    """Whether the API takes the key."""
    try:
        return api_keys.caller(key, now=utc_now()).scopes == {"messages"}
    except api_keys.KeyRefused:
        return False


def test_the_file_is_readable_by_its_owner_only(demo: DemoRuns) -> None:
    demo()
    assert stat.S_IMODE(demo.access_file.stat().st_mode) == 0o600


def test_the_file_holds_exactly_the_four_things(demo: DemoRuns) -> None:
    demo()
    assert set(demo.access) == {"username", "password", "api_key", "to"}


def test_the_key_of_the_file_opens_the_api_for_messages(demo: DemoRuns) -> None:
    demo()
    assert opens(demo.access["api_key"])
    assert ApiKey.objects.get().client == Client.objects.get(name="Demo")


def test_the_log_in_of_the_file_is_an_administrator(demo: DemoRuns) -> None:
    demo()
    user = authenticate(HttpRequest(), username=demo.access["username"], password=demo.access["password"])
    assert isinstance(user, User)
    assert (user.username, user.is_superuser, user.is_staff) == ("admin", True, True)


def test_the_number_to_send_to_is_a_valid_spanish_one(demo: DemoRuns) -> None:
    demo()
    assert phone_numbers.parse(demo.access["to"]) == demo.access["to"]
    assert demo.access["to"].startswith("+34")


def test_nothing_secret_is_said(demo: DemoRuns) -> None:
    said = demo()
    assert str(demo.access_file) in said
    assert demo.access["password"] not in said
    assert demo.access["api_key"] not in said
    assert demo.access["api_key"].split("_", 2)[2] not in said


def test_nothing_secret_is_in_the_repr(demo: DemoRuns) -> None:
    demo()
    shown = repr(read_access(demo.access_file))
    assert "admin" in shown
    assert demo.access["password"] not in shown
    assert demo.access["api_key"] not in shown


def test_a_lost_file_is_written_again_with_a_new_key_and_a_new_password(demo: DemoRuns) -> None:
    demo()
    lost = demo.access
    demo.access_file.unlink()
    demo()
    assert demo.access["api_key"] != lost["api_key"]
    assert opens(demo.access["api_key"])
    assert authenticate(HttpRequest(), username="admin", password=lost["password"]) is None
    assert authenticate(HttpRequest(), username="admin", password=demo.access["password"]) is not None
    assert (Client.objects.count(), User.objects.count()) == (1, 1)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"username": "admin"}'])
def test_a_file_that_is_not_whole_is_written_again(demo: DemoRuns, content: str) -> None:
    demo()
    demo.access_file.write_text(content)
    demo()
    assert opens(demo.access["api_key"])


def test_a_file_of_another_database_is_written_again(demo: DemoRuns) -> None:
    demo()
    foreign = {**demo.access, "api_key": f"otp_{'a' * 12}_{'b' * 43}"}
    demo.access_file.write_text(json.dumps(foreign))
    demo()
    assert opens(demo.access["api_key"])


def test_a_key_that_a_person_revoked_stays_revoked(demo: DemoRuns, now: dt.datetime) -> None:
    demo()
    access = demo.access
    api_keys.revoke(ApiKey.objects.get().prefix, now=now)
    demo()
    assert demo.access == access
    assert ApiKey.objects.count() == 1


def test_a_password_that_a_person_changed_stays_changed(demo: DemoRuns) -> None:
    demo()
    user = User.objects.get(username="admin")
    user.set_password("a person's own")
    user.save()
    demo()
    assert authenticate(HttpRequest(), username="admin", password="a person's own") is not None
