"""What the drill expects of every failure, and of single ones, at the exact edge."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from otp_service.messages.rules import MessageStatus, OnUnknown
from scheduler.drill import verdicts
from scheduler.drill.journal import BOUND_IN_CALM, BOUND_IN_FAULT, BreakerChange, Seen, journal
from scheduler.drill.report import Page, as_json, text
from scheduler.drill.verdicts import Check
from tests.scheduler.test_drill_journal import accepted, at, copy, seen, stored, tried


def holding(found: Seen, *own: Check) -> dict[str, bool]:
    return {verdict.condition: verdict.holds for verdict in verdicts.verdicts(found, own)}


def test_a_run_in_which_nothing_went_wrong_keeps_all() -> None:
    assert holding(seen(messages=[stored("a")], copies=[copy("a")])) == {
        "ends": True,
        "copies": True,
        "otp": True,
        "in time": True,
        "fresh": True,
    }


def test_a_run_without_messages_shows_nothing() -> None:
    assert not holding(seen())["ends"]


@pytest.mark.parametrize(
    ("broken", "condition"),
    [
        ({"messages": [stored("a", status=MessageStatus.SUBMITTED)], "copies": [copy("a")]}, "ends"),
        ({"messages": [stored("a", on_unknown=OnUnknown.HOLD)], "copies": [copy("a"), copy("a")]}, "copies"),
        ({"messages": [stored("a")], "copies": [copy("a", 30)]}, "otp"),
        ({"messages": [stored("a", status=MessageStatus.EXPIRED, reason="expired_unsent")]}, "in time"),
        ({"messages": [stored("a", expires_at=at(1.2))], "copies": [copy("a")]}, "fresh"),
    ],
    ids=["an end is missing", "a copy too many", "a long wait", "an otp that was never sent", "a stale copy"],
)
def test_each_condition_alone_can_fail(broken: dict[str, Any], condition: str) -> None:
    assert [name for name, holds in holding(seen(**broken)).items() if not holds] == [condition]


@pytest.mark.parametrize(
    ("created", "bound"),
    [(-6.0, BOUND_IN_CALM), (1.0, BOUND_IN_FAULT), (5.0, BOUND_IN_CALM)],
    ids=["before", "during", "after"],
)
@pytest.mark.parametrize(("more", "holds"), [(0.0, True), (0.001, False)], ids=["at the bound", "over it"])
def test_otp_may_wait_as_long_as_the_bound_of_their_phase(
    created: float, bound: dt.timedelta, more: float, holds: bool
) -> None:
    taken = created + bound.total_seconds() + more
    assert holding(seen(messages=[stored("a", created)], copies=[copy("a", taken)]))["otp"] is holds


OPENED = BreakerChange("sms:one", "breaker_opened", at(1))
CLOSED = BreakerChange("sms:one", "breaker_closed", at(31))
UNSENT = stored("a", status=MessageStatus.EXPIRED, reason="expired_unsent")
NAMED = {"accepted": [accepted("a", sender_name="Bravo")], "stored": {"a": stored("a")}}


@pytest.mark.parametrize(
    ("check", "given", "holds"),
    [
        pytest.param(verdicts.switched, {"copies": [copy("a", 0, "sms:two")]}, True, id="switched"),
        pytest.param(verdicts.switched, {"copies": [copy("a", 0, "sms:one")]}, False, id="not switched"),
        pytest.param(verdicts.switched, {"copies": [copy("a", -1, "sms:two")]}, False, id="switched too early"),
        pytest.param(verdicts.was_unclear, {"attempts": [tried("a", was_unknown=True)]}, True, id="unclear"),
        pytest.param(verdicts.was_unclear, {"attempts": [tried("a")]}, False, id="all clear"),
        pytest.param(verdicts.none_was_sent_twice, {"copies": [copy("a")]}, True, id="once"),
        pytest.param(verdicts.none_was_sent_twice, {"copies": [copy("a"), copy("a")]}, False, id="twice"),
        pytest.param(
            verdicts.none_was_sent_twice,
            {"copies": [copy("a"), copy("a")], "attempts": [tried("a", was_unknown=True)]},
            True,
            id="twice, as nobody knew",
        ),
        pytest.param(verdicts.all_were_delivered, {}, True, id="delivered"),
        pytest.param(verdicts.all_were_delivered, {"messages": [UNSENT]}, False, id="not delivered"),
        pytest.param(
            verdicts.carried_again, {"breakers": [OPENED, CLOSED], "copies": [copy("a", 31.1)]}, True, id="recovered"
        ),
        pytest.param(
            verdicts.carried_again,
            {"breakers": [OPENED, CLOSED], "copies": [copy("a", 30.9)]},
            False,
            id="nothing since it closed",
        ),
        pytest.param(
            verdicts.carried_again,
            {"breakers": [OPENED, CLOSED], "copies": [copy("a", 31.1, "sms:two")]},
            False,
            id="another route",
        ),
        pytest.param(
            verdicts.carried_again, {"breakers": [OPENED], "copies": [copy("a", 31.1)]}, False, id="did not close"
        ),
        pytest.param(
            verdicts.carried_again, {"breakers": [CLOSED], "copies": [copy("a", 31.1)]}, False, id="did not open"
        ),
        pytest.param(verdicts.ran_out, {"messages": [UNSENT]}, True, id="unsent"),
        pytest.param(verdicts.ran_out, {"messages": [UNSENT], "copies": [copy("a")]}, False, id="unsent and sent"),
        pytest.param(verdicts.ran_out, {}, False, id="none ran out"),
        pytest.param(verdicts.kept_names, NAMED | {"copies": [copy("a", sender="Bravo")]}, True, id="its name"),
        pytest.param(verdicts.kept_names, NAMED | {"copies": [copy("a")]}, False, id="another name"),
        pytest.param(verdicts.kept_names, {"copies": [copy("a")]}, False, id="nobody asked"),
    ],
)
def test_conditions_of_single_failures(check: Check, given: dict[str, Any], holds: bool) -> None:
    found = seen(**{"messages": [stored("a")], **given})
    assert check(found).holds is holds


def page(found: Seen) -> Page:
    return Page("rain", "it rains", journal(found), verdicts.verdicts(found))


def test_the_text_has_a_line_in_the_table_and_a_page_for_each() -> None:
    found = seen(messages=[stored("a")], copies=[copy("a", 2.5, "sms:two")], breakers=[OPENED])
    lines = text([page(found)]).splitlines()
    assert lines[2].split() == ["rain", "2.50", "0", "0", "0", "100.0%", "1", "1.50", "1.50", "1.50"]
    assert "rain: it rains" in lines
    assert "  yes  accepted messages without an end: 0 of 1" in lines


def test_a_condition_that_does_not_hold_is_written_large() -> None:
    found = seen(messages=[stored("a", status=MessageStatus.QUEUED)])
    assert "  NO   accepted messages without an end: 1 of 1" in text([page(found)]).splitlines()


def test_the_json_says_what_the_text_shows() -> None:
    whole = seen(messages=[stored("a")], copies=[copy("a")])
    broken = seen(messages=[stored("a", status=MessageStatus.QUEUED)])
    first, second = as_json([page(whole), page(broken)])["failures"]
    assert (first["name"], first["holds"], second["holds"]) == ("rain", True, False)
    assert first["waits"]["during"] == {"count": 1, "p50": 0.5, "p99": 0.5, "max": 0.5}
    assert second["verdicts"][0] == {
        "condition": "ends",
        "holds": False,
        "words": "accepted messages without an end: 1 of 1",
    }
