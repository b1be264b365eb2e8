"""Facts of a call are kept whatever the state; states only move forward, and only by the claim's own result."""

from __future__ import annotations

import dataclasses
import datetime as dt
import uuid

import pytest
from django.db import connection

from otp_service.core.outcomes import RAW_REPLY_LIMIT, Receipt, ReportedState, Submission, SubmitResult
from otp_service.messages.models import Attempt
from otp_service.routes.claim import Claimed
from otp_service.routes.receipts import apply_host_receipts
from otp_service.routes.submissions import Submitted, rescue, settle
from tests.factories import NOON
from tests.routes.steps import ACCEPTED, NOT_CONNECTED, SIGNED_OUT, attempt_of, events_of, host_of, in_flight, settled

pytestmark = pytest.mark.django_db
WITH_FACTS = SubmitResult(Submission.ACCEPTED, provider_message_id="guid-1", raw="202 {}")


def reported(one: Claimed, state: ReportedState, guid: str = "") -> None:
    receipt = Receipt(state, one.send.attempt_uuid, guid)
    assert apply_host_receipts(host_of(one).host_id, [receipt], now=NOON)


def lease_ended(one: Claimed) -> None:
    Attempt.objects.filter(pk=one.attempt_id).update(lease_until=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))


def test_facts_are_written() -> None:
    (one,) = in_flight()
    settled(one, WITH_FACTS)
    attempt = attempt_of(one)
    assert (attempt.submission, attempt.provider_message_id) == ("accepted", "guid-1")
    assert (attempt.raw_reply, attempt.duration_ms) == ("202 {}", 150)


def test_the_reply_is_encrypted_and_cut() -> None:
    (one,) = in_flight()
    settled(one, dataclasses.replace(WITH_FACTS, raw="canary" * 1000))
    attempt = attempt_of(one)
    assert attempt.raw_reply is not None
    assert len(attempt.raw_reply) == RAW_REPLY_LIMIT
    with connection.cursor() as cursor:
        cursor.execute("SELECT raw_reply FROM otp_messages_attempt WHERE id = %s", [one.attempt_id])
        (stored,) = cursor.fetchone()
    assert b"canary" not in bytes(stored)


@pytest.mark.parametrize("state", [ReportedState.SENT, ReportedState.DELIVERED, ReportedState.FAILED])
def test_a_receipt_that_came_before_keeps_its_effect(state: ReportedState) -> None:
    (one,) = in_flight()
    reported(one, state)
    before = attempt_of(one)
    events = events_of(before.message)
    settled(one, WITH_FACTS)
    after = attempt_of(one)
    assert (after.state, after.message.status) == (before.state, before.message.status) != ("accepted", "submitted")
    assert events_of(after.message) == events
    assert (after.submission, after.provider_message_id, after.raw_reply) == ("accepted", "guid-1", "202 {}")


def test_a_result_that_comes_after_the_rescue_is_believed() -> None:
    (one,) = in_flight()
    lease_ended(one)
    assert rescue(now=NOON) == 1
    assert attempt_of(one).state == "unknown"
    settled(one, WITH_FACTS)
    attempt = attempt_of(one)
    assert (attempt.state, attempt.error_class, attempt.submission) == ("accepted", "", "accepted")
    assert events_of(attempt.message) == ["message.submitted"]


def test_a_call_that_was_given_up_after_the_rescue_frees_its_message() -> None:
    (one,) = in_flight()
    lease_ended(one)
    rescue(now=NOON)
    settled(one, NOT_CONNECTED)
    attempt = attempt_of(one)
    assert (attempt.state, attempt.message.status) == ("not_submitted", "waiting")


def test_a_result_that_comes_after_the_answer_of_the_host_changes_nothing_but_facts() -> None:
    (one,) = in_flight()
    lease_ended(one)
    rescue(now=NOON)
    reported(one, ReportedState.NEVER)
    before = attempt_of(one)
    settled(one, SIGNED_OUT)
    after = attempt_of(one)
    assert (after.state, after.message.status, after.message.attempts_charged) == (
        "not_submitted",
        before.message.status,
        before.message.attempts_charged,
    )
    assert after.submission == "refused"
    assert after.server is not None
    assert after.server.failed_in_row == 0


def test_a_result_under_another_token_changes_nothing() -> None:
    (one,) = in_flight()
    settled(dataclasses.replace(one, token=uuid.uuid4()), WITH_FACTS)
    attempt = attempt_of(one)
    assert (attempt.state, attempt.message.status) == ("submitting", "sending")
    assert (attempt.submission, attempt.provider_message_id, attempt.raw_reply) == ("", "", None)
    assert attempt.duration_ms is None
    assert events_of(attempt.message) == []


def test_a_result_under_another_token_spoils_no_other() -> None:
    one, other = in_flight(2)
    strange = dataclasses.replace(one, token=uuid.uuid4())
    settle([Submitted(done, ACCEPTED, dt.timedelta()) for done in (other, strange)], now=NOON)
    assert attempt_of(one).state == "submitting"
    assert attempt_of(other).state == "accepted"


@pytest.mark.parametrize("result", [WITH_FACTS, SIGNED_OUT, NOT_CONNECTED], ids=["accepted", "refused", "no call"])
def test_settling_twice_is_as_settling_once(result: SubmitResult) -> None:
    (one,) = in_flight()
    settled(one, result)
    before = attempt_of(one)
    settled(one, result)
    after = attempt_of(one)
    assert events_of(after.message) == events_of(before.message)
    assert after.message.attempts_charged == before.message.attempts_charged
    assert after.message.run_after == before.message.run_after
    assert after.server is not None
    assert before.server is not None
    assert after.server.failed_in_row == before.server.failed_in_row


def test_an_attempt_that_is_gone_spoils_no_other() -> None:
    one, gone = in_flight(2)
    Attempt.objects.filter(pk=gone.attempt_id).delete()
    settle([Submitted(done, ACCEPTED, dt.timedelta()) for done in (gone, one)], now=NOON)
    assert attempt_of(one).state == "accepted"
