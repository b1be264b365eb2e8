"""What the end of a call means: for the attempt, its message, the client and the server."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, Submission, SubmitResult
from otp_service.events.models import Event
from otp_service.routes.receipts import apply_host_receipts
from servers.models import Server, ServerStatusHistory
from servers.rules import Event as ServerEvent
from tests.factories import NOON
from tests.routes.steps import (
    ACCEPTED,
    MINUTE,
    NOT_CONNECTED,
    SECOND,
    SIGNED_OUT,
    THROTTLED,
    UNKNOWN,
    attempt_of,
    events_of,
    host_of,
    in_flight,
    is_ready,
    message_of,
    settled,
)

pytestmark = pytest.mark.django_db


def refused(error_class: ErrorClass, code: int | None = None) -> SubmitResult:
    return SubmitResult(Submission.REFUSED, error_class=error_class, error_code=code)


@pytest.mark.parametrize(
    ("result", "attempt", "message", "events", "counted"),
    [
        pytest.param(ACCEPTED, "accepted", "submitted", ["message.submitted"], 0, id="accepted"),
        pytest.param(UNKNOWN, "unknown", "submitted", ["message.submitted"], 0, id="unknown"),
        pytest.param(SIGNED_OUT, "not_submitted", "queued", [], 1, id="signed out"),
        pytest.param(THROTTLED, "not_submitted", "waiting", [], 0, id="throttled"),
        pytest.param(NOT_CONNECTED, "not_submitted", "waiting", [], 0, id="not connected"),
        pytest.param(
            SubmitResult(Submission.NOT_CONNECTED, error_class=ErrorClass.EXPIRED),
            "not_submitted",
            "waiting",
            [],
            0,
            id="too late for its lease",
        ),
        pytest.param(
            refused(ErrorClass.RECIPIENT_INVALID), "not_submitted", "failed", ["message.failed"], 0, id="invalid number"
        ),
        pytest.param(
            refused(ErrorClass.CONTENT_REJECTED), "not_submitted", "failed", ["message.failed"], 0, id="text refused"
        ),
        pytest.param(
            refused(ErrorClass.RECIPIENT_UNREACHABLE, 22),
            "not_submitted",
            "queued",
            [],
            0,
            id="not on iMessage",
        ),
        pytest.param(refused(ErrorClass.ROUTE_REJECTED), "not_submitted", "queued", [], 0, id="route refuses us"),
        pytest.param(refused(ErrorClass.TEMPORARY), "not_submitted", "queued", [], 0, id="temporary"),
    ],
)
def test_each_result_has_its_effects(
    result: SubmitResult, attempt: str, message: str, events: list[str], counted: int
) -> None:
    (one,) = in_flight()
    settled(one, result)
    stands = attempt_of(one)
    assert (stands.state, stands.message.status) == (attempt, message)
    assert (stands.error_class, stands.error_code) == (result.error_class or "", result.error_code)
    assert events_of(stands.message) == events
    assert is_ready(stands.message) is (message == "queued")
    assert stands.server is not None
    assert stands.server.failed_in_row == counted
    assert ServerStatusHistory.objects.filter(server=stands.server, event=ServerEvent.SEND_FAILED).count() == counted


@pytest.mark.parametrize(("result", "wait"), [(ACCEPTED, 120 * SECOND), (UNKNOWN, SECOND)], ids=["accepted", "unknown"])
def test_a_silent_attempt_is_asked_about_in_time(
    now: dt.datetime, settings: Any, result: SubmitResult, wait: dt.timedelta
) -> None:
    settings.RECEIPT_WAIT = 120 * SECOND
    (one,) = in_flight()
    settled(one, result)
    assert attempt_of(one).check_at == now + wait


@pytest.mark.parametrize("result", [SIGNED_OUT, NOT_CONNECTED], ids=["refused", "not connected"])
def test_nobody_asks_about_what_was_not_submitted(now: dt.datetime, result: SubmitResult) -> None:
    (one,) = in_flight()
    settled(one, result)
    attempt = attempt_of(one)
    assert (attempt.check_at, attempt.settled_at, attempt.finished_at) == (None, now, now)


def test_a_failed_message_names_its_reason_route_and_server(now: dt.datetime) -> None:
    (one,) = in_flight(reference="login 42")
    settled(one, refused(ErrorClass.RECIPIENT_INVALID, 22))
    attempt = attempt_of(one)
    message = attempt.message
    assert (message.final_reason, message.final_error_code) == ("recipient_invalid", 22)
    assert (message.final_route, message.final_server_id) == (attempt.route, attempt.server_id)
    assert message.finished_at == now
    event = Event.objects.get(subject_uuid=message.uuid)
    assert (event.client_id, event.at) == (message.client_id, now)
    assert event.data == {
        "status": "failed",
        "lane": "otp",
        "reference": "login 42",
        "reason": "recipient_invalid",
        "error_code": 22,
    }


@pytest.mark.parametrize(
    ("made", "most", "counted"),
    [(0, 4, 1), (0, 1, 1), (2, 4, 1), (3, 4, 0)],
    ids=["first of four", "only one", "third of four", "last of four"],
)
def test_the_last_of_several_attempts_says_nothing_about_its_server(made: int, most: int, counted: int) -> None:
    (one,) = in_flight(attempts_made=made, attempts_charged=made, max_attempts=most)
    settled(one, SIGNED_OUT)
    server = attempt_of(one).server
    assert server is not None
    assert server.failed_in_row == counted


def test_the_last_of_several_attempts_lets_its_server_be_looked_at(settings: Any) -> None:
    settings.FAILED_IN_ROW = 2
    (one,) = in_flight(attempts_made=3, attempts_charged=3, max_attempts=4)
    Server.objects.update(failed_in_row=2)
    settled(one, SIGNED_OUT)
    server = attempt_of(one).server
    assert server is not None
    assert (server.failed_in_row, server.cooldown) == (2, True)


def test_every_failure_of_what_a_host_had_taken_counts_where_the_setting_says_so(settings: Any) -> None:
    settings.COUNT_ONLY_SENDER_FAULTS = False
    failed, refused_one = in_flight(2)
    receipt = Receipt(
        ReportedState.FAILED, failed.send.attempt_uuid, error_class=ErrorClass.RECIPIENT_UNREACHABLE, error_code=22
    )
    apply_host_receipts(host_of(failed).host_id, [receipt], now=NOON)
    settled(refused_one, refused(ErrorClass.RECIPIENT_INVALID))
    counts = [one.server.failed_in_row for one in map(attempt_of, (failed, refused_one)) if one.server]
    assert counts == [1, 0]


def test_the_servers_history_says_what_happened() -> None:
    (one,) = in_flight()
    settled(one, SIGNED_OUT)
    row = ServerStatusHistory.objects.get(server=attempt_of(one).server, event=ServerEvent.SEND_FAILED)
    assert (row.data["reason"], row.data["error_code"]) == ("submit_refused", 130)


def test_a_message_whose_attempts_are_used_up_fails() -> None:
    (one,) = in_flight(attempts_made=3, attempts_charged=3, max_attempts=4)
    settled(one, SIGNED_OUT)
    message = message_of(one)
    assert (message.status, message.final_reason, message.final_error_code) == ("failed", "attempts_exhausted", 130)
    assert events_of(message) == ["message.failed"]


def test_a_message_without_time_for_another_attempt_expires(now: dt.datetime) -> None:
    (one,) = in_flight()
    settled(one, SIGNED_OUT, now=now + 5 * MINUTE)
    message = message_of(one)
    assert (message.status, message.final_reason) == ("expired", "expired_unsent")
    assert events_of(message) == ["message.expired"]
    assert not is_ready(message)
