"""How an app becomes somebody's device, and how it stops to be."""

from __future__ import annotations

import datetime as dt
import io

import pytest
import time_machine
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice

from otp_service.staff import devices
from tests.staff.browser import (
    CODE_PAGE,
    DEVICE_PAGE,
    HOME,
    PASSWORD_PAGE,
    Staff,
    app_of,
    recovery_code_of,
    secret_on,
    shown_by,
    shown_for,
)

pytestmark = pytest.mark.usefixtures("code_required")


def set_up(browser: Staff) -> str:
    """Give the password and read the secret from the page."""
    browser.give_password()
    return secret_on(browser.get(DEVICE_PAGE))


@pytest.fixture
def administrator(browser: Staff, ops: User, clock: time_machine.Traveller) -> Staff:
    """Logged in by password and code."""
    device = app_of(ops)
    browser.give_password()
    browser.give_code(shown_by(device))
    return browser


def test_who_has_no_device_is_led_to_set_one_up(browser: Staff) -> None:
    answer = browser.post(PASSWORD_PAGE, {"username": "ops", "password": "correct horse battery"}, follow=True)
    assert answer.redirect_chain[-1] == (DEVICE_PAGE, 302)
    page = answer.content.decode()
    assert 'src="data:image/svg+xml;base64,' in page
    assert 'src="http' not in page
    assert "no-store" in answer["Cache-Control"]
    assert not browser.is_in()


def test_the_first_code_confirms_it_and_opens(browser: Staff, ops: User) -> None:
    secret = set_up(browser)
    answer = browser.give_code(shown_for(secret), DEVICE_PAGE)
    assert (answer.status_code, answer["Location"]) == (302, HOME)
    assert browser.is_in()
    device = TOTPDevice.objects.get()
    assert (device.user, device.key, device.confirmed) == (ops, secret, True)


def test_the_same_code_opens_nothing_more_and_the_next_one_does(browser: Staff, clock: time_machine.Traveller) -> None:
    secret = set_up(browser)
    browser.give_code(shown_for(secret), DEVICE_PAGE)
    other = Staff()
    other.give_password()
    other.give_code(shown_for(secret))
    assert not other.is_in()
    clock.shift(dt.timedelta(seconds=30))
    other.give_code(shown_for(secret))
    assert other.is_in()


def test_a_wrong_code_confirms_nothing(browser: Staff) -> None:
    secret = set_up(browser)
    right = {shown_for(secret, steps=steps) for steps in (-1, 0, 1)}
    wrong = next(code for code in ("000000", "111111", "222222", "333333") if code not in right)
    answer = browser.give_code(wrong, DEVICE_PAGE)
    assert answer.status_code == 200
    assert b"not the code of this secret" in answer.content
    assert secret_on(answer) == secret
    assert not TOTPDevice.objects.exists()
    assert not browser.is_in()


@pytest.mark.parametrize("code", ["", "12345", "abcdef", "1" * 10_000, "\uff11\uff12\uff13\uff14\uff15\uff16", "a\0b"])
def test_nonsense_is_refused_on_the_page(browser: Staff, code: str) -> None:
    set_up(browser)
    answer = browser.give_code(code, DEVICE_PAGE)
    assert answer.status_code == 200
    assert b"Write the six digits that your app shows." in answer.content


def test_with_a_device_no_other_can_be_set_up(browser: Staff, ops: User) -> None:
    app_of(ops)
    browser.give_password()
    for answer in (browser.get(DEVICE_PAGE), browser.give_code("123456", DEVICE_PAGE)):
        assert (answer.status_code, answer["Location"]) == (302, CODE_PAGE)
    assert TOTPDevice.objects.count() == 1


def test_of_two_who_set_one_up_at_once_the_second_gets_none(browser: Staff) -> None:
    thief = Staff("198.51.100.9")
    his, hers = set_up(thief), set_up(browser)
    assert his != hers
    browser.give_code(shown_for(hers), DEVICE_PAGE)
    thief.give_code(shown_for(his), DEVICE_PAGE)
    assert TOTPDevice.objects.get().key == hers
    assert (browser.is_in(), thief.is_in()) == (True, False)


