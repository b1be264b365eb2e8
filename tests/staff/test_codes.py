"""With STAFF_TOTP=required a password opens nothing by itself: the code of a device does."""

from __future__ import annotations

import datetime as dt

import pytest
import time_machine
from django.contrib.auth.models import User
from django_otp.plugins.otp_static.models import StaticToken
from pytest_django import Settings

from tests.staff.browser import (
    CODE_PAGE,
    DEVICE_PAGE,
    HOME,
    PASSWORD_PAGE,
    Staff,
    a_strangers_session,
    app_of,
    every_admin_page,
    fail,
    recovery_code_of,
    shown_by,
    wrong_code,
)

pytestmark = pytest.mark.usefixtures("code_required")

STEP = dt.timedelta(seconds=30)


def test_a_password_and_a_code_open_what_was_asked_for(browser: Staff, ops: User) -> None:
    device = app_of(ops)
    asked = browser.give_password(next_url="/admin/servers/server/")
    assert (asked.status_code, asked["Location"]) == (302, CODE_PAGE)
    answer = browser.give_code(shown_by(device))
    assert (answer.status_code, answer["Location"]) == (302, "/admin/servers/server/")
    assert browser.is_in()


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_leads_to_no_other_site(browser: Staff, ops: User, elsewhere: str) -> None:
    device = app_of(ops)
    browser.give_password(next_url=elsewhere)
    assert browser.give_code(shown_by(device))["Location"] == HOME


@pytest.mark.parametrize("how", ["no password", "password only", "wrong code"])
def test_no_page_of_the_admin_is_open_before_the_code(browser: Staff, ops: User, how: str) -> None:
    device = app_of(ops)
    if how != "no password":
        browser.give_password()
    if how == "wrong code":
        browser.give_code(wrong_code(device))
    pages = every_admin_page()
    assert len(pages) > 20
    for page in pages:
        answer = browser.get(page)
        assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, PASSWORD_PAGE), page


def test_the_same_pages_are_open_with_it(browser: Staff, ops: User) -> None:
    device = app_of(ops)
    browser.give_password()
    browser.give_code(shown_by(device))
    for page in ("/admin/", "/admin/servers/server/", "/admin/password_change/"):
        assert browser.get(page).status_code == 200


@pytest.mark.parametrize("page", [CODE_PAGE, DEVICE_PAGE])
def test_pages_of_the_second_step_need_the_first(browser: Staff, ops: User, page: str) -> None:
    device = app_of(ops)
    for answer in (browser.get(page), browser.give_code(shown_by(device), page)):
        assert (answer.status_code, answer["Location"]) == (302, PASSWORD_PAGE)
    assert not browser.is_in()


def test_a_wrong_password_leads_to_no_code(browser: Staff, ops: User) -> None:
    app_of(ops)
    fail(browser, 1)
    assert browser.get(CODE_PAGE).status_code == 302


def test_a_wrong_code_is_said_on_the_page(browser: Staff, ops: User) -> None:
    device = app_of(ops)
    browser.give_password()
    answer = browser.give_code(wrong_code(device))
    assert answer.status_code == 200
    assert b"This code is not right" in answer.content


@pytest.mark.parametrize("spaced", ["{0[0]}{0[1]}{0[2]} {0[3]}{0[4]}{0[5]}", "  {0}\n"])
def test_spaces_in_a_code_do_not_matter(browser: Staff, ops: User, spaced: str) -> None:
    device = app_of(ops)
    browser.give_password()
    browser.give_code(spaced.format(shown_by(device)))
    assert browser.is_in()


@pytest.mark.parametrize(
    ("steps", "opens"),
    [(-2, False), (-1, True), (0, True), (1, True), (2, False)],
    ids=["a minute old", "the one before", "now's", "the next", "the one after it"],
)
def test_a_clock_may_be_off_by_half_a_minute(browser: Staff, ops: User, steps: int, opens: bool) -> None:
    device = app_of(ops)
    browser.give_password()
    browser.give_code(shown_by(device, steps=steps))
    assert browser.is_in() is opens


def test_a_code_opens_once(browser: Staff, ops: User) -> None:
    code = shown_by(app_of(ops))
    other = Staff()
    for person in (browser, other):
        person.give_password()
        answer = person.give_code(code)
    assert (browser.is_in(), other.is_in()) == (True, False)
    assert b"was used before" in answer.content


def test_somebody_elses_code_opens_nothing(browser: Staff, ops: User) -> None:
    app_of(ops)
    hers = app_of(User.objects.create_superuser("eve", password="a password of her own"))
    browser.give_password()
    browser.give_code(shown_by(hers))
    assert not browser.is_in()


@pytest.mark.parametrize(
    "code",
    [
        "",
        "   ",
        "12345",
        "1234567890123456789",
        "1" * 10_000,
        "\uff11\uff12\uff13\uff14\uff15\uff16",
        "+12345",
        "12_345",
        "12.456",
        "a\0bcdef",
        "🔑🔑🔑🔑🔑🔑",
    ],
    ids=["empty", "spaces", "short", "long", "very long", "wide digits", "sign", "underscore", "point", "NUL", "keys"],
)
def test_nonsense_is_refused_on_the_page_and_not_counted(browser: Staff, ops: User, code: str) -> None:
    device = app_of(ops)
    browser.give_password()
    for _ in range(6):
        answer = browser.give_code(code)
        assert answer.status_code == 200
        assert b"Write the six digits that your app shows, or a recovery code." in answer.content
    browser.give_code(shown_by(device))
    assert browser.is_in()


