"""What each verdict of a person does to a server, from every status."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from servers.models import Server
from servers.recovery_rules import (
    FRESH,
    NO_COOLDOWN,
    NO_PREHEAT,
    Change,
    NoChange,
    PersonVerdict,
    Refused,
    Talk,
    decide,
)
from servers.rules import Event, Status
from tests.factories import NOON, HostFactory, ServerFactory

MINUTE = dt.timedelta(minutes=1)

#: In the columns' order.
STATUSES = (Status.NEW, Status.ACTIVE, Status.NEED_CHECK, Status.LOST, Status.DISABLED, Status.DELETED)
SAME = "unchanged"
TABLE: dict[PersonVerdict, tuple[Event | str, ...]] = {
    PersonVerdict.RECOVER: (
        "not_in_need_check",
        SAME,
        Event.RECOVERED,
        "not_in_need_check",
        "not_in_need_check",
        "deleted",
    ),
    PersonVerdict.MARK_ACTIVE: (
        Event.MARKED_ACTIVE,
        SAME,
        Event.MARKED_ACTIVE,
        Event.MARKED_ACTIVE,
        Event.MARKED_ACTIVE,
        Event.MARKED_ACTIVE,
    ),
    PersonVerdict.START_PREHEAT: (
        Event.PREHEAT_STARTED,
        Event.PREHEAT_STARTED,
        Event.PREHEAT_STARTED,
        Event.PREHEAT_STARTED,
        Event.PREHEAT_STARTED,
        "deleted",
    ),
    PersonVerdict.START_CHAT_PREHEAT: (
        Event.CHAT_PREHEAT_STARTED,
        Event.CHAT_PREHEAT_STARTED,
        Event.CHAT_PREHEAT_STARTED,
        Event.CHAT_PREHEAT_STARTED,
        Event.CHAT_PREHEAT_STARTED,
        "deleted",
    ),
    PersonVerdict.NEED_CHECK: (
        Event.NEED_CHECK,
        Event.NEED_CHECK,
        SAME,
        Event.NEED_CHECK,
        Event.NEED_CHECK,
        "deleted",
    ),
    PersonVerdict.LOST: (Event.LOST, Event.LOST, Event.LOST, SAME, Event.LOST, "deleted"),
    PersonVerdict.DISABLE: (Event.DISABLED, Event.DISABLED, Event.DISABLED, Event.DISABLED, SAME, "deleted"),
    PersonVerdict.DELETE: (Event.DELETED, Event.DELETED, Event.DELETED, Event.DELETED, Event.DELETED, SAME),
}


def a_server(**fields: Any) -> Server:
    """One that is in no database."""
    return ServerFactory.build(host=HostFactory.build(number=39), unit=228, **fields)


def told(decision: Change | NoChange | Refused) -> Event | str:
    match decision:
        case Change(event):
            return event
        case NoChange():
            return SAME
        case Refused(code):
            return code


@pytest.mark.parametrize(
    ("verdict", "status", "expected"),
    [
        pytest.param(verdict, status, expected, id=f"{verdict} of {status}")
        for verdict, row in TABLE.items()
        for status, expected in zip(STATUSES, row, strict=True)
    ],
)
def test_every_verdict_on_every_status(verdict: PersonVerdict, status: Status, expected: Event | str) -> None:
    decision = decide(verdict, a_server(status=status), NOON)
    assert told(decision) == expected
    if not isinstance(decision, Change):
        assert "es 228" in decision.detail


def test_the_table_knows_every_verdict_and_every_status() -> None:
    assert TABLE.keys() == set(PersonVerdict)
    assert set(STATUSES) == set(Status)


RELEASED = {"released_at": NOON}


@pytest.mark.parametrize(
    ("verdict", "new", "ends_talks"),
    [
        pytest.param(PersonVerdict.RECOVER, FRESH | NO_PREHEAT | RELEASED, False, id="recover"),
        pytest.param(PersonVerdict.MARK_ACTIVE, FRESH | NO_PREHEAT | RELEASED, False, id="mark active"),
        pytest.param(
            PersonVerdict.START_PREHEAT,
            FRESH | NO_PREHEAT | RELEASED | {"preheating": True, "preheat_started_at": NOON},
            False,
            id="start preheat",
        ),
        pytest.param(
            PersonVerdict.START_CHAT_PREHEAT,
            FRESH | RELEASED | {"next_send_date": NOON - MINUTE},
            False,
            id="start chat-preheat",
        ),
        pytest.param(PersonVerdict.NEED_CHECK, NO_COOLDOWN | {"status": "need_check"}, True, id="need check"),
        pytest.param(PersonVerdict.LOST, NO_COOLDOWN | NO_PREHEAT | {"status": "lost"}, True, id="lost"),
        pytest.param(PersonVerdict.DISABLE, NO_COOLDOWN | NO_PREHEAT | {"status": "disabled"}, True, id="disable"),
        pytest.param(PersonVerdict.DELETE, NO_COOLDOWN | NO_PREHEAT | {"status": "deleted"}, True, id="delete"),
    ],
)
def test_what_each_verdict_writes(verdict: PersonVerdict, new: dict[str, Any], ends_talks: bool) -> None:
    status = Status.NEED_CHECK if verdict is PersonVerdict.RECOVER else Status.NEW
    decision = decide(verdict, a_server(status=status), NOON, Talk(longest=-MINUTE))
    assert isinstance(decision, Change)
    assert (decision.new, decision.ends_talks) == (new, ends_talks)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"in_cooldown": True, "failed_in_row": 0, "cooldown_times": 0}, id="in cooldown"),
        pytest.param({"preheating": True, "preheat_started_at": NOON}, id="in preheat"),
        pytest.param({"failed_in_row": 1}, id="a failure"),
        pytest.param({"cooldown_times": 1}, id="a cooldown before"),
        pytest.param({"fail_open_streak": 1}, id="an exit without proof"),
    ],
)
def test_an_active_server_is_marked_active_when_anything_is_held_against_it(fields: dict[str, Any]) -> None:
    assert told(decide(PersonVerdict.MARK_ACTIVE, a_server(**fields), NOON)) == Event.MARKED_ACTIVE


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, SAME, id="it runs"),
        pytest.param({"failed_in_row": 1, "preheat_repeats": 2}, SAME, id="however far along"),
        pytest.param({"in_cooldown": True}, SAME, id="it goes on after the cooldown"),
        pytest.param({"preheat_asked_at": NOON}, Event.PREHEAT_STARTED, id="a person was asked"),
        pytest.param({"status": Status.NEED_CHECK}, Event.PREHEAT_STARTED, id="out of rotation"),
    ],
)
def test_a_preheat_begins_anew_only_where_the_last_one_does_not_go_on(
    fields: dict[str, Any], expected: Event | str
) -> None:
    server = a_server(preheating=True, preheat_started_at=NOON - MINUTE, **fields)
    assert told(decide(PersonVerdict.START_PREHEAT, server, NOON)) == expected


@pytest.mark.parametrize(
    ("fields", "talk", "expected"),
    [
        pytest.param({}, Talk(), Event.CHAT_PREHEAT_STARTED, id="nothing in its way"),
        pytest.param({"in_cooldown": True}, Talk(), Event.CHAT_PREHEAT_STARTED, id="it ends a cooldown"),
        pytest.param({}, Talk(running=True), SAME, id="it talks"),
        pytest.param({}, Talk(running=True, host_online=False), SAME, id="it talks, and waits for its host"),
        pytest.param({"in_cooldown": True}, Talk(running=True), "talk_ends", id="a cooldown ends its talk"),
        pytest.param({"status": Status.LOST}, Talk(running=True), "talk_ends", id="leaving the rotation ends its talk"),
        pytest.param({"signed_in": False}, Talk(), "signed_out", id="signed out"),
        pytest.param({}, Talk(host_online=False), "host_offline", id="its host is away"),
    ],
)
def test_what_a_talk_depends_on(fields: dict[str, Any], talk: Talk, expected: Event | str) -> None:
    decision = decide(PersonVerdict.START_CHAT_PREHEAT, a_server(**fields), NOON, talk)
    assert told(decision) == expected
    if expected == "host_offline":
        assert isinstance(decision, Refused)
        assert "host 39" in decision.detail


@pytest.mark.parametrize(
    ("free_from", "then"),
    [(23 * MINUTE, 24 * MINUTE), (24 * MINUTE, 24 * MINUTE), (25 * MINUTE, 25 * MINUTE)],
    ids=["before the talk may end", "with it", "after it"],
)
def test_client_messages_wait_for_as_long_as_a_talk_may_last_and_never_less_than_before(
    free_from: dt.timedelta, then: dt.timedelta
) -> None:
    server = a_server(next_send_date=NOON + free_from)
    decision = decide(PersonVerdict.START_CHAT_PREHEAT, server, NOON, Talk(longest=24 * MINUTE))
    assert isinstance(decision, Change)
    assert decision.new["next_send_date"] == NOON + then
