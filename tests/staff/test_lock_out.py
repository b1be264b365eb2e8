"""After too many failed log-ins nothing more is looked at for a while, from that address."""

from __future__ import annotations

import datetime as dt
import io

import pytest
import time_machine
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from pytest_django import Settings

from otp_service.staff.lock_out import remove_old_attempts
from tests.staff.browser import PASSWORD_PAGE, WRONG, Staff, fail

LOCK_OUT = dt.timedelta(minutes=15)
MOMENT = dt.timedelta(microseconds=1)
CANARY = "hunter2-typed-into-the-wrong-field"


@pytest.mark.parametrize(
    ("failures", "status", "is_in"),
    [(0, 302, True), (4, 302, True), (5, 429, False), (6, 429, False)],
    ids=["none", "one below", "at the limit", "over it"],
)
def test_the_right_password_opens_until_the_fifth_failure(
    browser: Staff, failures: int, status: int, is_in: bool
) -> None:
    fail(browser, failures)
    assert browser.give_password().status_code == status
    assert browser.is_in() is is_in


def test_the_fifth_failure_is_the_first_one_that_says_so(browser: Staff) -> None:
    assert fail(browser, 6) == [200, 200, 200, 200, 429, 429]


def test_says_in_words_when_to_try_again(browser: Staff, clock: time_machine.Traveller) -> None:
    fail(browser, 5)
    clock.shift(dt.timedelta(minutes=5))
    answer = browser.give_password()
    page = " ".join(answer.content.decode().split())
    assert "Try again in 11 minutes, after 12:16 UTC." in page
    assert (answer["Retry-After"], answer["Cache-Control"]) == (
        "601",
        "max-age=0, no-cache, no-store, must-revalidate, private",
    )


@pytest.mark.parametrize(("after", "status"), [(LOCK_OUT, 429), (LOCK_OUT + MOMENT, 302)], ids=["at its end", "after"])
def test_ends(browser: Staff, clock: time_machine.Traveller, after: dt.timedelta, status: int) -> None:
    fail(browser, 5)
    clock.shift(after)
    assert browser.give_password().status_code == status


def test_tries_in_the_meantime_make_it_no_longer(browser: Staff, clock: time_machine.Traveller) -> None:
    fail(browser, 5)
    clock.shift(LOCK_OUT - MOMENT)
    fail(browser, 3)
    clock.shift(2 * MOMENT)
    assert browser.give_password().status_code == 302


def test_after_it_there_are_five_failures_again(browser: Staff, clock: time_machine.Traveller) -> None:
    fail(browser, 5)
    clock.shift(LOCK_OUT + MOMENT)
    assert fail(browser, 5) == [200, 200, 200, 200, 429]


def test_a_log_in_forgets_the_failures_before_it(browser: Staff) -> None:
    fail(browser, 4)
    browser.give_password()
    assert fail(browser, 4) == [200] * 4


def test_a_stranger_elsewhere_locks_nobody_out(browser: Staff) -> None:
    fail(Staff("198.51.100.9"), 6)
    assert browser.give_password().status_code == 302


def test_another_browser_at_the_same_address_is_no_way_round(browser: Staff) -> None:
    for number in range(5):
        fail(Staff("203.0.113.7", **{"User-Agent": f"browser {number}"}), 1)
    assert browser.give_password().status_code == 429


@pytest.mark.parametrize(("failures", "status"), [(19, 302), (20, 429)], ids=["one below", "at the limit"])
def test_an_address_that_tries_many_names_is_locked_out_as_a_whole(browser: Staff, failures: int, status: int) -> None:
    for number in range(failures):
        fail(browser, 1, f"somebody-{number}")
    assert browser.give_password().status_code == status


def test_logging_in_does_not_forget_what_the_address_tried_with_other_names(browser: Staff) -> None:
    User.objects.create_user("eve", password="a password of her own", is_staff=True)
    for number in range(19):
        fail(browser, 1, f"somebody-{number}")
    browser.give_password("a password of her own", "eve")
    assert fail(browser, 1, "somebody else") == [429]


