"""What nobody settled is asked about, and sent again only on the promise that the first copy never leaves."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection, transaction

from otp_service.core.outcomes import Receipt, ReportedState, StatusReport
from otp_service.messages.models import Attempt
from otp_service.routes import resolve
from otp_service.routes.claim import Claimed
from otp_service.routes.eligibility import Terms
from otp_service.routes.receipts import apply_host_receipts
from otp_service.routes.rules import CHECK_PAUSES
from otp_service.routes.submissions import rescue
from servers.models import Host, ServerStatusHistory
from servers.rules import Event as ServerEvent
from tests.draws import Lowest
from tests.factories import NOON, ServerFactory
from tests.racing import Racer
from tests.routes.scripted_host import UNANSWERED, ScriptedHost, says
from tests.routes.steps import (
    ACCEPTED,
    MINUTE,
    SECOND,
    SIGNED_OUT,
    UNKNOWN,
    attempt_of,
    claimed,
    events_of,
    host_of,
    in_flight,
    is_ready,
    message_of,
    settled,
)

pytestmark = pytest.mark.django_db
NEVER = says(ReportedState.NEVER)
QUEUED = says(ReportedState.QUEUED)
NOT_FOUND = says(ReportedState.NOT_FOUND)
CANNOT_SAY = says(ReportedState.UNKNOWN)
SENT = says(ReportedState.SENT, guid="guid-1")
OVERDUE = NOON + 121 * SECOND


def lease_over(*ones: Claimed) -> None:
    """Their leases ended a second ago, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE otp_messages_attempt SET lease_until = clock_timestamp() - interval '1 second' WHERE id = ANY(%s)",
            [[one.attempt_id for one in ones]],
        )


def rescued() -> Claimed:
    (one,) = in_flight()
    lease_over(one)
    assert rescue(now=NOON) == 1
    return one


def accepted() -> Claimed:
    (one,) = in_flight(expires_at=NOON + 30 * MINUTE)
    settled(one, ACCEPTED)
    return one


def failures_of(one: Claimed) -> list[tuple[str, int | None]]:
    """What its server's history says of failures: reason and code."""
    rows = ServerStatusHistory.objects.filter(server=attempt_of(one).server, event=ServerEvent.SEND_FAILED)
    return [(row.data["reason"], row.data["error_code"]) for row in rows.order_by("id")]


# --- the rescue ----------------------------------------------------------------------------------------


def test_an_attempt_whose_lease_is_over_is_unknown_and_asked_about_at_once(now: dt.datetime) -> None:
    attempt = attempt_of(rescued())
    assert (attempt.state, attempt.error_class, attempt.check_at) == ("unknown", "timeout_after_submit", now)
    assert (attempt.message.status, attempt.message.attempts_made) == ("submitted", 1)
    assert events_of(attempt.message) == ["message.submitted"]
    assert not is_ready(attempt.message)
    assert attempt.server is not None
    assert attempt.server.failed_in_row == 0


def test_an_attempt_under_its_lease_is_left_alone() -> None:
    (one,) = in_flight()
    assert rescue(now=NOON + 60 * MINUTE) == 0
    assert attempt_of(one).state == "submitting"


def test_a_settled_attempt_is_not_rescued() -> None:
    one, other = in_flight(2)
    settled(one, ACCEPTED)
    settled(other, SIGNED_OUT)
    lease_over(one, other)
    assert rescue(now=NOON) == 0


def test_a_rescue_takes_a_batch_and_the_oldest_leases_first() -> None:
    late, later = in_flight(2)
    lease_over(late)
    lease_over(later)
    assert rescue(now=NOON, batch=1) == 1
    assert (attempt_of(late).state, attempt_of(later).state) == ("unknown", "submitting")
    assert rescue(now=NOON) == 1
    assert rescue(now=NOON) == 0


def test_what_was_rescued_is_not_sent_again_blindly() -> None:
    one = rescued()
    ServerFactory.create_batch(20)
    assert claimed(message_of(one).flow) == []
    ScriptedHost(UNANSWERED).resolves(NOON)
    ScriptedHost(CANNOT_SAY, UNANSWERED).resolves(NOON + 2 * SECOND)
    ScriptedHost(NOT_FOUND, UNANSWERED).resolves(NOON + 10 * SECOND)
    assert claimed(message_of(one).flow) == []
    assert Attempt.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_rescuers_at_once_rescue_it_once() -> None:
    (one,) = in_flight()
    lease_over(one)
    with transaction.atomic():
        assert rescue(now=NOON) == 1
        other = Racer(lambda: rescue(now=NOON))
        other.wait_until_blocked()
    assert other.result() == 0
    assert events_of(message_of(one)) == ["message.submitted"]


