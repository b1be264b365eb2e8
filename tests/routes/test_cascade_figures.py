"""The cascade's figures are those of what is in the database, and say how few they are."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from otp_service.core.clock import utc_now
from otp_service.events import log as events
from otp_service.messages.models import Attempt, Message
from otp_service.routes import cascade_figures, id_ranges
from otp_service.routes.breakers import subject_of
from otp_service.routes.cascade_figures import (
    BREAKER_OPENED,
    Figures,
    OfLane,
    Openings,
    PassedOver,
    Place,
    Silent,
    Spent,
    Switch,
    Unclear,
)
from otp_service.routes.cascade_report import duration, report, share
from tests.factories import NOON, AttemptFactory, FlowFactory, MessageFactory, QueuedFactory, RouteFactory

pytestmark = pytest.mark.django_db

HOUR, SECOND = dt.timedelta(hours=1), dt.timedelta(seconds=1)
ONE, TWO = "sms:one", "sms:two"


def figures(*, since: dt.datetime = NOON - HOUR, until: dt.datetime = NOON + HOUR) -> Figures:
    return cascade_figures.read(since, until, now=NOON + HOUR)


def message(**fields: Any) -> Message:
    return MessageFactory.create(**{"status": "submitted", "attempts_made": 3, "attempts_charged": 3, **fields})


def attempt(of: Message, number: int = 1, **fields: Any) -> Attempt:
    """Accepted over sms:one a second after noon. `after`: seconds from the claim to its end."""
    after = fields.pop("after", None)
    values = {"route": ONE, "server": None, "submission": "accepted", "claimed_at": NOON, "settled_at": NOON + SECOND}
    if after is not None:
        values["finished_at"] = NOON + after * SECOND
    return AttemptFactory.create(message=of, number=number, **{**values, **fields})


def refused(of: Message, number: int = 1, error_class: str = "temporary", **fields: Any) -> Attempt:
    given = {"state": "not_submitted", "submission": "refused", "error_class": error_class, "after": 1}
    return attempt(of, number, **{**given, **fields})


def test_messages_are_counted_by_route_and_place_among_their_distinct_routes() -> None:
    first = message()
    refused(first, 1)
    refused(first, 2)
    attempt(first, 3, route=TWO, state="delivered", after=10)
    attempt(message(), 1, route=TWO)

    assert set(figures().places) == {
        Place(ONE, 1, messages=1, attempts=2, handed_over=0, delivered=0, in_time=0),
        Place(TWO, 1, messages=1, attempts=1, handed_over=1, delivered=0, in_time=0),
        Place(TWO, 2, messages=1, attempts=1, handed_over=1, delivered=1, in_time=1),
    }


@pytest.mark.parametrize(("after", "in_time"), [(7, 1), (8, 0)], ids=["at its end", "after it"])
def test_in_time_is_within_what_the_route_promises(after: int, in_time: int) -> None:
    RouteFactory.create(name=ONE, delivery_s=7)
    attempt(message(), state="delivered", after=after)
    assert [(each.delivered, each.in_time) for each in figures().places] == [(1, in_time)]


def test_going_on_has_the_reason_of_the_last_failure_or_of_the_refusal() -> None:
    failed, shut, late = message(), message(), message()
    refused(failed, 1, "temporary")
    refused(failed, 2, "route_rejected")
    attempt(failed, 3, route=TWO, refusals={ONE: "already_tried"})
    refused(shut, 1, "")
    attempt(shut, 2, route=TWO, refusals={ONE: "breaker_open"})
    attempt(late, 1)
    attempt(late, 2, route=TWO)
    attempt(late, 3, route=TWO)

    found = figures()
    reasons = ("route_rejected", "breaker_open", "")
    assert set(found.switches) == {Switch(ONE, reason, 1) for reason in reasons}
    assert found.passed_over == (PassedOver(ONE, "already_tried", 1), PassedOver(ONE, "breaker_open", 1))


def test_a_lane_tells_how_long_its_messages_waited_and_how_many_began_late() -> None:
    flow = FlowFactory.create()
    for wait in range(1, 21):
        of = message(flow=flow, first_attempt_by=NOON + 15 * SECOND)
        claimed = NOON if wait <= 15 else NOON + wait * SECOND
        refused(of, 1, claimed_at=claimed, settled_at=claimed)
        attempt(of, 2, claimed_at=claimed, settled_at=NOON + wait * SECOND)
    message(flow=flow, first_attempt_by=NOON + SECOND)

    (lane,) = figures().lanes
    assert lane == OfLane(
        "otp",
        messages=21,
        attempted=20,
        submitted=20,
        limited=21,
        late=5,
        unstarted=1,
        possible=0,
        confirmed=0,
        p50_s=10.0,
        p95_s=19.0,
        p99_s=20.0,
    )


def test_a_message_that_ended_before_its_first_attempt_was_due_is_not_late() -> None:
    ended = {"status": "cancelled", "final_reason": "cancelled", "finished_at": NOON + SECOND}
    message(first_attempt_by=NOON + 2 * SECOND, **ended)
    (lane,) = figures().lanes
    assert (lane.limited, lane.unstarted) == (0, 0)


def test_duplicates_are_possible_by_attempt_and_confirmed_by_message() -> None:
    twice, once, never = message(), message(), message()
    attempt(twice, 1, state="delivered", after=1)
    attempt(twice, 2, route=TWO, state="delivered", after=1, possible_duplicate=True)
    attempt(once, 1, state="unknown", submission="unknown")
    attempt(once, 2, route=TWO, state="delivered", after=1, possible_duplicate=True)
    attempt(never, 1, state="unknown", submission="unknown")
    refused(never, 2, route=TWO, possible_duplicate=True)

    (lane,) = figures().lanes
    assert (lane.possible, lane.confirmed) == (2, 1)


def test_unclear_calls_are_followed_to_their_ends() -> None:
    for state, after in [("delivered", 1), ("failed", 1), ("not_submitted", 1), ("sent", None), ("unknown", None)]:
        attempt(message(), state=state, submission="unknown", after=after)
    attempt(message(), state="unknown", submission="", settled_at=NOON + 1800 * SECOND)  # rescued
    attempt(message(), state="submitting", submission="", settled_at=None)
    attempt(message(), state="delivered", after=1)

    assert figures().unclear == (
        Unclear(ONE, 2, median_age_s=1800.0, oldest_s=3599.0, delivered=1, failed=1, never=1, still_open=1),
    )


def test_silence_begins_after_the_routes_own_wait_where_receipts_are_expected() -> None:
    RouteFactory.create(name=ONE, receipt_wait_s=600)
    RouteFactory.create(name=TWO, has_receipts=False)
    due, late = NOON + HOUR - dt.timedelta(seconds=600), NOON + HOUR - dt.timedelta(seconds=599)
    for settled_at in (due, late):
        attempt(message(), settled_at=settled_at)
    attempt(message(), state="sent")
    attempt(message(), state="delivered", after=1)
    attempt(message(), route=TWO)

    assert figures().silent == (Silent(ONE, accepted=3, nothing=1, no_end=1),)


def test_cost_is_that_of_what_was_handed_over() -> None:
    price: dict[str, Any] = {"parts": 1, "cost": Decimal("0.05"), "currency": "EUR"}
    attempt(message(), state="delivered", after=1, **price)
    attempt(message(), state="failed", after=1, **price)
    refused(message(), **price)
    attempt(message(), route=TWO)

    assert figures().spent == (Spent(ONE, "EUR", attempts=2, cost=Decimal("0.10"), delivered_messages=1),)


def test_openings_are_those_of_the_window() -> None:
    for at in (NOON, NOON + SECOND, NOON - 2 * HOUR):
        events.record(BREAKER_OPENED, at=at, subject_uuid=subject_of(ONE), data={"route": ONE})
    assert figures().openings == (Openings(ONE, 2),)


def test_the_queue_is_by_lane() -> None:
    QueuedFactory.create(flow=FlowFactory.create(lane="promo"), created_at=NOON)
    assert [(each.lane, each.messages, each.oldest_s) for each in figures().queue] == [
        ("otp", 0, None),
        ("transactional", 0, None),
        ("promo", 1, 3600.0),
    ]


def test_messages_before_and_after_the_window_are_left_out() -> None:
    moments = [NOON - HOUR - SECOND, NOON - HOUR, NOON + HOUR - SECOND, NOON + HOUR]
    for at in moments:
        attempt(message(created_at=at))
    (lane,) = figures().lanes
    assert (lane.messages, lane.attempted) == (2, 2)


@pytest.mark.parametrize("days", [-30, 30], ids=["after it", "before it"])
def test_only_ids_near_the_window_are_read(days: int) -> None:
    for _ in range(5):
        message(created_at=NOON + dt.timedelta(days=days))
    of = message(created_at=NOON) if days < 0 else None
    ids = id_ranges.within(Message, "created_at", NOON - HOUR, NOON + HOUR)
    assert (ids.first, ids.last) == (of.pk, of.pk) if of else ids.last < ids.first


def test_nothing_is_locked_or_written() -> None:
    attempt(message())
    with CaptureQueriesContext(
        connection,
    ) as queries:
        figures()
    statements = [query["sql"].upper() for query in queries]
    words = {word for sql in statements for word in sql.split()}
    assert "SELECT" in words
    assert not words & {"INSERT", "UPDATE", "DELETE", "LOCK", "SHARE"}


def test_an_empty_database_has_none_of_anything() -> None:
    text = report(figures())
    assert "messages accepted from 2026-09-01 11:00:00 to 2026-09-01 13:00:00 UTC: 0" in text
    assert " %" not in text
    assert text.count("\nnone") == 10


@pytest.mark.parametrize(
    ("count", "of", "text"),
    [
        (0, 0, "none"),
        (0, 3, "0 of 3"),
        (3, 19, "3 of 19"),
        (3, 20, "3 of 20 (15.0 %)"),
        (1, 3000, "1 of 3,000 (0.0 %)"),
    ],
)
def test_a_share_stands_beside_its_counts(count: int, of: int, text: str) -> None:
    assert share(count, of) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "none"), (0.04, "0.0 s"), (59.9, "59.9 s"), (60, "1.0 min"), (7199, "120.0 min"), (7200, "2.0 h")],
)
def test_durations_are_for_people(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_the_command_prints_tables_and_writes_the_same_as_json(tmp_path: Path) -> None:
    of = message(created_at=utc_now() - SECOND, event_at=NOON, expires_at=utc_now() + HOUR)
    refused(of, 1, "route_rejected")
    attempt(of, 2, route=TWO, state="delivered", after=1, parts=1, cost=Decimal("0.05"), currency="EUR")
    out, file = io.StringIO(), tmp_path / "figures.json"

    call_command("cascade_figures", "--json", str(file), stdout=out)

    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert "sms:two 2 1 of 1 1 1 1 of 1 1 of 1" in lines
    assert "sms:one route_rejected 1" in lines
    assert "sms:two EUR 1 0.0500 1 0.050000" in lines
    written = json.loads(file.read_text())
    assert written["switches"] == [{"route": ONE, "reason": "route_rejected", "switches": 1}]
    assert written["spent"][0]["cost"] == "0.050000"


def test_no_number_and_no_text_is_printed() -> None:
    attempt(message(created_at=utc_now() - SECOND, number="+34600111222", text="Your code is 987654"))
    out = io.StringIO()
    call_command("cascade_figures", stdout=out)
    assert "600111222" not in out.getvalue()
    assert "987654" not in out.getvalue()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--since", "yesterday"],
        ["--since", "0h"],
        ["--since", "0001-01-01"],
        ["--since", "2026-13-01"],
        ["--since", "1h", "--until", "1h"],
        ["--since", "1h", "--until", "2026-01-01T00:00+05:00"],
        ["--json", "/nowhere/figures.json"],
    ],
    ids=" ".join,
)
def test_bad_options_are_refused_by_name(arguments: list[str]) -> None:
    with pytest.raises(CommandError, match=arguments[0]):
        call_command("cascade_figures", *arguments)