def test_a_device_is_never_replaced_by_setting_one_up(ops: User, now: dt.datetime) -> None:
    first, second = "11" * 20, "22" * 20
    with time_machine.travel(now, tick=False):
        assert devices.add_app(ops, first, shown_for(first), now=now) is not None
        assert devices.add_app(ops, second, shown_for(second), now=now) is None
    assert TOTPDevice.objects.get().key == first


def test_the_secret_is_another_one_after_each_password(browser: Staff) -> None:
    assert set_up(browser) != set_up(browser)


def test_a_recovery_code_from_before_the_first_log_in_is_asked_for(browser: Staff, ops: User) -> None:
    code = recovery_code_of(ops)
    browser.give_password()
    assert browser.get(DEVICE_PAGE)["Location"] == CODE_PAGE
    assert browser.give_code(code)["Location"] == DEVICE_PAGE
    assert not browser.is_in()
    secret = secret_on(browser.get(DEVICE_PAGE))
    browser.give_code(shown_for(secret), DEVICE_PAGE)
    assert browser.is_in()


def test_no_secret_is_written_into_the_log(browser: Staff, written: io.StringIO) -> None:
    secret = set_up(browser)
    code = shown_for(secret)
    browser.give_code(code, DEVICE_PAGE)
    told = written.getvalue()
    assert "staff_device_added" in told
    assert secret not in told
    assert code not in told


def test_the_admin_shows_devices_without_their_secrets(administrator: Staff, ops: User) -> None:
    code = recovery_code_of(ops)
    device = TOTPDevice.objects.get()
    paper = StaticDevice.objects.get(user=ops)
    for page in (
        "/admin/otp_totp/totpdevice/",
        f"/admin/otp_totp/totpdevice/{device.pk}/change/",
        "/admin/otp_static/staticdevice/",
        f"/admin/otp_static/staticdevice/{paper.pk}/change/",
    ):
        answer = administrator.get(page)
        assert answer.status_code == 200, page
        assert device.key not in answer.content.decode()
        assert code not in answer.content.decode()
    assert administrator.get("/admin/otp_totp/totpdevice/add/").status_code == 403


@pytest.mark.parametrize("lookup", ["key__startswith", "user__password__startswith", "last_t__gt"])
def test_no_secret_can_be_guessed_at_by_the_address_of_the_list(administrator: Staff, lookup: str) -> None:
    assert administrator.get("/admin/otp_totp/totpdevice/", {lookup: "0"}).status_code == 400


def test_removed_by_another_administrator_its_owner_sets_up_another(administrator: Staff) -> None:
    eve = User.objects.create_superuser("eve", password="a password of her own")
    lost = app_of(eve)
    administrator.post(f"/admin/otp_totp/totpdevice/{lost.pk}/delete/", {"post": "yes"})
    hers = Staff("198.51.100.9")
    hers.give_password("a password of her own", "eve")
    hers.give_code(shown_for(secret_on(hers.get(DEVICE_PAGE))), DEVICE_PAGE)
    assert hers.is_in()


def test_the_admin_shows_who_is_locked_out_and_lets_them_try_again(administrator: Staff, ops: User) -> None:
    from axes.models import AccessAttempt

    eve = User.objects.create_superuser("eve", password="a password of her own")
    hers = Staff("198.51.100.9")
    for _ in range(5):
        hers.give_password("wrong", "eve")
    page = administrator.get("/admin/axes/accessattempt/")
    assert b"198.51.100.9" in page.content
    row = AccessAttempt.objects.get(username=eve.username)
    assert administrator.get(f"/admin/axes/accessattempt/{row.pk}/change/").status_code == 200
    administrator.post(f"/admin/axes/accessattempt/{row.pk}/delete/", {"post": "yes"})
    assert hers.give_password("a password of her own", "eve").status_code == 302


def test_a_command_removes_the_devices_of_who_has_lost_them_all(ops: User, capsys: pytest.CaptureFixture[str]) -> None:
    eve = User.objects.create_superuser("eve", password="a password of her own")
    kept = app_of(ops)
    app_of(eve)
    recovery_code_of(eve)
    call_command("remove_staff_devices", "eve")
    assert capsys.readouterr().out == "2 devices removed\n"
    assert list(TOTPDevice.objects.all()) == [kept]


@pytest.mark.django_db
def test_the_command_names_what_is_wrong() -> None:
    with pytest.raises(CommandError, match="no user of this name"):
        call_command("remove_staff_devices", "nobody")
