"""Providers are asked about a day's attempts: what differs is told, and a state that was missed is let in."""

from __future__ import annotations

import datetime as dt
import io
import json
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import aiohttp
import pytest
from django.core.management import CommandError, call_command

from otp_service.core.errors import ServiceError
from otp_service.core.outcomes import ReportedState, StatusReport
from otp_service.events.models import Event
from otp_service.messages.models import Attempt
from otp_service.messages.rules import AttemptState
from otp_service.routes import reconcile
from otp_service.routes.breakers import subject_of
from otp_service.routes.models import Route
from otp_service.routes.providers.base import Question
from otp_service.routes.providers.twilio import Twilio
from otp_service.routes.reconcile_rules import Kind, Tally
from otp_service.routes.route_rules import RouteKind
from otp_service.simulation.twilio_api import TwilioApi
from scheduler import tasks
from tests.factories import NOON, AttemptFactory, RouteFactory
from tests.routes.twilio_thread import ACCOUNT, TOKEN, knows, twilio

pytestmark = pytest.mark.django_db

DAY = NOON.date()
ONE = "sms:one"


@pytest.fixture(scope="module")
def running() -> Iterator[TwilioApi]:
    with twilio() as api:
        yield api


@pytest.fixture
def api(running: TwilioApi) -> TwilioApi:
    running.messages.clear()
    return running


def route(api: TwilioApi, name: str = ONE, **fields: Any) -> Route:
    given = {"kind": "twilio", "can_query": True, "tps": 1_000, "settings": {"base_url": api.base_url}}
    credentials = json.dumps({"account_sid": ACCOUNT, "auth_token": TOKEN})
    return RouteFactory.create(name=name, credentials=credentials, **{**given, **fields})


def attempt(sid: str, state: AttemptState = AttemptState.SENT, **fields: Any) -> Attempt:
    ended = NOON if state in {AttemptState.DELIVERED, AttemptState.FAILED, AttemptState.NOT_SUBMITTED} else None
    given = {"route": ONE, "server": None, "provider_message_id": sid, "finished_at": ended}
    return AttemptFactory.create(state=state, **{**given, **fields})


def reconciled(**options: Any) -> Tally:
    (spec,) = reconcile.queryable(ONE)
    *_, tally = reconcile.by_questions(spec, DAY, clock=lambda: NOON, **options)
    return tally


def test_a_delivery_whose_receipt_got_lost_is_told_and_let_in(api: TwilioApi) -> None:
    route(api)
    missed = attempt("SM1")
    knows(api, "SM1", "delivered")

    tally = reconciled()

    assert (tally.attempts, tally.compared, tally.agreed, tally.learned) == (1, 1, 0, 1)
    assert tally.differences == {Kind.STATE: 1}
    missed.refresh_from_db()
    assert (missed.state, missed.message.status) == ("delivered", "delivered")


def test_asked_again_they_agree(api: TwilioApi) -> None:
    route(api)
    attempt("SM1")
    knows(api, "SM1", "delivered")

    assert reconciled().learned == 1
    again = reconciled()
    assert (again.agreed, again.learned, again.differences) == (1, 0, {})


def test_a_failure_is_let_in_with_the_providers_own_reason(api: TwilioApi) -> None:
    route(api)
    missed = attempt("SM1")
    knows(api, "SM1", "undelivered", 30005)

    assert reconciled().learned == 1

    missed.refresh_from_db()
    assert (missed.state, missed.error_class, missed.error_code) == ("failed", "recipient_invalid", 30005)


def test_what_a_newer_fact_contradicts_is_told_and_changes_nothing(api: TwilioApi) -> None:
    route(api)
    known = attempt("SM1", AttemptState.DELIVERED)
    knows(api, "SM1", "undelivered", 30003)

    tally = reconciled()

    assert (tally.differences, tally.learned) == ({Kind.STATE: 1}, 0)
    known.refresh_from_db()
    assert known.state == "delivered"


