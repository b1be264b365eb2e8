"""What a claim is told of its recipients: few statements, by index, and only those of whom anything is known."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from otp_service.messages.recipient_models import InvalidReport, Recipient
from otp_service.messages.recipient_rules import RecipientView
from otp_service.messages.recipients import (
    Preferences,
    note_delivered,
    note_invalid,
    note_stop,
    put_preferences,
    standing,
    standing_of,
)
from otp_service.messages.rules import Channel
from otp_service.web.fields import recipient_hash
from scheduler.dispatcher import _PLANNER_OPTIONS
from tests.factories import NOON
from tests.messages.recipient_keys import hash_keys

pytestmark = pytest.mark.django_db

NUMBER = "+34600000000"
HASH = recipient_hash
NIGHT = (dt.time(22), dt.time(8))
EVENING = NOON + dt.timedelta(hours=8, minutes=1)  # 22:01 in Madrid
ROUTES = ("sms:a", "sms:b", "sms:c")


def put(number: str, *refused: str, quiet: tuple[dt.time, dt.time] | None = None) -> None:
    put_preferences(number, Preferences(refused, quiet), now=NOON, by="a test")


def invalid(number: str, routes: tuple[str, ...] = ROUTES, *, at: dt.datetime = NOON) -> None:
    note_invalid([(HASH(number), route) for route in routes], now=at)


def view_of(number: str, now: dt.datetime = NOON) -> RecipientView | None:
    return standing([HASH(number), HASH("+34600000001")], now=now).get(HASH(number))


def test_of_most_nothing_is_known() -> None:
    put("+34600000002", "sms")
    assert standing([HASH(NUMBER)], now=NOON) == {}


def test_no_recipients_are_no_statement() -> None:
    with CaptureQueriesContext(connection) as sent:
        assert standing([], now=NOON) == {}
    assert not sent.captured_queries


def test_empty_tables_cost_one_statement() -> None:
    with CaptureQueriesContext(connection) as sent:
        standing([HASH(NUMBER)], now=NOON)
        note_delivered([HASH(NUMBER)])
    assert len(sent.captured_queries) == 2


def test_refused_channels() -> None:
    put(NUMBER, "sms", "voice")
    assert view_of(NUMBER) == RecipientView(refused_channels=frozenset({Channel.SMS, Channel.VOICE}))


def test_stop() -> None:
    note_stop(NUMBER, now=NOON)
    assert view_of(NUMBER) == RecipientView(stopped=True)


@pytest.mark.parametrize(("now", "hours"), [(EVENING, 10), (EVENING + dt.timedelta(hours=9, minutes=58), 10)])
def test_quiet_hours_until_their_end(now: dt.datetime, hours: int) -> None:
    put(NUMBER, quiet=NIGHT)
    end = EVENING + dt.timedelta(hours=hours, minutes=-1)
    assert view_of(NUMBER, now) == RecipientView(quiet_until=end)


@pytest.mark.parametrize("now", [NOON, EVENING + dt.timedelta(hours=9, minutes=59)])
def test_nothing_by_day(now: dt.datetime) -> None:
    put(NUMBER, quiet=NIGHT)
    assert view_of(NUMBER, now) is None


def test_quiet_hours_of_a_zone_that_is_not_known_here_are_taken_as_utc() -> None:
    put(NUMBER, quiet=NIGHT)
    Recipient.objects.update(time_zone="Europe/Atlantis")
    assert view_of(NUMBER, NOON + dt.timedelta(hours=11)) == RecipientView(quiet_until=NOON + dt.timedelta(hours=20))


def test_what_was_taken_back_is_not_told() -> None:
    put(NUMBER, "sms")
    put(NUMBER)
    assert view_of(NUMBER) is None


@pytest.mark.parametrize(("routes", "expected"), [(ROUTES[:2], None), (ROUTES, RecipientView(invalid=True))])
def test_invalid_by_three_routes(routes: tuple[str, ...], expected: RecipientView | None) -> None:
    invalid(NUMBER, routes)
    assert view_of(NUMBER) == expected


def test_one_route_that_says_so_three_times_is_one() -> None:
    for minute in range(3):
        invalid(NUMBER, ROUTES[:1], at=NOON + dt.timedelta(minutes=minute))
    assert view_of(NUMBER) is None


def test_invalid_until_the_newest_report_is_old(settings: Any) -> None:
    settings.INVALID_FOR = dt.timedelta(hours=24)
    invalid(NUMBER, ROUTES[:2], at=NOON - dt.timedelta(hours=24))
    invalid(NUMBER, ROUTES[2:])
    assert view_of(NUMBER, NOON + dt.timedelta(hours=23, minutes=59)) == RecipientView(invalid=True)
    assert view_of(NUMBER, NOON + dt.timedelta(hours=24)) is None


def test_both_kinds_of_knowledge_are_one_view() -> None:
    put(NUMBER, "sms")
    invalid(NUMBER)
    assert view_of(NUMBER) == RecipientView(refused_channels=frozenset({Channel.SMS}), invalid=True)


def test_what_is_known_under_an_earlier_key_is_told_by_the_hash_of_the_message(settings: Any) -> None:
    note_stop(NUMBER, now=NOON)
    with hash_keys({"newer": b"n" * 32, **settings.HASH_KEYS}):
        known = HASH(NUMBER)
        assert standing([known], now=NOON) == {}
        assert standing_of({known: NUMBER}, now=NOON) == {known: RecipientView(stopped=True)}


def test_with_one_key_a_number_is_looked_up_once() -> None:
    note_stop(NUMBER, now=NOON)
    assert standing_of({HASH(NUMBER): NUMBER}, now=NOON) == {HASH(NUMBER): RecipientView(stopped=True)}


# --- how it is read ----------------------------------------------------------------------------------------

MANY, BATCH = 3_000, 100


def numbered(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


@pytest.fixture(params=["dispatcher", "web"])
def planner(request: pytest.FixtureRequest) -> None:
    """The planner's options of the process; the web has none."""
    with connection.cursor() as cursor:
        for option in _PLANNER_OPTIONS.replace("-c ", "").split() if request.param == "dispatcher" else ():
            cursor.execute(f"SET LOCAL {option}")


