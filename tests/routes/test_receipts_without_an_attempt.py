"""A receipt that names only an id which nobody knows yet is kept until an attempt learns it."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import transaction

from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, Submission, SubmitResult
from otp_service.messages.models import Attempt
from otp_service.routes.models import OrphanReceipt
from otp_service.routes.receipts import (
    ORPHAN_LIFE,
    apply_host_receipts,
    match_all_orphans,
    remove_old_orphans,
)
from tests.factories import NOON
from tests.racing import Racer
from tests.routes.steps import ACCEPTED, attempt_of, events_of, host_of, in_flight, settled

pytestmark = pytest.mark.django_db
LEARNED = SubmitResult(Submission.ACCEPTED, "guid-1")
DELIVERED = Receipt(ReportedState.DELIVERED, None, "guid-1", service="sms")


def reported(host_id: int, *receipts: Receipt, now: dt.datetime = NOON) -> int:
    return apply_host_receipts(host_id, receipts, now=now)


def test_it_is_applied_when_the_settling_learns_the_id() -> None:
    (one,) = in_flight()
    assert reported(host_of(one).host_id, DELIVERED) == 0
    assert OrphanReceipt.objects.count() == 1
    settled(one, LEARNED)
    attempt = attempt_of(one)
    assert (attempt.state, attempt.service, attempt.message.status) == ("delivered", "sms", "delivered")
    assert events_of(attempt.message) == ["message.submitted", "message.delivered"]
    assert not OrphanReceipt.objects.exists()


def test_it_is_applied_when_another_receipt_teaches_the_id() -> None:
    (one,) = in_flight()
    settled(one, ACCEPTED)
    reported(host_of(one).host_id, DELIVERED)
    reported(host_of(one).host_id, Receipt(ReportedState.SENT, one.send.attempt_uuid, "guid-1"))
    assert attempt_of(one).state == "delivered"
    assert not OrphanReceipt.objects.exists()


@pytest.mark.parametrize("turn", [1, -1], ids=["teacher first", "teacher last"])
def test_it_is_applied_when_its_own_list_teaches_the_id(turn: int) -> None:
    (one,) = in_flight()
    teacher = Receipt(ReportedState.SENT, one.send.attempt_uuid, "guid-1")
    assert reported(host_of(one).host_id, *[teacher, DELIVERED][::turn]) == 1
    assert attempt_of(one).state == "delivered"
    assert not OrphanReceipt.objects.exists()


def test_a_failure_that_waited_keeps_whose_fault_it_was() -> None:
    (one,) = in_flight()
    failed = Receipt(
        ReportedState.FAILED, None, "guid-1", error_class=ErrorClass.SENDER_FAULT, error_code=120, reason="told_early"
    )
    reported(host_of(one).host_id, failed)
    settled(one, LEARNED)
    attempt = attempt_of(one)
    assert (attempt.state, attempt.error_class, attempt.error_code) == ("failed", "sender_fault", 120)
    assert attempt.server is not None
    assert attempt.server.failed_in_row == 1
    assert attempt.server.history.get().data["reason"] == "told_early"


def test_a_reading_that_came_too_early_is_kept_too() -> None:
    (one,) = in_flight()
    reported(host_of(one).host_id, Receipt(None, None, "guid-1", read=True))
    settled(one, LEARNED)
    assert attempt_of(one).read_at == NOON
    assert attempt_of(one).state == "accepted"


def passed_each_other(*states: ReportedState) -> Attempt:
    """A settled attempt, and receipts that did not see it when they were stored."""
    (one,) = in_flight()
    for state in states:
        reported(host_of(one).host_id, Receipt(state, None, "guid-1"))
    settled(one, ACCEPTED)
    Attempt.objects.filter(pk=one.attempt_id).update(provider_message_id="guid-1")
    return attempt_of(one)


def test_the_sweep_applies_what_passed_its_settling() -> None:
    attempt = passed_each_other(ReportedState.DELIVERED, ReportedState.SENT)
    assert match_all_orphans(now=NOON) == 1
    attempt.refresh_from_db()
    assert attempt.state == "delivered"
    assert not OrphanReceipt.objects.exists()
    assert match_all_orphans(now=NOON) == 0


def test_the_sweep_leaves_what_nothing_is_known_of(now: dt.datetime) -> None:
    (one,) = in_flight()
    reported(host_of(one).host_id, DELIVERED)
    assert match_all_orphans(now=now) == 0
    assert OrphanReceipt.objects.count() == 1


def test_the_sweep_takes_no_more_than_its_batch() -> None:
    passed_each_other(ReportedState.SENT, ReportedState.DELIVERED)
    match_all_orphans(now=NOON, batch=1)
    assert OrphanReceipt.objects.count() == 1


def test_an_id_is_its_hosts_own() -> None:
    one, other = in_flight(2)
    reported(host_of(other).host_id, DELIVERED)
    settled(one, LEARNED)
    assert match_all_orphans(now=NOON) == 0
    assert attempt_of(one).state == "accepted"
    assert OrphanReceipt.objects.count() == 1


def test_what_nothing_was_found_for_within_a_day_is_forgotten(now: dt.datetime) -> None:
    (one,) = in_flight()
    reported(host_of(one).host_id, DELIVERED)
    assert remove_old_orphans(now=now + ORPHAN_LIFE - dt.timedelta(microseconds=1)) == 0
    assert remove_old_orphans(now=now + ORPHAN_LIFE) == 1
    assert not OrphanReceipt.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_two_sweeps_at_once_apply_it_once() -> None:
    attempt = passed_each_other(ReportedState.DELIVERED)
    with transaction.atomic():
        assert match_all_orphans(now=NOON) == 1
        assert Racer(lambda: match_all_orphans(now=NOON)).result() == 0
    attempt.refresh_from_db()
    assert attempt.state == "delivered"
    assert events_of(attempt.message) == ["message.submitted", "message.delivered"]


@pytest.mark.django_db(transaction=True)
def test_a_receipt_that_is_stored_while_its_attempt_is_being_settled_is_found_by_the_sweep() -> None:
    (one,) = in_flight()
    with transaction.atomic():
        settled(one, LEARNED)
        Racer(lambda: reported(host_of(one).host_id, DELIVERED)).result()
    assert attempt_of(one).state == "accepted"
    assert match_all_orphans(now=NOON) == 1
    assert attempt_of(one).state == "delivered"
