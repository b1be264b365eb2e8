"""Many tries at once are no more than the same tries one after another."""

from __future__ import annotations

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import RequestFactory

from otp_service.staff.lock_out import one_at_a_time
from tests.racing import Racer
from tests.staff.browser import PASSWORD, WRONG, Staff

pytestmark = pytest.mark.django_db(transaction=True)


def at(address: str) -> object:
    return RequestFactory().post("/admin/login/", REMOTE_ADDR=address)


def test_a_guess_beside_another_of_its_address_is_not_looked_at_and_waits_for_nothing(ops: User) -> None:
    with one_at_a_time(at("203.0.113.7")) as alone:  # type: ignore[arg-type]  # a request of the test's
        assert alone
        beside = Racer(lambda: Staff().give_password(PASSWORD)).result()
        assert (beside.status_code, beside["Retry-After"]) == (429, "2")
        assert "Another log-in" in beside.content.decode()
    assert not AccessAttempt.objects.exists()
    assert Staff().give_password(PASSWORD).status_code == 302


def test_nobody_waits_for_another_address(ops: User) -> None:
    with one_at_a_time(at("203.0.113.7")):  # type: ignore[arg-type]  # a request of the test's
        racer = Racer(lambda: Staff("198.51.100.9").give_password(PASSWORD).status_code)
        assert racer.result() == 302


def test_a_failure_stays_counted_whatever_becomes_of_the_page(ops: User) -> None:
    Staff().give_password(WRONG)
    assert not connection.in_atomic_block
    with transaction.atomic():
        assert AccessAttempt.objects.get().failures_since_start == 1
