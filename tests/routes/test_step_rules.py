"""What an attempt's new state means for its message."""

from __future__ import annotations

import dataclasses
import datetime as dt

import pytest

from otp_service.core.outcomes import ErrorClass
from otp_service.messages.rules import AttemptState as A
from otp_service.messages.rules import MessageStatus as M
from otp_service.messages.rules import Reason, moves_attempt
from otp_service.routes.rules import (
    NEXT,
    Deliver,
    Finish,
    Keep,
    MessageView,
    Retry,
    Step,
    Submit,
    check_pause,
    counts_against_server,
    step,
)

NOW = dt.datetime(2026, 9, 1, 12, tzinfo=dt.UTC)
SENDING = MessageView(M.SENDING, NOW + dt.timedelta(minutes=5), attempts_made=1, attempts_charged=1, max_attempts=4)


def after(
    reported: A,
    error: ErrorClass | None = None,
    *,
    message: MessageView = SENDING,
    others_alive: bool = False,
) -> Step:
    return step(message, reported, error_class=error, others_alive=others_alive, now=NOW)


def seconds(count: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=count)


def message(**changes: object) -> MessageView:
    return dataclasses.replace(SENDING, **changes)  # type: ignore[arg-type]  # a test's shorthand


@pytest.mark.parametrize(
    ("status", "expected"),
    [(M.SENDING, Submit()), (M.QUEUED, Submit()), (M.WAITING, Submit()), (M.SUBMITTED, Keep()), (M.FAILED, Keep())],
)
def test_what_left_after_all_is_not_sent_again(status: M, expected: Step) -> None:
    assert after(A.SENT, message=message(status=status)) == expected


@pytest.mark.parametrize("state", [A.ACCEPTED, A.UNKNOWN, A.SENT])
def test_a_message_that_a_route_may_have_is_submitted(state: A) -> None:
    assert after(state) == Submit()
    assert after(state, message=message(status=M.SUBMITTED)) == Keep()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (M.SENDING, Deliver(corrects=False)),
        (M.SUBMITTED, Deliver(corrects=False)),
        (M.QUEUED, Deliver(corrects=False)),
        (M.WAITING, Deliver(corrects=False)),
        (M.FAILED, Deliver(corrects=True)),
        (M.EXPIRED, Deliver(corrects=True)),
        (M.CANCELLED, Deliver(corrects=True)),
        (M.DELIVERED, Keep()),
    ],
)
def test_a_delivery_ends_a_message_from_wherever_it_stands(status: M, expected: Step) -> None:
    assert after(A.DELIVERED, message=message(status=status)) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorClass.SENDER_FAULT, Retry(NOW, charged=True)),
        (ErrorClass.ROUTE_REJECTED, Retry(NOW, charged=True)),
        (ErrorClass.TEMPORARY, Retry(NOW, charged=True)),
        (ErrorClass.TIMEOUT_AFTER_SUBMIT, Retry(NOW, charged=True)),
        (ErrorClass.THROTTLED, Retry(seconds(1), charged=False)),
        (ErrorClass.CONNECTION_REFUSED, Retry(seconds(1), charged=False)),
        (ErrorClass.EXPIRED, Retry(seconds(1), charged=False)),
        (ErrorClass.RECIPIENT_INVALID, Finish(M.FAILED, Reason.RECIPIENT_INVALID)),
        (ErrorClass.CONTENT_REJECTED, Finish(M.FAILED, Reason.CONTENT_REJECTED)),
        (ErrorClass.RECIPIENT_UNREACHABLE, Finish(M.FAILED, Reason.RECIPIENT_UNREACHABLE)),
        (None, Retry(NOW, charged=True)),
    ],
)
@pytest.mark.parametrize("state", [A.NOT_SUBMITTED, A.FAILED])
def test_what_is_tried_after_a_failure(state: A, error: ErrorClass | None, expected: Step) -> None:
    assert after(state, error) == expected


def test_every_error_class_has_a_row() -> None:
    assert set(NEXT) == set(ErrorClass)


@pytest.mark.parametrize(
    ("charged", "expected"), [(3, Retry(NOW, charged=True)), (4, Finish(M.FAILED, Reason.ATTEMPTS_EXHAUSTED))]
)
def test_attempts_are_bounded(charged: int, expected: Step) -> None:
    assert (
        after(A.FAILED, ErrorClass.SENDER_FAULT, message=message(attempts_made=charged, attempts_charged=charged))
        == expected
    )


