"""Nobody can say whether a copy has left: it is asked about, waited for, and then held or raced, within a budget."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otp_service.core.outcomes import ErrorClass, ReportedState, StatusReport
from otp_service.messages.expiry import cancel_due, expire_due
from otp_service.messages.lifecycle import NotCancellable, cancel
from otp_service.messages.models import Flow, Ready
from otp_service.routes import resolve, table
from otp_service.routes.submissions import rescue
from tests.factories import NOON, RouteFactory
from tests.routes.cascade import SECOND, Cascade, on_its_way, refused, two_sms_routes
from tests.routes.scripted_host import says
from tests.routes.steps import ACCEPTED, NOT_CONNECTED, UNKNOWN, events_of, is_ready, settled

pytestmark = pytest.mark.django_db
WINDOW = 10  # seconds until a receipt should have come: `delivery_s` of a route


@pytest.fixture(autouse=True)
def _simulated(settings: Any) -> None:
    settings.SIMULATED_ROUTES = True


def unclear(*, on_unknown: str = "race", can_query: bool = False, **fields: Any) -> Cascade:
    """A message whose first attempt ended without a clear answer."""
    two_sms_routes(can_query=can_query, delivery_s=WINDOW)
    cascade = on_its_way(on_unknown=on_unknown, **fields)
    assert cascade.attempts(UNKNOWN) == "sms:one"
    return cascade


def racing(**fields: Any) -> Cascade:
    """The same after its window: an extra copy may leave."""
    cascade = unclear(**fields)
    for seconds in (1, WINDOW - 1):
        cascade.goes(seconds)
        cascade.resolves()
    assert is_ready(cascade.row())
    return cascade


# --- first it is asked about ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "attempt", "message"),
    [
        pytest.param(says(ReportedState.QUEUED, guid="id-1"), "accepted", "submitted", id="it has it"),
        pytest.param(says(ReportedState.SENT), "sent", "submitted", id="it has left"),
        pytest.param(says(ReportedState.DELIVERED), "delivered", "delivered", id="it is there"),
        pytest.param(says(ReportedState.NEVER), "not_submitted", "queued", id="it was never sent"),
        pytest.param(
            StatusReport(ReportedState.FAILED, error_class=ErrorClass.RECIPIENT_INVALID),
            "failed",
            "failed",
            id="the number cannot be",
        ),
        pytest.param(says(ReportedState.NOT_FOUND), "unknown", "submitted", id="it knows nothing of it"),
        pytest.param(StatusReport(ReportedState.UNKNOWN, answered=False), "unknown", "submitted", id="no answer"),
    ],
)
def test_its_provider_is_asked_a_second_later(answer: StatusReport, attempt: str, message: str) -> None:
    cascade = unclear(can_query=True)
    cascade.provider.status = answer
    assert cascade.resolves() == 0
    cascade.goes(1)
    assert cascade.resolves() == 1
    (question,) = cascade.provider.asked
    assert (question.to, question.attempt_uuid) == (cascade.message.to, cascade.message.attempts.get().uuid)
    assert (cascade.message.attempts.get().state, cascade.row().status) == (attempt, message)


def test_who_cannot_be_asked_is_not() -> None:
    cascade = unclear()
    cascade.goes(1)
    assert cascade.resolves() == 1
    assert cascade.provider.asked == []


# --- then it is waited for, and decided ----------------------------------------------------------------


def test_no_copy_leaves_before_the_receipt_should_have_come() -> None:
    cascade = unclear()
    cascade.goes(1)
    cascade.resolves()
    cascade.goes(WINDOW - 1.001)
    assert cascade.resolves() == 0
    assert cascade.claims() is None
    cascade.goes(0.001)
    assert cascade.resolves() == 1
    assert cascade.row().status == "submitted"
    assert cascade.attempts(ACCEPTED) == "sms:two"


def test_an_extra_copy_is_flagged_and_counted() -> None:
    cascade = racing()
    assert cascade.attempts(ACCEPTED) == "sms:two"
    first, second = cascade.message.attempts.order_by("number")
    assert (first.possible_duplicate, second.possible_duplicate) == (False, True)
    assert second.refusals == {"sms:one": "already_tried"}
    assert (cascade.row().copies_left, cascade.row().status) == (0, "submitted")
    assert events_of(cascade.message) == ["message.submitted"]


def test_a_held_message_waits_for_a_receipt_or_its_end(settings: Any) -> None:
    settings.RECEIPT_GRACE = 60 * SECOND
    cascade = unclear(on_unknown="hold")
    for _ in range(20):
        cascade.goes(30)
        cascade.resolves()
        assert cascade.claims() is None
    cascade.now = cascade.message.expires_at + 60 * SECOND
    assert expire_due(now=cascade.now) == 1
    assert (cascade.row().status, cascade.row().final_reason) == ("expired", "expired_unconfirmed")


def test_no_more_copies_leave_than_the_budget_allows() -> None:
    RouteFactory.create(name="sms:three", priority=-1)
    cascade = racing()
    assert cascade.attempts(UNKNOWN) == "sms:two"
    for _ in range(20):
        cascade.goes(15)
        cascade.resolves()
        assert cascade.claims() is None
    assert cascade.states() == [("sms:one", "unknown"), ("sms:two", "unknown")]


def test_a_larger_budget_allows_more() -> None:
    RouteFactory.create(name="sms:three", priority=-1)
    cascade = racing(copies_left=2)
    assert cascade.attempts(UNKNOWN) == "sms:two"
    for seconds in (1, WINDOW - 1):
        cascade.goes(seconds)
        cascade.resolves()
    assert cascade.attempts(ACCEPTED) == "sms:three"
    assert cascade.row().copies_left == 0


@pytest.mark.parametrize("result", [refused(ErrorClass.TEMPORARY), NOT_CONNECTED], ids=["refused", "not connected"])
def test_a_copy_that_did_not_leave_is_not_counted(result: Any) -> None:
    cascade = racing()
    assert cascade.attempts(result) == "sms:two"
    assert (cascade.row().copies_left, cascade.row().status) == (1, "submitted")
    cascade.goes(1)
    cascade.resolves()
    assert cascade.attempts(ACCEPTED) == "sms:two"
    assert cascade.row().copies_left == 0


@pytest.mark.parametrize(
    ("report", "status"),
    [
        pytest.param(ReportedState.QUEUED, "submitted", id="it was taken after all"),
        pytest.param(ReportedState.SENT, "submitted", id="it left after all"),
        pytest.param(ReportedState.DELIVERED, "delivered", id="it is there"),
    ],
)
def test_a_receipt_drops_the_copy_that_has_not_left(report: ReportedState, status: str) -> None:
    cascade = racing()
    assert cascade.reports(report, 1) == 1
    assert cascade.row().status == status
    assert not is_ready(cascade.row())
    assert cascade.claims() is None


def test_a_copy_that_was_taken_for_refused_and_left_drops_the_extra_one() -> None:
    RouteFactory.create(name="sms:three", priority=-1)
    two_sms_routes(delivery_s=WINDOW)
    cascade = on_its_way(on_unknown="race")
    cascade.attempts(refused(ErrorClass.ROUTE_REJECTED))
    assert cascade.attempts(UNKNOWN) == "sms:two"
    for seconds in (1, WINDOW - 1):
        cascade.goes(seconds)
        cascade.resolves()
    assert is_ready(cascade.row())
    cascade.reports(ReportedState.SENT, 1)
    assert not is_ready(cascade.row())
    assert cascade.row().status == "submitted"


def test_cancelling_its_campaign_drops_the_copy_that_has_not_left() -> None:
    cascade = racing()
    Flow.objects.update(state="cancelled")
    assert cancel_due(now=cascade.now) == 1
    assert (cascade.row().status, is_ready(cascade.row())) == ("submitted", False)
    assert cancel_due(now=cascade.now) == 0


def test_a_failure_of_the_first_makes_the_copy_the_only_one() -> None:
    cascade = racing()
    cascade.reports(ReportedState.FAILED, 1, error_class=ErrorClass.TEMPORARY)
    assert cascade.row().status == "queued"
    one = cascade.claims()
    assert one is not None
    attempt = cascade.message.attempts.get(number=2)
    assert (attempt.possible_duplicate, cascade.row().copies_left) == (False, 1)


def test_the_first_delivery_ends_it_and_a_second_changes_nothing() -> None:
    cascade = racing()
    cascade.attempts(ACCEPTED)
    cascade.reports(ReportedState.DELIVERED, 2)
    assert (cascade.row().status, cascade.row().final_route) == ("delivered", "sms:two")
    cascade.goes(1)
    cascade.reports(ReportedState.DELIVERED, 1)
    assert cascade.row().final_route == "sms:two"
    assert [state for _, state in cascade.states()] == ["delivered", "delivered"]
    assert events_of(cascade.message) == ["message.submitted", "message.delivered"]


def test_it_fails_only_when_no_copy_can_arrive_any_more() -> None:
    cascade = racing(max_attempts=2)
    cascade.attempts(ACCEPTED)
    cascade.reports(ReportedState.FAILED, 2, error_class=ErrorClass.TEMPORARY)
    assert cascade.row().status == "submitted"
    cascade.reports(ReportedState.FAILED, 1, error_class=ErrorClass.TEMPORARY)
    assert (cascade.row().status, cascade.row().final_reason) == ("failed", "attempts_exhausted")


def test_a_copy_that_finds_no_way_waits_for_one_as_long_as_the_message_lives() -> None:
    cascade = racing()
    assert cascade.claims(without_room=["sms:two"]) is None
    assert (cascade.row().status, is_ready(cascade.row())) == ("submitted", False)
    cascade.goes(2)
    cascade.resolves()
    assert cascade.attempts(ACCEPTED) == "sms:two"


@pytest.mark.parametrize("what_is_left", ["its life", "a route"])
def test_without_a_way_it_is_held(what_is_left: str) -> None:
    cascade = racing()
    if what_is_left == "its life":
        cascade.now = cascade.message.expires_at
    else:
        two = cascade.message.flow
        two.channels = ["voice"]
        two.save(update_fields=["channels"])
        RouteFactory.create(name="voice:one", lanes=["promo"])
    assert cascade.claims() is None
    assert (cascade.row().status, cascade.row().finished_at) == ("submitted", None)
    assert not Ready.objects.exists()


def test_a_crash_between_the_row_and_the_call_is_never_sent_again_blindly(django_db_setup: None) -> None:
    two_sms_routes(can_query=True, delivery_s=WINDOW)
    cascade = on_its_way(on_unknown="hold")
    assert cascade.claims() is not None
    cascade.message.attempts.update(lease_until=NOON - dt.timedelta(days=1))
    assert rescue(now=cascade.now) == 1
    assert cascade.states() == [("sms:one", "unknown")]
    cascade.provider.status = says(ReportedState.QUEUED, guid="id-1")
    assert cascade.resolves() == 1
    assert cascade.states() == [("sms:one", "accepted")]
    assert cascade.claims() is None


def test_what_its_provider_took_and_does_not_report_is_asked_about_and_then_held() -> None:
    two_sms_routes(can_query=True, receipt_wait_s=30)
    cascade = on_its_way(on_unknown="race", expires_at=NOON + dt.timedelta(hours=1))
    assert cascade.attempts(ACCEPTED) == "sms:one"
    cascade.goes(29.999)
    assert cascade.resolves() == 0
    cascade.goes(0.001)
    assert cascade.resolves() == 1
    for _ in range(20):
        cascade.goes(30)
        cascade.resolves()
        assert cascade.claims() is None
    assert cascade.states() == [("sms:one", "accepted")]


def test_what_nobody_can_be_asked_about_is_not_looked_at() -> None:
    two_sms_routes()
    cascade = on_its_way()
    cascade.attempts(ACCEPTED)
    assert cascade.message.attempts.get().check_at is None


# --- in whatever order receipts come -------------------------------------------------------------------

_NEWS = list(itertools.product([1, 2], [ReportedState.SENT, ReportedState.DELIVERED, ReportedState.FAILED]))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(news=st.permutations(_NEWS * 2))
def test_whatever_the_order_of_receipts_the_end_is_the_same(news: list[tuple[int, ReportedState]]) -> None:
    with transaction.atomic():
        cascade = racing(max_attempts=2)
        cascade.attempts(ACCEPTED)
        for number, state in news:
            error = ErrorClass.TEMPORARY if state is ReportedState.FAILED else None
            cascade.reports(state, number, error_class=error)
        assert [state for _, state in cascade.states()] == ["delivered", "delivered"]
        assert cascade.row().status == "delivered"
        assert not is_ready(cascade.row())
        ends = [["message.delivered"], ["message.failed", "message.corrected"]]
        assert events_of(cascade.message) in [["message.submitted", *end] for end in ends]
        transaction.set_rollback(True)


def test_a_step_on_the_way_does_not_put_off_the_question_at_the_routes_limit() -> None:
    two_sms_routes(can_query=True, receipt_wait_s=2)
    cascade = on_its_way()
    cascade.attempts(ACCEPTED)
    cascade.goes(1)
    cascade.reports(ReportedState.SENT, 1)
    cascade.goes(1)
    cascade.provider.status = says(ReportedState.DELIVERED)
    assert cascade.resolves() == 1
    assert cascade.row().status == "delivered"


@pytest.mark.parametrize("state", [ReportedState.QUEUED, ReportedState.SENT])
@pytest.mark.parametrize("early", [False, True], ids=["after the call", "before the call has ended"])
def test_a_report_on_the_way_leaves_the_question_at_the_routes_limit(state: ReportedState, early: bool) -> None:
    """Which is far beyond the one of all routes."""
    two_sms_routes(can_query=True, receipt_wait_s=1_800)
    cascade = on_its_way()
    one = cascade.claims()
    assert one is not None
    if early:
        cascade.reports(state, 1)
        settled(one, ACCEPTED, now=cascade.now)
    else:
        settled(one, ACCEPTED, now=cascade.now)
        cascade.goes(1)
        cascade.reports(state, 1)
        cascade.reports(ReportedState.QUEUED, 1)
    assert cascade.message.attempts.get().check_at == NOON + 1_800 * SECOND


@pytest.mark.parametrize("state", [ReportedState.NEVER, ReportedState.FAILED])
def test_a_report_that_it_will_not_be_sent_leads_to_the_next_route_after_one_more_try(state: ReportedState) -> None:
    two_sms_routes()
    cascade = on_its_way()
    routes = []
    for number in (1, 2, 3):
        routes.append(cascade.attempts(ACCEPTED))
        cascade.reports(state, number)
    assert routes == ["sms:one", "sms:one", "sms:two"]


def test_a_decision_that_nobody_wrote_falls_due_again() -> None:
    """The process that was to decide died, or its database was away."""
    cascade = unclear()
    cascade.goes(WINDOW)
    assert len(resolve.claim_checks(now=cascade.now, routes=table.load_with_terms())) == 1
    cascade.goes(resolve.DECIDED_WITHIN.total_seconds())
    assert cascade.resolves() == 1
    assert is_ready(cascade.row())


def test_a_provider_that_has_enough_questions_is_waited_for_a_moment_before_it_is_decided() -> None:
    cascade = unclear(can_query=True)
    attempt = cascade.message.attempts.get()
    assert attempt.check_at is not None
    routes = table.load_with_terms()
    moment = dt.timedelta(microseconds=1)
    assert not resolve.claim_checks(now=attempt.check_at + resolve.TURN - moment, routes=routes, without=["sms:one"])
    (check,) = resolve.claim_checks(now=attempt.claimed_at + WINDOW * SECOND, routes=routes, without=["sms:one"])
    assert (check.question, check.is_due) == (None, True)
    attempt.refresh_from_db()
    assert attempt.checks_made == 0


def test_nobody_is_decided_about_who_was_never_asked_about() -> None:
    cascade = unclear(can_query=True)
    cascade.goes(WINDOW)
    cascade.provider.status = says(ReportedState.DELIVERED)
    assert cascade.resolves() == 1
    assert cascade.row().status == "delivered"
    assert len(cascade.provider.asked) == 1


def test_an_extra_copy_that_no_route_can_ever_carry_is_not_looked_for_again() -> None:
    cascade = racing()
    cascade.message.flow.channels = ["voice"]
    cascade.message.flow.save(update_fields=["channels"])
    RouteFactory.create(name="voice:one", prefixes=["+1"])
    assert cascade.claims() is None
    assert cascade.message.attempts.get().check_at is None


@pytest.mark.parametrize("state", [ReportedState.UNKNOWN, ReportedState.QUEUED])
def test_a_report_in_whatever_word_shows_that_its_provider_has_it(state: ReportedState) -> None:
    cascade = racing()
    cascade.reports(state, 1, provider_message_id="id-1")
    assert cascade.states() == [("sms:one", "accepted")]
    assert cascade.claims() is None


def test_a_withdrawn_message_sends_no_extra_copy(now: dt.datetime) -> None:
    cascade = racing()
    with pytest.raises(NotCancellable):
        cancel(cascade.message.client_id, cascade.message.uuid, now=now)
    assert cascade.claims() is None
    cascade.goes(60)
    cascade.resolves()
    assert cascade.claims() is None


def test_a_report_before_the_answer_does_not_put_off_the_question_either() -> None:
    two_sms_routes(can_query=True, receipt_wait_s=2)
    cascade = on_its_way()
    one = cascade.claims()
    assert one is not None
    cascade.reports(ReportedState.SENT, 1)
    settled(one, ACCEPTED, now=cascade.now)
    cascade.goes(2)
    assert cascade.resolves() == 1


def test_when_an_extra_copy_fails_it_is_decided_anew() -> None:
    RouteFactory.create(name="sms:three", priority=-1)
    cascade = racing(copies_left=2)
    assert cascade.attempts(ACCEPTED) == "sms:two"
    cascade.reports(ReportedState.FAILED, 2, error_class=ErrorClass.ROUTE_REJECTED)
    cascade.goes(1)
    assert cascade.resolves() == 1
    assert cascade.attempts(ACCEPTED) == "sms:three"