@pytest.mark.django_db(transaction=True)
def test_a_rescue_beside_the_settling_that_it_missed_changes_nothing() -> None:
    (one,) = in_flight()
    lease_over(one)
    with transaction.atomic():
        settled(one, ACCEPTED)
        late = Racer(lambda: rescue(now=NOON))
        late.wait_until_blocked()
    assert late.result() == 0
    assert attempt_of(one).state == "accepted"


# --- the answers about an unknown attempt --------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "promise", "attempt", "message"),
    [
        pytest.param(SENT, UNANSWERED, "sent", "submitted", id="sent"),
        pytest.param(says(ReportedState.DELIVERED), UNANSWERED, "delivered", "delivered", id="delivered"),
        pytest.param(says(ReportedState.FAILED, code=120), UNANSWERED, "failed", "queued", id="failed"),
        pytest.param(QUEUED, UNANSWERED, "accepted", "submitted", id="queued"),
        pytest.param(NEVER, UNANSWERED, "not_submitted", "queued", id="never"),
        pytest.param(NOT_FOUND, NEVER, "not_submitted", "queued", id="not found, then never"),
        pytest.param(CANNOT_SAY, NEVER, "not_submitted", "queued", id="cannot say, then never"),
        pytest.param(NOT_FOUND, SENT, "sent", "submitted", id="not found, and too late for a tombstone"),
        pytest.param(NOT_FOUND, UNANSWERED, "unknown", "submitted", id="not found, and no promise"),
        pytest.param(NOT_FOUND, NOT_FOUND, "unknown", "submitted", id="not found, and no tombstones there"),
        pytest.param(CANNOT_SAY, CANNOT_SAY, "unknown", "submitted", id="cannot say"),
        pytest.param(UNANSWERED, NEVER, "unknown", "submitted", id="unanswered"),
    ],
)
def test_each_answer_about_an_unknown_attempt_has_its_effect(
    status: StatusReport, promise: StatusReport, attempt: str, message: str
) -> None:
    (one,) = in_flight()
    settled(one, UNKNOWN)
    assert ScriptedHost(status, promise).resolves(NOON + SECOND) == 1
    stands = attempt_of(one)
    assert (stands.state, stands.message.status) == (attempt, message)
    assert stands.provider_message_id == ("guid-1" if attempt == "sent" else "")


@pytest.mark.parametrize(
    ("status", "questions"),
    [
        (says(ReportedState.DELIVERED), ["query"]),
        (QUEUED, ["query"]),
        (UNANSWERED, ["query"]),
        (NOT_FOUND, ["query", "tombstone"]),
        (CANNOT_SAY, ["query", "tombstone"]),
    ],
    ids=["delivered", "queued", "unanswered", "not found", "cannot say"],
)
def test_a_tombstone_is_asked_for_only_when_the_host_has_no_outcome(status: StatusReport, questions: list[str]) -> None:
    one = rescued()
    host = ScriptedHost(status)
    host.resolves(NOON)
    assert host.asked == [(question, one.send.attempt_uuid) for question in questions]


def test_a_promise_lets_an_unknown_message_go_elsewhere_and_holds_nothing_against_the_server(now: dt.datetime) -> None:
    one = rescued()
    ScriptedHost(NOT_FOUND, NEVER).resolves(now)
    message = message_of(one)
    # Charged: a message that kills its dispatcher each time must not go round for ever.
    assert (message.attempts_made, message.attempts_charged) == (1, 1)
    assert is_ready(message)
    assert failures_of(one) == []
    elsewhere = ServerFactory.create_batch(2)
    (again,) = claimed(message.flow, now=now)
    assert attempt_of(again).server_id in {server.pk for server in elsewhere}
    assert attempt_of(again).number == 2


def test_a_failure_that_the_host_reports_is_a_plain_one() -> None:
    one = rescued()
    ScriptedHost(says(ReportedState.FAILED)).resolves(NOON)
    assert failures_of(one) == [("reported_failed", 125)]
    assert (attempt_of(one).error_class, attempt_of(one).error_code) == ("sender_fault", 125)
    assert is_ready(message_of(one))


