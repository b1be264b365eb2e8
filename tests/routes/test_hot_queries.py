"""What the dispatcher asks all the time reads a few rows of an index, whatever waits in the tables.

Each service runs once, and every statement that it sent is explained: on tables that the planner knows, and
on tables that were empty a moment ago and were never analysed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection, models, transaction
from django.test.utils import CaptureQueriesContext, override_settings
from pytest_django import DjangoDbBlocker

from otp_service.core.outcomes import Receipt, ReportedState, Submission, SubmitResult
from otp_service.messages.expiry import cancel_due, expire_due, stage_due
from otp_service.messages.models import Attempt, Flow, Message, Ready
from otp_service.messages.rules import Lane
from otp_service.routes import claim as claiming
from otp_service.routes import flows, resolve
from otp_service.routes.claim import Claimed
from otp_service.routes.models import OrphanReceipt
from otp_service.routes.receipts import apply_host_receipts, match_all_orphans
from otp_service.routes.submissions import Submitted, rescue, settle
from scheduler import dispatcher
from tests.draws import Lowest
from tests.factories import NOON, AttemptFactory, FlowFactory, HostFactory, MessageFactory, ServerFactory
from tests.routes.steps import claim, host_of, ways_of

pytestmark = pytest.mark.django_db  # a test's own transaction lies inside that of `backlog`
#: Messages that wait. Of tables that were never analysed fewer tell as much: the planner counts none of them.
BACKLOG = {"analysed": 500_000, "never analysed": 50_000}
BESIDE = 20_000  # rows of the same tables that are in no queue
BATCH = 50
#: Rows that a statement for one batch may touch: the batch, what is locked beside it, and what is counted.
#: Index entries of what a test has rolled back count too, until they are vacuumed: hence the factor.
FEW = 20 * BATCH
OURS = (Message, Ready, Attempt, Flow, OrphanReceipt)


@dataclass(frozen=True)
class Backlog:
    """One flow that is nearly all of the queue, one small flow, and what a batch is about."""

    large: Flow
    small: Flow
    in_flight: Sequence[Claimed]


@pytest.fixture(scope="module", params=["analysed", "never analysed"])
def backlog(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[Backlog]:
    """Made once for all tests, each of which undoes what it did."""
    with django_db_blocker.unblock(), transaction.atomic():
        with connection.cursor() as cursor:
            for option in dispatcher._PLANNER_OPTIONS.replace("-c ", "").split():
                cursor.execute(f"SET LOCAL {option}")
            # In the transaction: the figures of an earlier run are gone, and come back with the rollback.
            tables = ", ".join(model._meta.db_table for model in OURS)
            cursor.execute(f"TRUNCATE {tables} CASCADE")
        made = _make(BACKLOG[request.param])
        if request.param == "analysed":
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE")
        yield made
        transaction.set_rollback(True)


def _make(waiting: int) -> Backlog:
    large, small = FlowFactory.create(lane="promo"), FlowFactory.create()
    host = HostFactory.create()
    ServerFactory.create_batch(2 * BATCH, host=host)
    pattern = MessageFactory.create(flow=large, first_attempt_by=None, expires_at=NOON + dt.timedelta(days=1))
    late = "%(now)s + (nth - 100) * interval '1 second'"  # a hundred are due
    copies(pattern, waiting, expires_at="%(now)s + nth * interval '1 second'")
    copies(pattern, BATCH, flow_id=f"{small.pk}", lane="'otp'")
    copies(pattern, BESIDE, status="'waiting'", run_after=late)
    copies(pattern, 100, event_at="%(now)s - interval '2 day'", expires_at="%(now)s - nth * interval '1 second'")
    copies(
        pattern,
        BESIDE,
        status="'delivered'",
        finished_at="%(now)s",
        expires_at="%(now)s - interval '1 hour'",
        event_at="%(now)s - interval '2 day'",
        attempts_made="1",
    )
    attempt = AttemptFactory.create(message__flow=large, server=ServerFactory.create(host=host), check_at=NOON)
    ended = Message.objects.filter(status="delivered").order_by("id").values_list("id", flat=True)[0]
    each = {"message_id": f"{ended} + nth - 1", "provider_message_id": "'guid-' || nth"}
    copies(attempt, BESIDE // 2, **each, state="'delivered'", finished_at="%(now)s", check_at="NULL")
    each = {"message_id": f"{ended} + {BESIDE // 2} + nth - 1", "provider_message_id": "'sent-' || nth"}
    copies(attempt, BESIDE // 4, **each, check_at=late)
    each = {"message_id": f"{ended} + {3 * BESIDE // 4} + nth - 1", "provider_message_id": "'sms-' || nth"}
    copies(attempt, BESIDE // 4, **each, server_id="NULL", route="'sms:one'", check_at="NULL")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO otp_messages_ready (message_id, flow_id, due_at) "
            "SELECT id, flow_id, expires_at FROM otp_messages_message WHERE status = 'queued' AND expires_at > %s",
            [NOON],
        )
    OrphanReceipt.objects.bulk_create(
        OrphanReceipt(scope=f"host:{host.pk}", provider_message_id=f"guid-{n}", receipt={}, at=NOON)
        for n in range(-1_000, 0)
    )
    with override_settings(LEASE=dt.timedelta(days=1)):
        in_flight = claim([(large.pk, BATCH)], now=NOON, rng=Lowest())
    return Backlog(large, small, in_flight)


def copies(pattern: models.Model, count: int, **each: str) -> None:
    """Rows like the pattern, but for the columns given as SQL (`nth` counts them)."""
    each = {"uuid": "gen_random_uuid()"} | each
    table = pattern._meta.db_table
    same = [f'"{field.column}"' for field in pattern._meta.concrete_fields if field.column not in {*each, "id"}]
    statement = (
        f"INSERT INTO {table} ({', '.join([*each, *same])}) SELECT {', '.join([*each.values(), *same])} "
        f"FROM generate_series(1, %(count)s) AS nth, (SELECT * FROM {table} WHERE id = %(id)s) AS pattern"
    )
    parameters: dict[str, Any] = {"count": count, "id": pattern.pk, "now": NOON}
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def statements_of(work: Callable[[], object]) -> list[str]:
    """What a service sends to the tables of messages; what it did is undone."""
    with CaptureQueriesContext(connection) as context, transaction.atomic():
        work()
        transaction.set_rollback(True)
    sent = [query["sql"] for query in context.captured_queries]
    return [sql for sql in sent if any(model._meta.db_table in sql for model in OURS)]


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]


def explain(sql: str) -> list[dict[str, Any]]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + sql.replace("%", "%%"), {})
        (document,) = cursor.fetchone()
        transaction.set_rollback(True)
    return nodes(document[0]["Plan"])


def assert_reads_little(work: Callable[[], object], *, most: int = FEW, small: Collection[str] = ()) -> None:
    """By index, and few rows; tables that are `small` may be read whole."""
    statements = statements_of(work)
    assert statements
    for sql in statements:
        for node in explain(sql):
            shown = f"{node['Node Type']} {node.get('Index Name', '')} in {sql[:400]}"
            assert node["Node Type"] != "Seq Scan" or node["Relation Name"] in small, shown
            touched = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            assert touched <= most, f"{touched} rows: {shown}"


def test_the_claim_of_a_batch(backlog: Backlog) -> None:
    plan = [(backlog.small.pk, BATCH // 2), (backlog.large.pk, BATCH // 2)]
    ways = ways_of(plan)
    assert_reads_little(lambda: claiming.claim(plan, ways, now=NOON, rng=Lowest()))


def test_the_list_of_flows(backlog: Backlog) -> None:
    assert_reads_little(lambda: flows.present(list(Lane)))
    assert_reads_little(lambda: flows.present([Lane.OTP]))


def test_how_much_waits(backlog: Backlog) -> None:
    assert_reads_little(flows.waiting, most=2 * flows.COUNTED)


def test_the_staging_of_a_batch(backlog: Backlog) -> None:
    assert_reads_little(lambda: stage_due(now=NOON, batch=BATCH))


def test_the_staging_of_nothing(backlog: Backlog) -> None:
    assert_reads_little(lambda: stage_due(now=NOON - dt.timedelta(hours=1), batch=BATCH), most=1)


def test_the_end_of_a_batch(backlog: Backlog) -> None:
    assert_reads_little(lambda: expire_due(now=NOON, batch=BATCH))


def test_the_end_of_nothing(backlog: Backlog) -> None:
    assert_reads_little(lambda: expire_due(now=NOON - dt.timedelta(hours=1), batch=BATCH), most=1)


def test_the_end_of_a_batch_of_a_cancelled_flow(backlog: Backlog) -> None:
    Flow.objects.filter(pk=backlog.large.pk).update(state=Flow.State.CANCELLED)
    assert_reads_little(lambda: cancel_due(now=NOON, batch=BATCH))


def test_a_look_for_cancelled_flows(backlog: Backlog) -> None:
    assert_reads_little(lambda: cancel_due(now=NOON, batch=BATCH), most=5)


def test_the_rescue_of_a_batch(backlog: Backlog) -> None:
    Attempt.objects.filter(settled_at=None).update(lease_until=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    assert_reads_little(lambda: rescue(now=NOON, batch=BATCH))


def test_the_rescue_reads_no_lease_that_is_not_over(backlog: Backlog) -> None:
    (sql,) = statements_of(lambda: rescue(now=NOON, batch=BATCH))
    assert any("lease_until" in node.get("Index Cond", "") for node in explain(sql))


def test_the_questions_about_a_batch(backlog: Backlog) -> None:
    assert_reads_little(lambda: resolve.claim_checks(now=NOON, routes={}, batch=BATCH))


def test_the_questions_about_a_batch_while_a_host_is_busy(backlog: Backlog) -> None:
    busy = HostFactory.create().pk
    assert_reads_little(lambda: resolve.claim_checks(now=NOON, routes={}, batch=BATCH, without=[busy]))


def test_the_questions_about_nothing(backlog: Backlog) -> None:
    assert_reads_little(lambda: resolve.claim_checks(now=NOON - dt.timedelta(hours=1), routes={}, batch=BATCH), most=1)


@pytest.mark.parametrize("submission", [Submission.ACCEPTED, Submission.REFUSED, Submission.UNKNOWN])
def test_the_settling_of_a_batch(backlog: Backlog, submission: Submission) -> None:
    result = SubmitResult(submission, "guid-0" if submission is Submission.ACCEPTED else "", raw="202")
    batch = [Submitted(one, result, dt.timedelta()) for one in backlog.in_flight]
    assert_reads_little(lambda: settle(batch, now=NOON, rng=Lowest()))


@contextmanager
def planner_of_the_web() -> Iterator[None]:
    """Web and worker have no options: their statements have to read by index by themselves."""
    names = [option.partition("=")[0] for option in dispatcher._PLANNER_OPTIONS.replace("-c ", "").split()]
    with connection.cursor() as cursor:
        cursor.execute("".join(f"SET LOCAL {name} TO DEFAULT;" for name in names))
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            for option in dispatcher._PLANNER_OPTIONS.replace("-c ", "").split():
                cursor.execute(f"SET LOCAL {option}")


@pytest.mark.parametrize("by_guid", [False, True], ids=["by our ids", "by its own ids"])
def test_the_receipts_of_a_list(backlog: Backlog, by_guid: bool) -> None:
    host_id = host_of(backlog.in_flight[0]).host_id
    if by_guid:
        receipts = [Receipt(ReportedState.SENT, None, f"guid-{n}") for n in range(1, 2 * BATCH)]
    else:
        receipts = [Receipt(ReportedState.SENT, one.send.attempt_uuid, "guid-0") for one in backlog.in_flight]
    with planner_of_the_web():
        few = [OrphanReceipt._meta.db_table]  # a thousand rows
        assert_reads_little(lambda: apply_host_receipts(host_id, receipts, now=NOON), small=few)


def test_the_sweep_of_receipts_without_an_attempt(backlog: Backlog) -> None:
    assert_reads_little(lambda: match_all_orphans(now=NOON), most=1_000)