def test_an_attempt_that_the_provider_never_heard_of_is_told_and_stays(api: TwilioApi) -> None:
    route(api)
    unheard = attempt("SM9", AttemptState.UNKNOWN)

    tally = reconciled()

    assert tally.differences == {Kind.NOT_THEIRS: 1}
    unheard.refresh_from_db()
    assert unheard.state == "unknown"


def test_attempts_of_other_days_and_routes_and_those_that_never_left_are_not_asked_about(api: TwilioApi) -> None:
    route(api)
    midnight = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
    attempt("SM1", claimed_at=midnight - dt.timedelta(microseconds=1))
    attempt("SM2", claimed_at=midnight)
    attempt("SM3", route="sms:two")
    attempt("", AttemptState.NOT_SUBMITTED)
    attempt("", AttemptState.SUBMITTING, settled_at=None)
    attempt("SM4", claimed_at=midnight + dt.timedelta(days=1))
    for number in range(1, 5):
        knows(api, f"SM{number}", "sent")

    assert (reconciled().attempts, reconciled().agreed) == (1, 1)


def test_those_that_have_not_ended_are_asked_about_first(api: TwilioApi) -> None:
    route(api)
    attempt("SM1", AttemptState.DELIVERED)
    attempt("SM2", AttemptState.UNKNOWN)
    knows(api, "SM1", "delivered")
    knows(api, "SM2", "delivered")

    tally = reconciled(most=1)

    assert (tally.attempts, tally.compared, tally.learned) == (2, 1, 1)


def test_without_an_answer_nothing_is_said(api: TwilioApi) -> None:
    route(api, settings={"base_url": "http://127.0.0.1:1"})
    attempt("SM1")
    attempt("")
    tally = reconciled()
    assert (tally.compared, tally.unanswered, tally.differences) == (0, 2, {})


class Recorder(Twilio):
    """Keeps what it is asked, and breaks down over one attempt."""

    asked: ClassVar[list[Question]] = []

    async def query(self, session: aiohttp.ClientSession, question: Question) -> StatusReport | None:
        self.asked.append(question)
        if question.provider_message_id == "broken":
            raise RuntimeError(question.to)
        return StatusReport(ReportedState.SENT)