# --- the answers about an accepted attempt that is overdue ---------------------------------------------


@pytest.mark.parametrize(
    ("status", "promise", "attempt", "message", "failures"),
    [
        pytest.param(SENT, UNANSWERED, "sent", "submitted", [], id="sent"),
        pytest.param(says(ReportedState.DELIVERED), UNANSWERED, "delivered", "delivered", [], id="delivered"),
        pytest.param(
            says(ReportedState.FAILED, code=120),
            UNANSWERED,
            "failed",
            "queued",
            [("reported_failed", 120)],
            id="failed",
        ),
        pytest.param(QUEUED, NEVER, "not_submitted", "queued", [("timeout_125", 125)], id="queued, then never"),
        pytest.param(NOT_FOUND, NEVER, "not_submitted", "queued", [("timeout_125", 125)], id="forgotten, then never"),
        pytest.param(QUEUED, SENT, "sent", "submitted", [], id="queued, and too late for a tombstone"),
        pytest.param(CANNOT_SAY, CANNOT_SAY, "accepted", "submitted", [("timeout_125", 125)], id="cannot say"),
        pytest.param(CANNOT_SAY, UNANSWERED, "accepted", "submitted", [], id="cannot say, then away"),
        pytest.param(UNANSWERED, UNANSWERED, "accepted", "submitted", [], id="unanswered"),
    ],
)
def test_each_answer_about_an_overdue_attempt_has_its_effect(
    status: StatusReport, promise: StatusReport, attempt: str, message: str, failures: list[tuple[str, int]]
) -> None:
    one = accepted()
    assert ScriptedHost(status, promise).resolves(OVERDUE) == 1
    stands = attempt_of(one)
    assert (stands.state, stands.message.status) == (attempt, message)
    assert failures_of(one) == failures


def test_nobody_is_asked_before_the_receipt_is_overdue() -> None:
    accepted()
    assert ScriptedHost(UNANSWERED).resolves(NOON + 119 * SECOND) == 0


def test_an_attempt_that_is_overdue_is_held_against_its_server_once() -> None:
    one = accepted()
    silent = ScriptedHost(CANNOT_SAY, CANNOT_SAY)
    for minutes in (3, 6, 9):
        assert silent.resolves(NOON + minutes * MINUTE) == 1
    assert failures_of(one) == [("timeout_125", 125)]
    ScriptedHost(NOT_FOUND, NEVER).resolves(NOON + 20 * MINUTE)
    assert attempt_of(one).state == "not_submitted"
    assert failures_of(one) == [("timeout_125", 125)]


def test_a_late_delivery_of_an_overdue_attempt_is_a_delivery() -> None:
    one = accepted()
    ScriptedHost(CANNOT_SAY, CANNOT_SAY).resolves(OVERDUE)
    receipt = Receipt(ReportedState.DELIVERED, one.send.attempt_uuid)
    apply_host_receipts(host_of(one).host_id, [receipt], now=OVERDUE + SECOND)
    attempt = attempt_of(one)
    assert (attempt.state, attempt.error_class, attempt.message.status) == ("delivered", "", "delivered")
    assert attempt.server is not None
    assert attempt.server.failed_in_row == 0
    assert failures_of(one) == [("timeout_125", 125)]


def test_a_host_that_knows_its_id_has_something_to_show() -> None:
    one = accepted()
    ScriptedHost(CANNOT_SAY, says(ReportedState.UNKNOWN, guid="guid-1")).resolves(OVERDUE)
    assert failures_of(one) == []
    assert attempt_of(one).provider_message_id == "guid-1"


def test_an_answer_that_teaches_an_id_brings_in_what_waited_for_it() -> None:
    one = accepted()
    apply_host_receipts(host_of(one).host_id, [Receipt(ReportedState.DELIVERED, None, "guid-1")], now=NOON)
    ScriptedHost(SENT).resolves(OVERDUE)
    assert attempt_of(one).state == "delivered"


@pytest.mark.parametrize("status", [QUEUED, CANNOT_SAY, NOT_FOUND, NEVER], ids=lambda report: str(report.state))
def test_nothing_is_asked_back_of_what_was_sent(status: StatusReport) -> None:
    one = accepted()
    apply_host_receipts(host_of(one).host_id, [Receipt(ReportedState.SENT, one.send.attempt_uuid)], now=NOON)
    host = ScriptedHost(status, NEVER)
    assert host.resolves(OVERDUE) == 1
    assert [question for question, _ in host.asked] == ["query"]
    assert (attempt_of(one).state, message_of(one).status) == ("sent", "submitted")
    assert failures_of(one) == []