@pytest.mark.parametrize("body", [b"code=%ff%fe%fd%fc%fb%fa", b"code=\xff\xfe", b"", b"code=123456&code=%00"])
def test_bytes_that_are_no_text_are_refused_on_the_page(browser: Staff, ops: User, body: bytes) -> None:
    app_of(ops)
    browser.give_password()
    assert browser.generic("POST", CODE_PAGE, body, "application/x-www-form-urlencoded").status_code == 200


def test_after_a_wrong_code_even_the_right_one_waits(browser: Staff, ops: User, clock: time_machine.Traveller) -> None:
    device = app_of(ops)
    browser.give_password()
    browser.give_code(wrong_code(device))
    answer = browser.give_code(shown_by(device))
    assert b"wait 1 s" in answer.content
    assert not browser.is_in()
    clock.shift(dt.timedelta(seconds=1))
    browser.give_code(shown_by(device))
    assert browser.is_in()


def test_wrong_codes_lock_out_as_wrong_passwords_do(browser: Staff, ops: User, clock: time_machine.Traveller) -> None:
    device = app_of(ops)
    browser.give_password()
    statuses = []
    for _ in range(5):
        statuses.append(browser.give_code(wrong_code(device)).status_code)
        clock.shift(STEP)
    assert statuses == [200, 200, 200, 200, 429]
    assert browser.give_code(shown_by(device)).status_code == 429
    assert browser.give_password().status_code == 429
    assert not browser.is_in()


def test_giving_the_password_again_forgets_no_wrong_code(
    browser: Staff, ops: User, clock: time_machine.Traveller
) -> None:
    device = app_of(ops)
    for _ in range(4):
        browser.give_password()
        browser.give_code(wrong_code(device))
        clock.shift(STEP)
    browser.give_password()
    assert browser.give_code(wrong_code(device)).status_code == 429


@pytest.mark.parametrize(("minutes", "opens"), [(10, True), (11, False)])
def test_a_password_waits_ten_minutes_for_its_code(
    browser: Staff, ops: User, clock: time_machine.Traveller, minutes: int, opens: bool
) -> None:
    device = app_of(ops)
    browser.give_password()
    clock.shift(dt.timedelta(minutes=minutes))
    browser.give_code(shown_by(device))
    assert browser.is_in() is opens


@pytest.mark.parametrize("change", ["password", "is_active", "is_staff"])
def test_who_may_not_log_in_any_more_does_not_by_a_code(browser: Staff, ops: User, change: str) -> None:
    device = app_of(ops)
    browser.give_password()
    if change == "password":
        ops.set_password("another long password")
    else:
        setattr(ops, change, False)
    ops.save()
    assert browser.give_code(shown_by(device))["Location"] == PASSWORD_PAGE
    assert not browser.is_in()


def test_the_session_is_a_new_one_after_each_step(browser: Staff, ops: User) -> None:
    device = app_of(ops)
    keys = [a_strangers_session()]
    browser.cookies["sessionid"] = keys[0]
    browser.give_password()
    keys.append(browser.cookies["sessionid"].value)
    browser.give_code(shown_by(device))
    keys.append(browser.cookies["sessionid"].value)
    assert len(set(keys)) == 3


def test_a_session_from_before_codes_were_required_is_over(browser: Staff, settings: Settings) -> None:
    settings.STAFF_TOTP = "off"
    browser.give_password()
    assert browser.is_in()
    settings.STAFF_TOTP = "required"
    assert not browser.is_in()


def test_removing_a_device_ends_the_sessions_that_it_opened(browser: Staff, ops: User) -> None:
    device = app_of(ops)
    browser.give_password()
    browser.give_code(shown_by(device))
    device.delete()
    assert not browser.is_in()


@pytest.mark.parametrize("typed", ["abcdefgh", "ABCD EFGH"])
def test_a_recovery_code_opens_once(browser: Staff, ops: User, typed: str) -> None:
    app_of(ops)
    recovery_code_of(ops, "abcdefgh")
    other = Staff()
    for person in (browser, other):
        person.give_password()
        person.give_code(typed)
    assert (browser.is_in(), other.is_in()) == (True, False)
    assert not StaticToken.objects.exists()


def test_off_asks_for_no_code_and_shows_nothing_of_it(browser: Staff, ops: User, settings: Settings) -> None:
    settings.STAFF_TOTP = "off"
    app_of(ops)
    answer = browser.give_password()
    assert (answer.status_code, answer["Location"]) == (302, HOME)
    home = browser.get(HOME)
    assert home.status_code == 200
    assert b"otp_totp" not in home.content
    assert b"otp_static" not in home.content
    assert browser.get(CODE_PAGE)["Location"] == PASSWORD_PAGE


def test_who_is_in_is_not_asked_again(browser: Staff, ops: User) -> None:
    device = app_of(ops)
    browser.give_password()
    browser.give_code(shown_by(device))
    assert browser.get(PASSWORD_PAGE)["Location"] == HOME