@pytest.mark.parametrize(
    ("made", "charged", "pause"), [(1, 1, 1), (2, 1, 2), (3, 1, 5), (3, 3, 1), (40, 1, 900)], ids=str
)
def test_uncharged_attempts_wait_longer_and_longer(made: int, charged: int, pause: int) -> None:
    long_lived = message(attempts_made=made, attempts_charged=charged, expires_at=NOW + dt.timedelta(days=1))
    assert after(A.NOT_SUBMITTED, ErrorClass.THROTTLED, message=long_lived) == Retry(seconds(pause), charged=False)


@pytest.mark.parametrize(
    ("life", "expected"),
    [
        (1.0, Finish(M.EXPIRED, Reason.EXPIRED_UNSENT)),
        (1.001, Retry(seconds(1), charged=False)),
    ],
)
def test_nothing_is_planned_for_after_the_end_of_its_life(life: float, expected: Step) -> None:
    assert after(A.NOT_SUBMITTED, ErrorClass.THROTTLED, message=message(expires_at=seconds(life))) == expected


@pytest.mark.parametrize("status", [M.QUEUED, M.WAITING, M.DELIVERED, M.FAILED, M.EXPIRED, M.CANCELLED])
def test_a_failure_changes_nothing_for_a_message_that_goes_another_way_or_has_ended(status: M) -> None:
    assert after(A.FAILED, ErrorClass.SENDER_FAULT, message=message(status=status)) == Keep()


def test_a_failure_changes_nothing_while_another_attempt_lives() -> None:
    assert after(A.FAILED, ErrorClass.SENDER_FAULT, others_alive=True) == Keep()


@pytest.mark.parametrize(
    ("known", "moves_on"),
    [
        (A.SUBMITTING, {A.UNKNOWN, A.ACCEPTED, A.SENT, A.NOT_SUBMITTED, A.FAILED, A.DELIVERED}),
        (A.UNKNOWN, {A.ACCEPTED, A.SENT, A.NOT_SUBMITTED, A.FAILED, A.DELIVERED}),
        (A.ACCEPTED, {A.SENT, A.NOT_SUBMITTED, A.FAILED, A.DELIVERED}),
        (A.SENT, {A.FAILED, A.DELIVERED}),
        (A.NOT_SUBMITTED, {A.SENT, A.DELIVERED}),
        (A.FAILED, {A.DELIVERED}),
        (A.DELIVERED, set()),
    ],
)
def test_attempts_only_move_forward(known: A, moves_on: set[A]) -> None:
    assert {reported for reported in A if moves_attempt(known, reported)} == moves_on


@pytest.mark.parametrize(
    ("state", "error", "only_sender_faults", "counts"),
    [
        (A.FAILED, ErrorClass.SENDER_FAULT, True, True),
        (A.FAILED, ErrorClass.RECIPIENT_UNREACHABLE, True, False),
        (A.FAILED, ErrorClass.RECIPIENT_UNREACHABLE, False, True),
        (A.FAILED, ErrorClass.THROTTLED, True, False),
        (A.FAILED, ErrorClass.THROTTLED, False, True),
        (A.NOT_SUBMITTED, ErrorClass.SENDER_FAULT, True, True),
        (A.NOT_SUBMITTED, ErrorClass.RECIPIENT_INVALID, False, False),
        (A.NOT_SUBMITTED, ErrorClass.THROTTLED, False, False),
        (A.NOT_SUBMITTED, ErrorClass.CONNECTION_REFUSED, False, False),
        (A.NOT_SUBMITTED, ErrorClass.TEMPORARY, False, False),
    ],
)
def test_whose_failures_reach_the_servers_counter(
    state: A, error: ErrorClass, *, only_sender_faults: bool, counts: bool
) -> None:
    assert counts_against_server(state, error, only_sender_faults=only_sender_faults) is counts


def test_questions_get_rarer_and_end() -> None:
    pauses = [check_pause(n) for n in range(9)]
    assert pauses[0] == dt.timedelta(seconds=2)
    assert pauses[8] is None
    known = [pause for pause in pauses if pause]
    assert known == sorted(known)