def test_a_question_has_what_providers_may_need_and_one_that_breaks_is_one_without_an_answer(
    api: TwilioApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    recorder.asked.clear()
    monkeypatch.setattr(reconcile, "PROVIDERS", {RouteKind.TWILIO: recorder})
    route(api)
    broken, asked = attempt("broken"), attempt("SM1")

    tally = reconciled()

    assert (tally.unanswered, tally.agreed) == (1, 1)
    assert [(each.attempt_uuid, each.to, each.submitted_at) for each in recorder.asked] == [
        (one.uuid, one.message.to, NOON) for one in (broken, asked)
    ]


def test_no_question_is_asked_after_its_time(api: TwilioApi) -> None:
    route(api)
    attempt("SM1")
    tally = reconciled(until=time.monotonic())
    assert (tally.attempts, tally.compared, tally.unanswered) == (1, 0, 0)


def test_questions_keep_to_the_routes_rate(api: TwilioApi) -> None:
    """At one in ten seconds, a tenth of a second is enough for one."""
    route(api, tps=0.1)
    for sid in ("SM1", "SM2", "SM3"):
        attempt(sid)
        knows(api, sid, "sent")
    assert reconciled(until=time.monotonic() + 0.1).compared <= 1


def test_batches_cover_every_attempt_once(api: TwilioApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "_BATCH", 2)
    route(api)
    for number in range(5):
        attempt(f"SM{number}")
        knows(api, f"SM{number}", "sent")
    (spec,) = reconcile.queryable(ONE)
    steps = [tally.compared for tally in reconcile.by_questions(spec, DAY, clock=lambda: NOON)]
    assert steps == [0, 2, 4, 5]


@pytest.mark.parametrize(
    ("name", "fields", "says"),
    [("sms:nine", {}, "no route"), (ONE, {"can_query": False}, "cannot be asked"), (ONE, {"kind": "kannel"}, "asked")],
    ids=["no such route", "not set", "a kind that cannot"],
)
def test_a_route_that_cannot_be_asked_is_refused(api: TwilioApi, name: str, fields: dict[str, Any], says: str) -> None:
    route(api, **fields)
    with pytest.raises(ServiceError, match=says):
        reconcile.queryable(name)
    assert [spec.name for spec in reconcile.queryable()] == ([] if fields else [ONE])


# --- every night ---------------------------------------------------------------------------------------

NIGHT = dt.datetime(2026, 9, 2, 3, 0, tzinfo=dt.UTC)


def told(name: str = ONE) -> list[dict[str, Any]]:
    return [event.data for event in Event.objects.filter(type="route.reconciled", subject_uuid=subject_of(name))]


def test_a_night_leaves_one_event_a_route(api: TwilioApi) -> None:
    route(api)
    route(api, "sms:two")
    attempt("SM1")
    knows(api, "SM1", "delivered")

    assert [reconcile.nightly(clock=lambda: NIGHT), reconcile.nightly(clock=lambda: NIGHT)] == [2, 0]

    (one,), (two,) = told(), told("sms:two")
    counts = {"attempts": 1, "compared": 1, "agreed": 0, "learned": 1, "unanswered": 0, "differences": {"state": 1}}
    assert one == {"day": "2026-09-01", "route": ONE, "our_cost": {}, "their_cost": {}, **counts}
    assert (two["route"], two["attempts"]) == ("sms:two", 0)


def test_before_the_night_nothing_is_asked(api: TwilioApi) -> None:
    route(api)
    assert reconcile.nightly(clock=lambda: NIGHT - dt.timedelta(microseconds=1)) == 0
    assert told() == []


def test_the_next_night_is_another_one(api: TwilioApi) -> None:
    route(api)
    for night in (NIGHT, NIGHT + dt.timedelta(days=1)):
        assert reconcile.nightly(clock=lambda night=night: night) == 1  # type: ignore[misc]  # a default binds it
    assert [each["day"] for each in told()] == ["2026-09-01", "2026-09-02"]


def test_the_task_does_a_nights_work_and_may_run_again(api: TwilioApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "utc_now", lambda: NIGHT)
    route(api)
    for _ in range(2):
        tasks.reconcile_routes()
    assert len(told()) == 1


# --- the command ---------------------------------------------------------------------------------------


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("reconcile_routes", "--day", "2026-09-01", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_the_command_tells_of_all_routes_that_can_be_asked(api: TwilioApi) -> None:
    route(api)
    route(api, "sms:two", can_query=False)
    missed = attempt("SM1")
    knows(api, "SM1", "delivered")

    text = run()

    assert f"sms:one: another state: {missed.uuid} (ours sent, theirs delivered)" in text
    assert "sms:two" not in text
    assert missed.message.to not in text


def test_without_routes_it_says_what_to_do() -> None:
    assert "no route with can_query: switch it on in the admin, or give --route and --file" in run()


def test_an_unknown_route_is_an_error() -> None:
    with pytest.raises(CommandError, match="no route"):
        run("--route", "sms:nine")


def test_a_bad_day_is_an_error() -> None:
    with pytest.raises(CommandError, match="write a day as"):
        call_command("reconcile_routes", "--day", "soon")


def test_stopped_by_hand_it_tells_what_it_found(api: TwilioApi, monkeypatch: pytest.MonkeyPatch) -> None:
    route(api)
    for sid in ("SM1", "SM2"):
        attempt(sid)
        knows(api, sid, "delivered")
    monkeypatch.setattr(reconcile, "_BATCH", 1)
    calls = iter([None, KeyboardInterrupt])
    answers = reconcile._answers

    def interrupted(*arguments: Any) -> Any:
        if (error := next(calls)) is not None:
            raise error
        return answers(*arguments)

    monkeypatch.setattr(reconcile, "_answers", interrupted)
    out = io.StringIO()
    with pytest.raises(CommandError, match="stopped") as stopped:
        call_command("reconcile_routes", "--day", "2026-09-01", stdout=out, stderr=io.StringIO())

    assert stopped.value.returncode == 130
    assert out.getvalue().count("another state:") == 1
    assert Attempt.objects.filter(state="delivered").count() == 1
