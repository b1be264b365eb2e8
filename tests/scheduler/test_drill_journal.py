"""What a run of the drill came to, computed from what clients, database and providers know."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from otp_service.messages.rules import AttemptState, Lane, MessageStatus, OnUnknown
from scheduler.drill.journal import (
    Accepted,
    BreakerChange,
    Copy,
    Fault,
    Seen,
    Stored,
    Tried,
    Waits,
    journal,
)
from tests.conftest import NOON


def at(seconds: float) -> dt.datetime:
    """So long after the fault began."""
    return NOON + dt.timedelta(seconds=seconds)


def accepted(name: str, lane: Lane = Lane.OTP, sender_name: str = "") -> Accepted:
    return Accepted(name, lane, f"text of {name}", sender_name)


def stored(name: str, created: float = 1, **values: Any) -> Stored:
    return Stored(
        **{
            "id": name,
            "status": MessageStatus.DELIVERED,
            "on_unknown": OnUnknown.RACE,
            "created_at": at(created),
            "expires_at": at(created + 300),
            "finished_at": at(created + 1),
            **values,
        }
    )


def tried(name: str, claimed: float = 1, **values: Any) -> Tried:
    return Tried(
        **{
            "message_id": name,
            "number": 1,
            "route": "sms:one",
            "state": AttemptState.DELIVERED,
            "claimed_at": at(claimed),
            **values,
        }
    )


def copy(name: str, taken: float = 1.5, route: str = "sms:one", **values: Any) -> Copy:
    return Copy(**{"route": route, "text_sha256": f"text of {name}", "sender": "Acme", "at": at(taken), **values})


FAULT = Fault(at(0), at(4), backup="sms:two")


def seen(**values: Any) -> Seen:
    """A run of which nothing is known but what is given; messages are stored as delivered ones."""
    messages = values.pop("messages", [])
    given = {
        "accepted": [accepted(message.id) for message in messages],
        "stored": {message.id: message for message in messages},
        "attempts": [],
        "copies": [],
        "breakers": [],
        "fault": FAULT,
        "read_at": at(60),
        "budget": 1,
    }
    return Seen(**{**given, **values})


@pytest.mark.parametrize(
    ("message", "attempts", "missing", "held"),
    [
        pytest.param(stored("a"), [], 0, 0, id="delivered"),
        pytest.param(stored("a", status=MessageStatus.EXPIRED), [], 0, 0, id="expired"),
        pytest.param(stored("a", status=MessageStatus.QUEUED), [], 1, 0, id="queued"),
        pytest.param(stored("a", status=MessageStatus.SUBMITTED), [], 1, 0, id="submitted"),
        pytest.param(
            stored("a", status=MessageStatus.SUBMITTED, on_unknown=OnUnknown.HOLD),
            [tried("a", state=AttemptState.UNKNOWN)],
            0,
            1,
            id="holds an unknown one, as it asked",
        ),
        pytest.param(
            stored("a", status=MessageStatus.SUBMITTED, on_unknown=OnUnknown.HOLD),
            [tried("a", state=AttemptState.ACCEPTED)],
            1,
            0,
            id="holds nothing unknown",
        ),
        pytest.param(
            stored("a", status=MessageStatus.SUBMITTED),
            [tried("a", state=AttemptState.UNKNOWN)],
            1,
            0,
            id="was to race",
        ),
    ],
)
def test_what_has_no_end(message: Stored, attempts: list[Tried], missing: int, held: int) -> None:
    found = journal(seen(messages=[message], attempts=attempts))
    assert (found.without_end, found.held) == (missing, held)


def test_what_was_accepted_and_is_not_there_has_no_end() -> None:
    found = journal(seen(accepted=[accepted("lost")]))
    assert (found.without_end, found.still_open) == (1, ["otp lost: not stored"])


def test_what_has_no_end_is_told_with_its_attempts() -> None:
    waiting = stored("a", status=MessageStatus.SUBMITTED)
    queued = stored("b", status=MessageStatus.QUEUED)
    attempts = [
        tried("a", 1.1, state=AttemptState.NOT_SUBMITTED, error_class="throttled"),
        tried("a", 3, state=AttemptState.SENT, check_at=at(147)),
    ]
    assert journal(seen(messages=[waiting, queued], attempts=attempts)).still_open == [
        "otp a: submitted; sms:one +0.1 s not_submitted throttled, sms:one +2.0 s sent asked about in 87 s",
        "otp b: queued; no attempt",
    ]


def test_the_slowest_otp_is_told_with_its_attempts() -> None:
    copies = [copy("a", 1.5), copy("b", 4.5)]
    found = journal(seen(messages=[stored("a"), stored("b")], attempts=[tried("b", 4)], copies=copies))
    assert found.slowest == "3.50 s, otp b: delivered; sms:one +3.0 s delivered"
    assert journal(seen()).slowest == ""


@pytest.mark.parametrize(
    ("on_unknown", "budget", "copies", "over"),
    [
        (OnUnknown.RACE, 1, 1, 0),
        (OnUnknown.RACE, 1, 2, 0),
        (OnUnknown.RACE, 1, 3, 1),
        (OnUnknown.RACE, 0, 2, 1),
        (OnUnknown.HOLD, 1, 1, 0),
        (OnUnknown.HOLD, 1, 2, 1),
    ],
    ids=["one", "the budget", "one too many", "no budget", "held", "held and copied"],
)
def test_copies_are_counted_against_the_budget(on_unknown: OnUnknown, budget: int, copies: int, over: int) -> None:
    message = stored("a", on_unknown=on_unknown)
    found = journal(seen(messages=[message], copies=[copy("a")] * copies, budget=budget))
    assert (found.over_budget, found.most_copies, found.confirmed_duplicates) == (over, copies, int(copies > 1))


def test_what_a_provider_took_and_never_sent_is_no_copy() -> None:
    found = journal(seen(messages=[stored("a")], copies=[copy("a"), copy("a", left=False)]))
    assert (found.most_copies, found.confirmed_duplicates) == (1, 0)


def test_copies_of_two_messages_are_no_duplicates() -> None:
    found = journal(seen(messages=[stored("a"), stored("b")], copies=[copy("a"), copy("b", route="sms:two")]))
    assert (found.most_copies, found.confirmed_duplicates) == (1, 0)


@pytest.mark.parametrize(
    ("copies", "switch"),
    [
        pytest.param([], None, id="nothing left"),
        pytest.param([copy("a", 2.0)], None, id="over the route itself"),
        pytest.param([copy("a", -0.1, "sms:two")], None, id="before the fault"),
        pytest.param([copy("a", 0.0, "sms:two")], 0.0, id="at once"),
        pytest.param([copy("a", 3.25, "sms:two"), copy("b", 2.5, "sms:two")], 2.5, id="the first one"),
    ],
)
def test_time_to_switch(copies: list[Copy], switch: float | None) -> None:
    assert journal(seen(messages=[stored("a"), stored("b")], copies=copies)).time_to_switch == switch


@pytest.mark.parametrize(
    ("moment", "phase"),
    [(-0.001, "before"), (0.0, "during"), (3.999, "during"), (4.0, "after")],
    ids=["before", "as it begins", "before it ends", "as it ends"],
)
def test_phases(moment: float, phase: str) -> None:
    assert FAULT.phase(at(moment)) == phase


@pytest.mark.parametrize(
    ("taken", "phase"),
    [(-0.001, "before"), (0.0, "during"), (5.0, "during")],
    ids=["taken before it", "taken as it begins", "it had to wait for the end of the fault"],
)
def test_an_otp_that_waits_for_its_provider_when_the_fault_begins_meets_it(taken: float, phase: str) -> None:
    found = journal(seen(messages=[stored("a", -1)], copies=[copy("a", taken)]))
    assert [name for name, waits in found.waits.items() if waits.count] == [phase]


def test_an_otp_waits_until_the_first_provider_had_it() -> None:
    copies = [copy("a", 3.0, "sms:two"), copy("a", 1.25)]
    found = journal(seen(messages=[stored("a", 1)], copies=copies))
    assert found.waits == {
        "before": Waits(0, 0.0, 0.0, 0.0),
        "during": Waits(1, 0.25, 0.25, 0.25),
        "after": Waits(0, 0.0, 0.0, 0.0),
    }


@pytest.mark.parametrize(
    ("finished", "waited"), [(at(31), 30.0), (None, 59.0)], ids=["until it ended", "until it was looked"]
)
def test_an_otp_that_no_provider_had_waits_to_its_end(finished: dt.datetime | None, waited: float) -> None:
    status = MessageStatus.EXPIRED if finished else MessageStatus.QUEUED
    message = stored("a", 1, status=status, finished_at=finished)
    assert journal(seen(messages=[message])).waits["during"].max == waited


def test_an_otp_of_which_nobody_knows_whether_a_provider_has_it_waits_until_it_was_handed_over() -> None:
    message = stored("a", 1, status=MessageStatus.EXPIRED, finished_at=at(31))
    found = journal(seen(messages=[message], attempts=[tried("a", 1.5, was_unknown=True)]))
    assert found.waits["during"].max == 0.5


def test_promo_is_no_part_of_the_waits() -> None:
    message = stored("a")
    found = journal(seen(messages=[message], accepted=[accepted("a", Lane.PROMO)]))
    assert {waits.count for waits in found.waits.values()} == {0}


def test_the_wait_for_a_first_attempt_does_not_look_at_later_ones() -> None:
    attempts = [tried("a", 1.5), tried("a", 9.0, number=2)]
    found = journal(seen(messages=[stored("a", 1)], attempts=attempts))
    assert found.first_claims["during"].max == 0.5


def test_waits_are_figures_of_all() -> None:
    assert Waits.of(number / 10 for number in range(1, 101)) == Waits(100, 5.0, 9.9, 10.0)


@pytest.mark.parametrize(("taken", "stale"), [(300.9, 0), (301.0, 0), (301.001, 1)], ids=["in time", "last", "late"])
def test_copies_after_their_messages_end(taken: float, stale: int) -> None:
    assert journal(seen(messages=[stored("a", 1)], copies=[copy("a", taken)])).stale_copies == stale


def test_attempts_and_ends_are_counted() -> None:
    attempts = [
        tried("a", state=AttemptState.UNKNOWN, was_unknown=True),
        tried("a", was_unknown=True, number=2, possible_duplicate=True),
        tried("b"),
    ]
    unsent = stored("b", status=MessageStatus.EXPIRED, reason="expired_unsent")
    found = journal(seen(messages=[stored("a"), unsent], attempts=attempts, turned_away=3))
    assert (found.unknown_now, found.unknown_ever, found.possible_duplicates) == (1, 2, 1)
    assert found.ends == {"delivered": 1, "expired expired_unsent": 1}
    assert (found.accepted, found.share_delivered, found.turned_away) == ({"otp": 2}, 0.5, 3)


def test_breakers_are_told_by_when_they_changed() -> None:
    changes = [BreakerChange("sms:one", "breaker_opened", at(2.5)), BreakerChange("sms:one", "breaker_closed", at(34))]
    assert journal(seen(breakers=changes)).breakers == ["sms:one opened at +2.5 s", "sms:one closed at +34.0 s"]


def test_nothing_at_all_is_a_journal_too() -> None:
    found = journal(seen())
    assert (found.share_delivered, found.most_copies, found.ends) == (0.0, 0, {})
