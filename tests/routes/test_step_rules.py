"""What an attempt's new state means for its message."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Collection

import pytest

from otp_service.core.outcomes import ErrorClass
from otp_service.messages.rules import AttemptState as A
from otp_service.messages.rules import MessageStatus as M
from otp_service.messages.rules import OnUnknown, Reason, moves_attempt
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
    may_race,
    step,
)

NOW = dt.datetime(2026, 9, 1, 12, tzinfo=dt.UTC)
SENDING = MessageView(M.SENDING, NOW + dt.timedelta(minutes=5), attempts_made=1, attempts_charged=1, max_attempts=4)


def after(
    reported: A,
    error: ErrorClass | None = None,
    *,
    message: MessageView = SENDING,
    others: Collection[A] = (),
    failures: int = 1,
    retry_after: dt.timedelta | None = None,
) -> Step:
    more = {"failures": failures, "retry_after": retry_after}
    return step(message, reported, error_class=error, others=others, now=NOW, **more)  # type: ignore[arg-type]  # a test's shorthand


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
        (ErrorClass.RECIPIENT_UNREACHABLE, Retry(NOW, charged=True)),
        (None, Retry(NOW, charged=True)),
    ],
)
@pytest.mark.parametrize("state", [A.NOT_SUBMITTED, A.FAILED])
def test_what_is_tried_after_a_failure(state: A, error: ErrorClass | None, expected: Step) -> None:
    if (state, error) == (A.FAILED, ErrorClass.EXPIRED):  # its provider let it expire: so have we
        expected = Finish(M.EXPIRED, Reason.EXPIRED_UNCONFIRMED)
    assert after(state, error) == expected


@pytest.mark.parametrize("why", [Reason.CANCELLED, Reason.SUPERSEDED])
@pytest.mark.parametrize("error", [ErrorClass.THROTTLED, ErrorClass.TEMPORARY, ErrorClass.RECIPIENT_INVALID])
def test_what_was_withdrawn_is_not_tried_again(error: ErrorClass, why: Reason) -> None:
    assert after(A.NOT_SUBMITTED, error, message=message(withdrawn=why)) == Finish(M.CANCELLED, why)


def test_every_error_class_has_a_row() -> None:
    assert set(NEXT) == set(ErrorClass)


@pytest.mark.parametrize(
    ("charged", "error", "expected"),
    [
        (3, ErrorClass.SENDER_FAULT, Retry(NOW, charged=True)),
        (4, ErrorClass.SENDER_FAULT, Finish(M.FAILED, Reason.ATTEMPTS_EXHAUSTED)),
        (4, ErrorClass.RECIPIENT_UNREACHABLE, Finish(M.FAILED, Reason.RECIPIENT_UNREACHABLE)),
    ],
)
def test_attempts_are_bounded(charged: int, error: ErrorClass, expected: Step) -> None:
    assert after(A.FAILED, error, message=message(attempts_made=charged, attempts_charged=charged)) == expected


@pytest.mark.parametrize(
    ("asked_s", "after_s"),
    [(None, 1), (0.5, 1), (20, 20), (150, 150), (150.001, 1), (5_000, 1)],
    ids=str,
)
def test_a_route_is_given_the_time_that_it_asks_for_unless_the_message_has_less(
    asked_s: float | None, after_s: float
) -> None:
    asked = None if asked_s is None else dt.timedelta(seconds=asked_s)
    assert after(A.NOT_SUBMITTED, ErrorClass.THROTTLED, retry_after=asked) == Retry(seconds(after_s), charged=False)


@pytest.mark.parametrize(
    ("error", "failures", "pause"),
    [
        pytest.param(ErrorClass.THROTTLED, 1, 1, id="first"),
        pytest.param(ErrorClass.THROTTLED, 4, 10, id="fourth"),
        pytest.param(ErrorClass.THROTTLED, 40, 900, id="fortieth"),
        pytest.param(ErrorClass.EXPIRED, 2, 0, id="the route needs more life than it has: the others' turn"),
        pytest.param(ErrorClass.CONNECTION_REFUSED, 1, 1, id="one short retry"),
        pytest.param(ErrorClass.CONNECTION_REFUSED, 2, 0, id="then it is the others' turn"),
        pytest.param(ErrorClass.CONNECTION_REFUSED, 3, 5, id="there was no other"),
        pytest.param(ErrorClass.THROTTLED, 2, 2, id="time is given twice"),
        pytest.param(ErrorClass.THROTTLED, 3, 0, id="then it is the others' turn, too"),
    ],
)
def test_the_same_route_is_given_longer_and_longer_pauses(error: ErrorClass, failures: int, pause: int) -> None:
    long_lived = message(attempts_made=9, expires_at=NOW + dt.timedelta(days=1))
    expected = Retry(seconds(pause), charged=False)
    assert after(A.NOT_SUBMITTED, error, message=long_lived, failures=failures) == expected


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


@pytest.mark.parametrize(
    ("reported", "status", "other", "expected"),
    [
        pytest.param(A.FAILED, M.SUBMITTED, A.ACCEPTED, Keep(), id="the other may deliver yet"),
        pytest.param(A.NOT_SUBMITTED, M.SENDING, A.UNKNOWN, Submit(again=True), id="the extra copy did not leave"),
        pytest.param(A.FAILED, M.SENDING, A.UNKNOWN, Submit(again=True), id="the extra copy failed at once"),
        pytest.param(A.FAILED, M.SENDING, A.SUBMITTING, Keep(), id="the extra copy is being handed over"),
        pytest.param(A.ACCEPTED, M.SENDING, A.UNKNOWN, Submit(again=True), id="the extra copy was taken"),
        pytest.param(A.UNKNOWN, M.SENDING, A.UNKNOWN, Submit(again=True), id="nothing is known of both"),
        pytest.param(A.ACCEPTED, M.SENDING, A.SUBMITTING, Keep(), id="the first was taken after all"),
        pytest.param(A.SENT, M.SENDING, A.SUBMITTING, Keep(), id="the first left after all"),
        pytest.param(A.SENT, M.SUBMITTED, A.ACCEPTED, Keep(), id="both are on their way"),
        pytest.param(A.DELIVERED, M.SENDING, A.SUBMITTING, Deliver(corrects=False), id="the first to deliver ends it"),
    ],
)
def test_a_message_with_two_attempts_alive_is_submitted_until_one_delivers(
    reported: A, status: M, other: A, expected: Step
) -> None:
    error = ErrorClass.SENDER_FAULT if reported in {A.FAILED, A.NOT_SUBMITTED} else None
    assert after(reported, error, message=message(status=status), others=[other]) == expected


RACING = message(status=M.SUBMITTED, on_unknown=OnUnknown.RACE, copies_left=1)


@pytest.mark.parametrize(
    ("view", "states", "expected"),
    [
        pytest.param(RACING, [A.UNKNOWN], True, id="nobody can say"),
        pytest.param(RACING, [A.NOT_SUBMITTED, A.UNKNOWN, A.FAILED], True, id="what ended does not matter"),
        pytest.param(RACING, [A.UNKNOWN, A.UNKNOWN], True, id="nobody can say of either"),
        pytest.param(RACING, [A.UNKNOWN, A.ACCEPTED], False, id="one was taken"),
        pytest.param(RACING, [A.UNKNOWN, A.SENT], False, id="one has left"),
        pytest.param(RACING, [A.UNKNOWN, A.SUBMITTING], False, id="one is being handed over"),
        pytest.param(RACING, [A.FAILED], False, id="none is alive"),
        pytest.param(dataclasses.replace(RACING, on_unknown=OnUnknown.HOLD), [A.UNKNOWN], False, id="it is held"),
        pytest.param(dataclasses.replace(RACING, copies_left=0), [A.UNKNOWN], False, id="no copy may leave any more"),
        pytest.param(
            dataclasses.replace(RACING, withdrawn=Reason.CANCELLED), [A.UNKNOWN], False, id="it was withdrawn"
        ),
        pytest.param(dataclasses.replace(RACING, attempts_charged=4), [A.UNKNOWN], False, id="no attempt is left"),
        pytest.param(dataclasses.replace(RACING, expires_at=NOW), [A.UNKNOWN], False, id="its life is over"),
        pytest.param(dataclasses.replace(RACING, status=M.SENDING), [A.UNKNOWN], False, id="one is being handed over"),
        pytest.param(dataclasses.replace(RACING, status=M.DELIVERED), [A.UNKNOWN], False, id="it has ended"),
    ],
)
def test_when_an_extra_copy_may_leave(view: MessageView, states: Collection[A], *, expected: bool) -> None:
    assert may_race(view, states, NOW) is expected


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
