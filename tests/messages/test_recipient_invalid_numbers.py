"""Reports that a number cannot be: one for each route, cleared by a delivery, forgotten when they are old."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import transaction

from otp_service.messages import recipients
from otp_service.messages.recipient_models import InvalidReport
from otp_service.messages.recipients import note_delivered, note_invalid, remove_old_reports
from tests.factories import NOON
from tests.racing import Racer

ONE, TWO = bytes(32), b"\x01" * 32
HOUR = dt.timedelta(hours=1)


def known() -> list[tuple[bytes, str, dt.datetime]]:
    rows = InvalidReport.objects.order_by("recipient_hash", "route").values_list("recipient_hash", "route", "at")
    return [(bytes(key), route, at) for key, route, at in rows]


@pytest.mark.django_db
def test_each_route_has_one_report_of_a_number() -> None:
    note_invalid([(TWO, "sms:b"), (ONE, "sms:a"), (ONE, "sms:a"), (ONE, "sms:b")], now=NOON)
    note_invalid([(ONE, "sms:a")], now=NOON)
    assert known() == [(ONE, "sms:a", NOON), (ONE, "sms:b", NOON), (TWO, "sms:b", NOON)]


@pytest.mark.django_db
def test_a_later_report_of_a_route_takes_the_place_of_its_earlier_one_and_not_the_other_way_round() -> None:
    for hours in (1, 2, 0):
        note_invalid([(ONE, "sms:a")], now=NOON + hours * HOUR)
    assert known() == [(ONE, "sms:a", NOON + 2 * HOUR)]


@pytest.mark.django_db
def test_a_delivery_clears_what_was_said_of_its_number_alone() -> None:
    note_invalid([(ONE, "sms:a"), (ONE, "sms:b"), (TWO, "sms:a")], now=NOON)
    note_delivered([ONE, ONE, b"\x02" * 32])
    assert known() == [(TWO, "sms:a", NOON)]


@pytest.mark.django_db
def test_nothing_to_note_is_nothing() -> None:
    note_invalid([(ONE, "sms:a")], now=NOON)
    note_invalid([], now=NOON)
    note_delivered([])
    assert len(known()) == 1


@pytest.mark.django_db
def test_what_decides_nothing_any_more_is_removed(settings: Any) -> None:
    settings.INVALID_FOR = HOUR
    note_invalid([(ONE, "sms:a")], now=NOON - 2 * HOUR)
    note_invalid([(ONE, "sms:b")], now=NOON - 2 * HOUR + dt.timedelta(seconds=1))
    assert remove_old_reports(now=NOON) == 1
    assert [route for _, route, _ in known()] == ["sms:b"]


@pytest.mark.django_db
def test_old_reports_are_removed_in_batches(settings: Any) -> None:
    settings.INVALID_FOR = HOUR
    note_invalid([(ONE, f"sms:{number}") for number in range(3)], now=NOON - 2 * HOUR)
    assert [remove_old_reports(now=NOON, batch=2) for _ in range(3)] == [2, 1, 0]


# --- beside others -----------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_two_routes_that_call_numbers_invalid_in_other_orders_do_not_block_each_other() -> None:
    note_invalid([(ONE, "sms:a"), (TWO, "sms:a")], now=NOON)
    with transaction.atomic():
        note_invalid([(ONE, "sms:a")], now=NOON + HOUR)
        other = Racer(lambda: note_invalid([(TWO, "sms:a"), (ONE, "sms:a")], now=NOON + 2 * HOUR))
        other.wait_until_blocked()
        note_invalid([(TWO, "sms:a")], now=NOON + HOUR)  # not held by the other, which waits for the lower one
    other.result()
    assert known() == [(ONE, "sms:a", NOON + 2 * HOUR), (TWO, "sms:a", NOON + 2 * HOUR)]


@pytest.mark.django_db(transaction=True)
def test_a_delivery_waits_for_no_report_that_is_being_written() -> None:
    note_invalid([(ONE, "sms:a"), (TWO, "sms:a")], now=NOON)
    with transaction.atomic():
        note_invalid([(ONE, "sms:a")], now=NOON + HOUR)
        Racer(lambda: note_delivered([ONE, TWO])).result()
    assert known() == [(ONE, "sms:a", NOON + HOUR)]


@pytest.mark.django_db(transaction=True)
def test_a_report_that_comes_while_its_number_is_cleared_is_kept() -> None:
    note_invalid([(ONE, "sms:a")], now=NOON)
    with transaction.atomic():
        note_delivered([ONE])
        reporting = Racer(lambda: note_invalid([(ONE, "sms:a")], now=NOON + HOUR))
        reporting.wait_until_blocked()
    reporting.result()
    assert known() == [(ONE, "sms:a", NOON + HOUR)]


@pytest.mark.django_db(transaction=True)
def test_two_changes_of_one_recipient_come_one_after_another(now: dt.datetime) -> None:
    number = "+34600000000"
    with transaction.atomic():
        recipients.note_stop(number, now=now)
        putting = Racer(
            lambda: recipients.put_preferences(
                number, recipients.Preferences(("sms",), stopped=None), now=now, by="a test"
            )
        )
        putting.wait_until_blocked()
    assert putting.result() == recipients.Preferences(("sms",), None, True)