# --- the questions themselves --------------------------------------------------------------------------


def test_questions_get_rarer_and_end() -> None:
    one = rescued()
    silent = ScriptedHost(UNANSWERED)
    now, pauses = NOON, []
    while (check_at := attempt_of(one).check_at) is not None:
        pauses.append(check_at - now)
        now = check_at
        assert silent.resolves(now - dt.timedelta(microseconds=1)) == 0
        assert silent.resolves(now) == 1
    until_decision = Terms().delivery - CHECK_PAUSES[0] - CHECK_PAUSES[1]
    assert pauses == [dt.timedelta(0), *CHECK_PAUSES[:2], until_decision, *CHECK_PAUSES[3:]]
    assert silent.resolves(now + 600 * MINUTE) == 0
    assert (attempt_of(one).state, attempt_of(one).checks_made) == ("unknown", len(CHECK_PAUSES) + 1)


def test_an_answer_shows_that_the_host_is_there(now: dt.datetime) -> None:
    (one, other) = in_flight(2)
    settled(one, UNKNOWN)
    later = now + MINUTE
    ScriptedHost(NOT_FOUND).resolves(later)
    seen = dict(Host.objects.values_list("pk", "last_seen_at"))
    assert (seen[host_of(one).host_id], seen[host_of(other).host_id]) == (now, now)  # the promise was not answered
    ScriptedHost(CANNOT_SAY, CANNOT_SAY).resolves(later)
    assert Host.objects.get(pk=host_of(one).host_id).last_seen_at == now  # nothing was due
    ScriptedHost(CANNOT_SAY, CANNOT_SAY).resolves(later + 2 * SECOND)
    assert Host.objects.get(pk=host_of(one).host_id).last_seen_at == later + 2 * SECOND


def test_the_next_question_is_planned_before_anybody_is_asked(now: dt.datetime) -> None:
    one = rescued()
    (check,) = resolve.claim_checks(now=now, routes={})
    assert (check.attempt_id, check.attempt_uuid) == (one.attempt_id, one.send.attempt_uuid)
    assert check.host is not None
    assert (check.host.base_url, check.host.secrets) == (host_of(one).base_url, host_of(one).secrets)
    assert attempt_of(one).check_at == now + CHECK_PAUSES[0]
    assert resolve.claim_checks(now=now, routes={}) == []


def test_hosts_that_are_busy_are_asked_in_another_turn(now: dt.datetime) -> None:
    first, second = in_flight(2)
    lease_over(first, second)
    rescue(now=now)
    (check,) = resolve.claim_checks(now=now, routes={}, without=[host_of(first).host_id])
    assert check.attempt_id == second.attempt_id
    assert attempt_of(first).check_at == now
    (check,) = resolve.claim_checks(now=now, routes={})
    assert check.attempt_id == first.attempt_id


def test_an_answer_that_a_receipt_overtook_changes_nothing(now: dt.datetime) -> None:
    one = rescued()
    checks = resolve.claim_checks(now=now, routes={})
    apply_host_receipts(host_of(one).host_id, [Receipt(ReportedState.DELIVERED, one.send.attempt_uuid)], now=now)
    assert resolve.apply_answers([(checks[0], SENT)], now=now, rng=Lowest()) == 1  # its id was not known yet
    assert resolve.apply_answers([(checks[0], NEVER)], now=now, rng=Lowest()) == 0
    assert (attempt_of(one).state, message_of(one).status) == ("delivered", "delivered")


@pytest.mark.django_db(transaction=True)
def test_two_resolvers_at_once_take_different_ones(now: dt.datetime) -> None:
    ones = in_flight(4)
    lease_over(*ones)
    assert rescue(now=now) == 4
    with transaction.atomic():
        mine = resolve.claim_checks(now=now, routes={}, batch=2)
        theirs = Racer(lambda: resolve.claim_checks(now=now, routes={}, batch=4)).result()
    assert sorted(check.attempt_id for check in (*mine, *theirs)) == [one.attempt_id for one in ones]
    assert len(mine) == len(theirs) == 2