@pytest.fixture(params=["analysed", "never analysed"])
def many(request: pytest.FixtureRequest) -> None:
    """Rows of many recipients, and reports of three routes about each."""
    with connection.cursor() as cursor:
        rows = "FROM generate_series(1, %s) AS nth"
        cursor.execute(
            "INSERT INTO otp_messages_recipient (recipient_hash, refused_channels, time_zone, changed_at) "
            f"SELECT sha256(nth::text::bytea), '{{sms}}', '', now() {rows}",
            [MANY],
        )
        cursor.execute(
            "INSERT INTO otp_messages_invalidreport (recipient_hash, route, at) "
            f"SELECT sha256(nth::text::bytea), route, %s {rows}, unnest(%s::varchar[]) AS route",
            [NOON, MANY, list(ROUTES)],
        )
        if request.param == "analysed":
            cursor.execute("ANALYZE otp_messages_recipient, otp_messages_invalidreport")


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda hashes: standing(hashes, now=NOON), id="standing"),
        pytest.param(lambda hashes: note_invalid([(each, "sms:z") for each in hashes], now=NOON), id="note_invalid"),
        pytest.param(note_delivered, id="note_delivered"),
    ],
)
@pytest.mark.usefixtures("many", "planner")
def test_a_batch_reads_its_own_rows_by_index(work: Callable[[list[bytes]], object]) -> None:
    statements = statements_of(lambda: work([numbered(number) for number in range(1, BATCH + 1)]))
    assert 1 <= len(statements) <= 3
    for sql in statements:
        for node in explained(sql):
            assert node["Node Type"] != "Seq Scan", sql[:200]
            touched = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            assert touched <= 5 * BATCH, (node["Node Type"], touched, sql[:200])


@pytest.mark.usefixtures("many")
def test_a_batch_is_answered_whole() -> None:
    asked = [numbered(number) for number in range(MANY - BATCH + 1, MANY + 10)]
    found = standing(asked, now=NOON)
    assert found == dict.fromkeys(asked[:BATCH], RecipientView(frozenset({Channel.SMS}), invalid=True))
    note_delivered(asked)
    assert InvalidReport.objects.count() == len(ROUTES) * (MANY - BATCH)


def statements_of(work: Callable[[], object]) -> list[str]:
    """What it sends to our tables; what it did is undone."""
    with CaptureQueriesContext(connection) as sent, transaction.atomic():
        work()
        transaction.set_rollback(True)
    return [query["sql"] for query in sent.captured_queries if "otp_messages" in query["sql"]]


def explained(sql: str) -> list[dict[str, Any]]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + sql.replace("%", "%%"), {})
        (document,) = cursor.fetchone()
        transaction.set_rollback(True)
    return nodes(document[0]["Plan"])


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]
