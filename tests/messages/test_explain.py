"""What happened to a message and why, in sentences."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from otp_service.core.outcomes import ErrorClass, Submission
from otp_service.messages.explain import (
    FAULTS,
    REASONS,
    REFUSALS,
    STATES,
    SUPPRESSIONS,
    AttemptFacts,
    Suppression,
    explain,
)
from otp_service.messages.rules import ENDED, AttemptState, MessageStatus, Reason, RefusalReason
from tests.factories import NOON
from tests.messages.explained import BY, QUEUED, SUBMITTING, at, refused


@pytest.mark.parametrize(
    ("words", "members"),
    [
        pytest.param(REASONS, Reason, id="reasons"),
        pytest.param(REFUSALS, RefusalReason, id="refusals"),
        pytest.param(FAULTS, ErrorClass, id="faults"),
        pytest.param(STATES, AttemptState, id="states of attempts"),
        pytest.param(SUPPRESSIONS, Suppression, id="suppressions"),
    ],
)
def test_there_are_words_for_each_and_no_two_are_the_same(words: dict[Any, str], members: Any) -> None:
    assert list(words) == list(members)
    assert len({*words.values()}) == len(words)
    assert all(words.values())


def test_begins_with_what_was_asked_for() -> None:
    assert explain(QUEUED, [], at(1))[0] == (
        "Accepted at 12:00:00 in lane otp: to be delivered until 12:05:00, by at most 4 attempts."
    )
    assert explain(replace(QUEUED, max_attempts=1), [], at(1))[0].endswith("by at most 1 attempt.")


@pytest.mark.parametrize(
    ("now", "shown"),
    [
        pytest.param(NOON.replace(hour=23, minute=59, second=59), "at 12:00:00 in", id="the same day"),
        pytest.param(NOON.replace(day=2, hour=0), "at 2026-09-01 12:00:00 in", id="the next day"),
    ],
)
def test_a_time_of_another_day_has_its_date(now: dt.datetime, shown: str) -> None:
    assert shown in explain(QUEUED, [], now)[0]


@pytest.mark.parametrize(
    ("attempts", "now", "sentence"),
    [
        pytest.param([], at(15), None, id="not yet late"),
        pytest.param([], at(17), "The first attempt was due by 12:00:15, and had not started 2.0 s later.", id="late"),
        pytest.param([SUBMITTING], at(60), None, id="started in time"),
        pytest.param([replace(SUBMITTING, claimed_at=at(15))], at(60), None, id="started at the last moment"),
        pytest.param(
            [replace(SUBMITTING, claimed_at=at(85))],
            at(90),
            "The first attempt was due by 12:00:15 and started 1 min 10 s late.",
            id="started late",
        ),
    ],
)
def test_says_that_the_first_attempt_is_late(
    attempts: list[AttemptFacts], now: dt.datetime, sentence: str | None
) -> None:
    found = [line for line in explain(QUEUED, attempts, now) if line.startswith("The first attempt")]
    assert found == ([] if sentence is None else [sentence])


def test_a_message_without_a_time_for_its_first_attempt_is_never_late() -> None:
    assert len(explain(replace(QUEUED, first_attempt_by=None), [], at(200))) == 2


ATTEMPTS = [
    pytest.param(SUBMITTING, at(1), "it is being handed over.", id="submitting"),
    pytest.param(
        SUBMITTING,
        at(20),
        "it is being handed over; its dispatcher did not report in time, so it is asked about.",
        id="submitting, its lease over",
    ),
    pytest.param(
        replace(SUBMITTING, state=AttemptState.UNKNOWN, check_at=at(2), error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT),
        at(1),
        "it may or may not have been sent (no clear answer); it is asked about at 12:00:02.",
        id="unknown, to be asked about",
    ),
    pytest.param(
        replace(SUBMITTING, state=AttemptState.UNKNOWN, check_at=at(2)),
        at(2),
        "it may or may not have been sent; it is asked about now.",
        id="unknown, asked about now",
    ),
    pytest.param(
        replace(SUBMITTING, state=AttemptState.UNKNOWN),
        at(2),
        "it may or may not have been sent; it is not asked about any more.",
        id="unknown, for good",
    ),
    pytest.param(
        replace(SUBMITTING, state=AttemptState.ACCEPTED, check_at=at(120)),
        at(2),
        "it was accepted; a receipt is awaited; it is asked about at 12:02:00.",
        id="accepted",
    ),
    pytest.param(
        replace(
            SUBMITTING,
            state=AttemptState.ACCEPTED,
            error_class=ErrorClass.SENDER_FAULT,
            error_code=125,
            check_at=at(240),
        ),
        at(130),
        "it was accepted, and nothing could be shown for it when it was asked about (code 125, the sender's fault); "
        "a receipt is awaited; it is asked about at 12:04:00.",
        id="accepted and overdue",
    ),
    pytest.param(
        replace(SUBMITTING, state=AttemptState.SENT, sent_at=at(3), check_at=at(120)),
        at(4),
        "it was handed on to the phone's network after 3.0 s; delivery is awaited; it is asked about at 12:02:00.",
        id="sent",
    ),
    pytest.param(
        replace(SUBMITTING, state=AttemptState.DELIVERED, sent_at=at(3), finished_at=at(4.25)),
        at(5),
        "it was delivered after 4.2 s.",
        id="delivered",
    ),
    pytest.param(refused(), at(5), "it was refused (code 120, the sender's fault) after 0.4 s.", id="refused"),
    pytest.param(
        refused(submission=Submission.NOT_CONNECTED, error_class=ErrorClass.CONNECTION_REFUSED, error_code=None),
        at(5),
        "nobody was reached (no connection, so nothing left) after 0.4 s.",
        id="not connected",
    ),
    pytest.param(
        refused(submission=Submission.UNKNOWN, error_class=ErrorClass.TEMPORARY, error_code=None, call=None),
        at(5),
        "it was not sent (nobody's fault that is known of).",
        id="never sent, by a tombstone",
    ),
    pytest.param(
        refused(state=AttemptState.FAILED, submission=Submission.ACCEPTED, finished_at=at(65)),
        at(70),
        "it was accepted, and not delivered (code 120, the sender's fault) after 1 min 5 s.",
        id="failed",
    ),
    pytest.param(
        replace(SUBMITTING, state=AttemptState.DELIVERED, finished_at=at(-1)),
        at(5),
        "it was delivered after 0.0 s.",
        id="by a clock that goes behind",
    ),
]


@pytest.mark.parametrize(("attempt", "now", "sentence"), ATTEMPTS)
def test_says_what_came_of_an_attempt(attempt: AttemptFacts, now: dt.datetime, sentence: str) -> None:
    sending = replace(QUEUED, status=MessageStatus.SENDING)
    assert explain(sending, [attempt], now)[1] == BY + sentence


def test_every_state_of_an_attempt_is_told_in_a_row_above() -> None:
    assert {row.values[0].state for row in ATTEMPTS} == {*AttemptState}  # type: ignore[union-attr]  # attempts


@pytest.mark.parametrize(
    ("status", "following", "ending"),
    [
        pytest.param(MessageStatus.SENDING, {"server": "es 7"}, "; another server was tried.", id="another server"),
        pytest.param(MessageStatus.SENDING, {}, "; the same server was tried again.", id="the same server"),
        pytest.param(
            MessageStatus.SENDING, {"server": "", "route": "sms:one"}, "; another route was tried.", id="another route"
        ),
        pytest.param(MessageStatus.SENDING, {"route": "imessage:zp"}, "; another route was tried.", id="another pool"),
        pytest.param(MessageStatus.QUEUED, None, "; another attempt follows.", id="queued again"),
        pytest.param(MessageStatus.WAITING, None, "; another attempt follows.", id="waiting for another"),
        pytest.param(MessageStatus.FAILED, None, " after 0.4 s.", id="nothing follows"),
    ],
)
@pytest.mark.parametrize("state", [AttemptState.NOT_SUBMITTED, AttemptState.FAILED])
def test_says_what_was_tried_after_a_failure(
    state: AttemptState, status: MessageStatus, following: dict[str, Any] | None, ending: str
) -> None:
    failed = refused(state=state, finished_at=at(0.4))
    then = [] if following is None else [replace(SUBMITTING, number=2, **following)]
    assert explain(replace(QUEUED, status=status), [failed, *then], at(9))[1].endswith(ending)


def test_the_same_route_is_no_other_server() -> None:
    first = refused(server="", route="sms:one")
    told = explain(
        replace(QUEUED, status=MessageStatus.SENDING), [first, replace(first, number=2, state=AttemptState.SENT)], at(9)
    )
    assert told[1].endswith("; the same route was tried again.")


def test_nothing_is_tried_after_an_attempt_that_may_still_deliver() -> None:
    alive = {AttemptState.UNKNOWN, AttemptState.ACCEPTED, AttemptState.SENT, AttemptState.DELIVERED}
    for state in alive:
        told = explain(QUEUED, [replace(SUBMITTING, state=state), replace(SUBMITTING, number=2)], at(1))[1]
        assert "tried" not in told


def test_an_attempt_without_a_server_names_its_route_only() -> None:
    assert explain(QUEUED, [replace(SUBMITTING, server="", route="sms:one")], at(1))[1] == (
        "Attempt 1 over sms:one: it is being handed over."
    )


QUIET = {"sms:one": RefusalReason.QUIET_HOURS}
STANDING = [
    pytest.param({}, [], at(1), "Queued: it goes out as soon as a route is free.", id="queued"),
    pytest.param({}, [], at(299), "Queued: it goes out as soon as a route is free.", id="queued, to the last second"),
    pytest.param({}, [], at(300), "Its lifetime ended at 12:05:00: the next sweep ends it.", id="queued for too long"),
    pytest.param(
        {"status": MessageStatus.WAITING, "run_after": at(10)},
        [],
        at(1),
        "Waits until 12:00:10 as no route could take it yet.",
        id="waiting for a route",
    ),
    pytest.param(
        {"status": MessageStatus.WAITING, "run_after": at(10)},
        [refused()],
        at(1),
        "Waits until 12:00:10 for its next attempt.",
        id="waiting for another attempt",
    ),
    pytest.param(
        {"status": MessageStatus.WAITING, "run_after": at(200), "refusals": QUIET},
        [],
        at(1),
        "Waits until 12:03:20: the recipient's quiet hours end then.",
        id="waiting for the end of quiet hours",
    ),
    pytest.param(
        {"status": MessageStatus.WAITING, "run_after": at(300), "refusals": QUIET},
        [],
        at(1),
        "Waits until 12:05:00: its lifetime ends then.",
        id="in quiet hours that are longer than its lifetime",
    ),
    pytest.param(
        {"status": MessageStatus.WAITING, "run_after": at(10), "refusals": {**QUIET, "sms:two": RefusalReason.HOURS}},
        [],
        at(1),
        "Waits until 12:00:10 as no route could take it yet.",
        id="waiting for several things",
    ),
    pytest.param(
        {"channels": ["push", "voice"], "without_route": ["voice", "push", "sms"]},
        [],
        at(299),
        "No enabled route of channel push or voice carries lane otp now: waits for one until its lifetime ends at "
        "12:05:00.",
        id="without any route",
    ),
    pytest.param(
        {"channels": ["push", "sms"], "without_route": ["push"]},
        [],
        at(1),
        "Queued: it goes out as soon as a route is free.",
        id="without a route of one channel",
    ),
    pytest.param(
        {
            "status": MessageStatus.EXPIRED,
            "finished_at": at(301),
            "reason": Reason.EXPIRED_UNSENT,
            "channels": ["push"],
            "without_route": ["push"],
        },
        [],
        at(302),
        "Ended expired at 12:05:01: its lifetime passed before it could be sent. No enabled route of channel push "
        "carries lane otp now.",
        id="expired without any route",
    ),
    *(
        pytest.param(
            {
                "status": MessageStatus.FAILED,
                "finished_at": at(4),
                "reason": Reason.SUPPRESSED,
                "suppression": suppression,
            },
            [],
            at(9),
            f"Ended failed at 12:00:04: {said}.",
            id=f"suppressed: {suppression or 'not known any more why'}",
        )
        for suppression, said in [
            (Suppression.STOPPED, "the recipient answered STOP and wants no such messages"),
            (Suppression.INVALID, "several routes called the number invalid of late"),
            (None, REASONS[Reason.SUPPRESSED]),
        ]
    ),
    pytest.param({"status": MessageStatus.SENDING}, [SUBMITTING], at(1), "Being handed over.", id="sending"),
    pytest.param(
        {"status": MessageStatus.SUBMITTED},
        [SUBMITTING],
        at(1),
        "Handed over: what is reported of it decides.",
        id="submitted",
    ),
    pytest.param(
        {"status": MessageStatus.SUBMITTED},
        [SUBMITTING],
        at(300),
        "Its lifetime ended at 12:05:00: a late receipt is waited for.",
        id="submitted, its lifetime over",
    ),
    pytest.param(
        {"status": MessageStatus.DELIVERED, "finished_at": at(4)},
        [],
        at(9),
        "Delivered at 12:00:04, 4.0 s after it came.",
        id="delivered",
    ),
    pytest.param(
        {"status": MessageStatus.FAILED, "finished_at": at(4), "reason": Reason.ATTEMPTS_EXHAUSTED},
        [],
        at(9),
        "Ended failed at 12:00:04: every attempt that it may have failed.",
        id="failed",
    ),
    pytest.param(
        {"status": MessageStatus.EXPIRED, "finished_at": at(301), "reason": Reason.EXPIRED_UNSENT},
        [],
        at(302),
        "Ended expired at 12:05:01: its lifetime passed before it could be sent.",
        id="expired",
    ),
    pytest.param(
        {"status": MessageStatus.CANCELLED, "finished_at": at(1), "reason": Reason.CANCELLED},
        [],
        at(2),
        "Ended cancelled at 12:00:01: the client withdrew it.",
        id="cancelled",
    ),
]


@pytest.mark.parametrize(("fields", "attempts", "now", "sentence"), STANDING)
def test_ends_with_where_it_stands(
    fields: dict[str, Any], attempts: list[AttemptFacts], now: dt.datetime, sentence: str
) -> None:
    assert explain(replace(QUEUED, **fields), attempts, now)[-1] == sentence


def test_every_status_of_a_message_is_told_in_a_row_above() -> None:
    told = {row.values[0].get("status", MessageStatus.QUEUED) for row in STANDING}  # type: ignore[union-attr]  # fields
    assert told == {*MessageStatus}


def test_tells_of_attempts_in_their_order() -> None:
    attempts = [refused(), refused(number=2, server="es 7"), replace(SUBMITTING, number=3, server="es 9")]
    told = explain(replace(QUEUED, status=MessageStatus.SENDING), attempts, at(9))
    assert [line.split(" over")[0] for line in told[1:-1]] == ["Attempt 1", "Attempt 2", "Attempt 3"]


def test_says_something_of_everything_that_may_be_stored() -> None:
    for status, state, reason, fault in product(MessageStatus, AttemptState, Reason, ErrorClass):
        ended = status in ENDED
        message = replace(QUEUED, status=status, reason=reason if ended else None, finished_at=at(9) if ended else None)
        for line in explain(message, [replace(SUBMITTING, state=state, error_class=fault)], at(9)):
            assert line.endswith(".")
            assert "None" not in line
