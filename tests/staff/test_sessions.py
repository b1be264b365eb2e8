"""What a log-in leaves in the browser and in the database."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
import time_machine
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from pytest_django import Settings

from otp_service.staff.sessions import remove_old_sessions
from tests.house.fresh_settings import REQUIRED, read_settings
from tests.staff.browser import HOME, PASSWORD, PASSWORD_PAGE, Staff, a_strangers_session

HOUR = dt.timedelta(hours=1)
SECOND = dt.timedelta(seconds=1)


@pytest.fixture
def production(tmp_path: Path) -> dict[str, str]:
    """The environment of a production behind its proxy."""
    key = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    more = {"OTP_STATE_DIR": str(tmp_path), "BEHIND_TLS_PROXY": "true", "DJANGO_SECRET_KEY": key}
    return {**REQUIRED, **more, "ALLOWED_HOSTS": "testserver"}


@pytest.fixture
def as_in_production(settings: Settings, production: dict[str, str]) -> None:
    """What Django looks at, as production has it."""
    read = read_settings(production)
    for name in (name for name in read if name.startswith(("SESSION_", "CSRF_", "SEC", "X_FRAME", "ALLOWED", "DEBUG"))):
        setattr(settings, name, read[name])


@pytest.mark.usefixtures("as_in_production")
def test_cookies_are_for_this_site_alone(browser: Staff) -> None:
    browser.get(PASSWORD_PAGE, secure=True)
    browser.post(PASSWORD_PAGE, {"username": "ops", "password": PASSWORD}, secure=True)
    for name in ("sessionid", "csrftoken"):
        cookie = browser.cookies[name]
        assert (cookie["httponly"], cookie["secure"], cookie["samesite"]) == (True, True, "Lax")
    assert browser.cookies["sessionid"]["expires"] == browser.cookies["sessionid"]["max-age"] == ""


@pytest.mark.usefixtures("as_in_production")
def test_pages_are_framed_nowhere_and_tell_other_sites_nothing(browser: Staff) -> None:
    answer = browser.get(PASSWORD_PAGE, secure=True)
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["Referrer-Policy"] == "same-origin"
    assert answer["Cross-Origin-Opener-Policy"] == "same-origin"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Strict-Transport-Security"].startswith("max-age=31536000")
    assert "no-store" in answer["Cache-Control"]


def test_a_log_in_without_the_token_of_its_page_is_refused(browser: Staff, ops: User) -> None:
    strict = Staff()
    strict.handler.enforce_csrf_checks = True
    assert strict.give_password().status_code == 403


@pytest.mark.parametrize(("after", "is_in"), [(8 * HOUR - SECOND, True), (8 * HOUR, False)], ids=["before", "after"])
def test_a_session_ends_after_eight_hours(
    browser: Staff, clock: time_machine.Traveller, after: dt.timedelta, is_in: bool
) -> None:
    browser.give_password()
    clock.shift(after)
    assert browser.is_in() is is_in


def test_using_it_makes_it_no_longer(browser: Staff, clock: time_machine.Traveller) -> None:
    browser.give_password()
    for _ in range(7):
        clock.shift(HOUR)
        assert browser.is_in()
    clock.shift(HOUR)
    assert not browser.is_in()


def test_the_session_is_a_new_one_after_the_log_in(browser: Staff) -> None:
    known = a_strangers_session()
    browser.cookies["sessionid"] = known
    browser.give_password()
    assert browser.cookies["sessionid"].value != known


def test_a_new_password_ends_the_other_sessions(browser: Staff) -> None:
    other = Staff("198.51.100.9")
    for person in (browser, other):
        person.give_password()
    new = "another long password"
    answer = browser.post(
        "/admin/password_change/", {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    )
    assert answer.status_code == 302
    assert (browser.is_in(), other.is_in()) == (True, False)


def test_logging_out_ends_it(browser: Staff) -> None:
    browser.give_password()
    key = browser.cookies["sessionid"].value
    browser.post("/admin/logout/")
    assert not Session.objects.filter(pk=key).exists()
    assert browser.get(HOME).status_code == 302


def test_sessions_that_are_over_are_removed_and_no_others(
    browser: Staff, clock: time_machine.Traveller, now: dt.datetime
) -> None:
    for person in (browser, Staff("198.51.100.9")):
        person.give_password()
    clock.shift(HOUR)
    Staff("198.51.100.10").give_password()
    assert remove_old_sessions(now=now + 8 * HOUR) == 0
    assert remove_old_sessions(now=now + 8 * HOUR + SECOND, batch=1) == 1
    assert remove_old_sessions(now=now + 8 * HOUR + SECOND) == 1
    assert Session.objects.count() == 1


@pytest.mark.parametrize(
    ("name", "value", "setting", "expected"),
    [
        ("STAFF_LOCKOUT_AFTER", "3", "AXES_FAILURE_LIMIT", 3),
        ("STAFF_LOCKOUT_S", "60", "AXES_COOLOFF_TIME", dt.timedelta(minutes=1)),
        ("STAFF_SESSION_S", "3600", "SESSION_COOKIE_AGE", 3_600),
        ("STAFF_TOTP", "required", "STAFF_TOTP", "required"),
        ("OTP_EMBEDDED", "true", "SESSION_COOKIE_SECURE", False),
        ("OTP_EMBEDDED", "false", "CSRF_COOKIE_SECURE", True),
    ],
)
def test_settings_take(production: dict[str, str], name: str, value: str, setting: str, expected: object) -> None:
    assert read_settings(production | {name: value})[setting] == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("STAFF_LOCKOUT_AFTER", text) for text in ("0", "101", "2.5", "many")),
        *(("STAFF_LOCKOUT_S", text) for text in ("0", "86401", "nan")),
        *(("STAFF_SESSION_S", text) for text in ("59", "2592001", "8h")),
        *(("STAFF_TOTP", text) for text in ("on", "true", "Required")),
    ],
)
def test_settings_refuse(production: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=rf"^{name} is"):
        read_settings(production | {name: value})


@pytest.mark.django_db
@pytest.mark.usefixtures("as_in_production")
def test_nothing_is_found_unsafe_in_production() -> None:
    call_command("check", deploy=True, fail_level="WARNING")


@pytest.mark.django_db
@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("name", ["SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_SSL_REDIRECT"])
def test_what_is_unsafe_would_be_found(settings: Settings, name: str) -> None:
    setattr(settings, name, False)
    with pytest.raises(SystemCheckError, match=name):
        call_command("check", deploy=True, fail_level="WARNING")