@pytest.mark.parametrize("header", ["9.9.9.{}", "203.0.113.7, 9.9.9.{}"])
def test_a_header_that_a_stranger_writes_is_no_way_round(browser: Staff, header: str) -> None:
    for number in range(5):
        fail(Staff("203.0.113.7", **{"X-Forwarded-For": header.format(number)}), 1)
    assert browser.give_password().status_code == 429


def through_proxy(client: str) -> Staff:
    """As a proxy passes on what `client` sends with a header of its own."""
    forwarded = {"X-Forwarded-For": f"9.9.9.9, {client}", "X-Forwarded-Proto": "https"}
    return Staff("10.0.0.1", **forwarded)


def test_behind_a_proxy_it_is_the_address_that_the_proxy_saw(browser: Staff, settings: Settings) -> None:
    settings.BEHIND_TLS_PROXY = True
    fail(through_proxy("203.0.113.7"), 5)
    assert through_proxy("203.0.113.7").give_password().status_code == 429
    assert through_proxy("203.0.113.8").give_password().status_code == 302


def test_a_name_that_nobody_has_is_locked_out_in_the_same_way(browser: Staff) -> None:
    assert fail(browser, 6, "nobody") == [200, 200, 200, 200, 429, 429]


def test_what_is_typed_into_the_wrong_field_is_kept_nowhere(browser: Staff, written: io.StringIO) -> None:
    for _ in range(6):
        browser.post(f"{PASSWORD_PAGE}?next=/admin/", {"username": CANARY, "password": CANARY})
    (row,) = AccessAttempt.objects.values()
    assert row["username"].startswith("unknown ")
    assert CANARY not in str(row)
    told = written.getvalue()
    assert "Locking out unknown" in told
    assert CANARY not in told


def test_the_name_of_a_user_is_kept_and_no_password(browser: Staff, written: io.StringIO) -> None:
    fail(browser, 1)
    (row,) = AccessAttempt.objects.values()
    assert (row["username"], row["ip_address"]) == ("ops", "203.0.113.7")
    assert WRONG not in str(row)
    told = written.getvalue()
    assert "ops from 203.0.113.7" in told
    assert WRONG not in told


def test_who_is_locked_out_writes_neither_rows_nor_lines(browser: Staff, written: io.StringIO) -> None:
    fail(browser, 5)
    before = list(AccessAttempt.objects.values()), written.getvalue()
    fail(Staff("203.0.113.7", **{"User-Agent": "another"}), 3)
    assert (list(AccessAttempt.objects.values()), written.getvalue()) == before


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("a\0b", WRONG),
        ("ops", "a\0b"),
        ("x" * 10_000, WRONG),
        ("ops", "x" * 10_000),
        ("\u202eops\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), WRONG),
        ("", ""),
    ],
    ids=["NUL in the name", "NUL in the password", "long name", "long password", "odd letters", "empty"],
)
def test_nonsense_is_refused_on_the_page(browser: Staff, name: str, password: str) -> None:
    assert browser.give_password(password, name).status_code == 200


def test_bytes_that_are_no_text_are_refused_on_the_page(browser: Staff) -> None:
    answer = browser.generic(
        "POST", PASSWORD_PAGE, b"username=%ff\xfe&password=%ff", "application/x-www-form-urlencoded"
    )
    assert answer.status_code == 200


def test_leaves_no_sessions_behind(browser: Staff) -> None:
    fail(browser, 6)
    assert not Session.objects.exists()


def test_forgotten_failures_are_removed_and_no_others(browser: Staff, now: dt.datetime) -> None:
    fail(browser, 2)
    fail(Staff("198.51.100.9"), 1)
    assert remove_old_attempts(now=now + LOCK_OUT) == 0
    assert remove_old_attempts(now=now + LOCK_OUT + MOMENT, batch=1) == 1
    assert remove_old_attempts(now=now + LOCK_OUT + MOMENT) == 1
    assert not AccessAttempt.objects.exists()
