"""A person's verdicts on servers."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from otp_service.events.models import Event as LogEvent
from servers.models import ChatPreheat, Server, ServerStatusHistory
from servers.recovery import Outcome, VerdictRefused, carry_out
from servers.recovery_rules import PersonVerdict
from servers.rules import Event, Status
from tests.factories import ChatPreheatFactory, HostFactory, ServerFactory

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)
COUNTED = {"failed_in_row": 2, "cooldown_times": 4, "fail_open_streak": 3}
PREHEATING = {
    "preheating": True,
    "preheat_started_at": dt.datetime(2026, 8, 20, tzinfo=dt.UTC),
    "preheat_repeats": 2,
    "preheat_asked_at": dt.datetime(2026, 8, 27, tzinfo=dt.UTC),
}


def decide(verdict: PersonVerdict, server: Server, now: dt.datetime, *, reason: str = "") -> Outcome:
    return carry_out(verdict, [server.pk], now=now, by="ada", reason=reason)


def counters(server: Server) -> tuple[int, int, int]:
    server.refresh_from_db()
    return server.failed_in_row, server.cooldown_times, server.fail_open_streak


def test_a_recovery_brings_a_server_back_with_nothing_counted(now: dt.datetime) -> None:
    server = ServerFactory.create(status=Status.NEED_CHECK, **COUNTED)
    decide(PersonVerdict.RECOVER, server, now, reason="a new SIM")
    assert counters(server) == (0, 0, 0)
    assert server.status == Status.ACTIVE
    row = ServerStatusHistory.objects.get()
    assert (row.event, row.at, row.note) == (Event.RECOVERED, now, "a new SIM")
    assert (row.data["by"], row.data["reason"]) == ("ada", "a new SIM")
    assert row.data["old"] == {"status": "need_check", "released_at": None, **COUNTED}
    nothing = {"failed_in_row": 0, "cooldown_times": 0, "fail_open_streak": 0}
    assert row.data["new"] == {"status": "active", "released_at": now.isoformat(), **nothing}


def test_a_recovery_ends_a_preheat_and_does_not_move_the_next_send(now: dt.datetime) -> None:
    server = ServerFactory.create(status=Status.NEED_CHECK, next_send_date=now + MINUTE, **PREHEATING)
    decide(PersonVerdict.RECOVER, server, now)
    server.refresh_from_db()
    assert (server.preheating, server.preheat_started_at, server.preheat_repeats) == (False, None, 0)
    assert server.next_send_date == now + MINUTE


def test_need_check_keeps_the_preheat_to_be_looked_at(now: dt.datetime) -> None:
    server = ServerFactory.create(**PREHEATING)
    decide(PersonVerdict.NEED_CHECK, server, now)
    server.refresh_from_db()
    assert (server.preheating, server.preheat_repeats) == (True, 2)


@pytest.mark.parametrize("verdict", PersonVerdict)
def test_a_verdict_has_somebody_whose_it_is(now: dt.datetime, verdict: PersonVerdict) -> None:
    ServerFactory.create(host=HostFactory.create())  # somebody to talk with
    server = ServerFactory.create(status=Status.NEED_CHECK if verdict is PersonVerdict.RECOVER else Status.NEW)
    decide(verdict, server, now, reason="a new SIM")
    row = server.history.get()
    assert (row.data["by"], row.data["reason"]) == ("ada", "a new SIM")


@pytest.mark.parametrize("status", [Status.NEW, Status.LOST, Status.DISABLED, Status.DELETED])
def test_only_need_check_is_recovered_from(now: dt.datetime, status: Status) -> None:
    server = ServerFactory.create(status=status, **COUNTED)
    with pytest.raises(VerdictRefused) as refused:
        decide(PersonVerdict.RECOVER, server, now)
    assert "mark it active" in refused.value.detail
    assert counters(server) == (2, 4, 3)
    assert not ServerStatusHistory.objects.exists()


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.ACTIVE])
def test_a_server_is_marked_active_from_any_status(now: dt.datetime, status: Status) -> None:
    server = ServerFactory.create(status=status, **COUNTED)
    decide(PersonVerdict.MARK_ACTIVE, server, now)
    assert counters(server) == (0, 0, 0)
    assert server.status == Status.ACTIVE
    row = ServerStatusHistory.objects.get()
    assert (row.event, row.data["by"], row.data["old"]["status"]) == (Event.MARKED_ACTIVE, "ada", status)


@pytest.mark.parametrize("fields", [{"in_cooldown": True}, COUNTED, PREHEATING])
def test_an_active_server_is_marked_active_when_something_is_held_against_it(
    now: dt.datetime, fields: dict[str, Any]
) -> None:
    server = ServerFactory.create(**fields)
    decide(PersonVerdict.MARK_ACTIVE, server, now)
    assert counters(server) == (0, 0, 0)
    assert (server.cooldown, server.cooldown_end_date, server.cooldown_reason, server.preheating) == (
        False,
        None,
        "",
        False,
    )
    assert ServerStatusHistory.objects.get().event == Event.MARKED_ACTIVE


@pytest.mark.parametrize("verdict", [PersonVerdict.RECOVER, PersonVerdict.MARK_ACTIVE])
def test_what_is_active_already_stays_as_it_is(now: dt.datetime, verdict: PersonVerdict) -> None:
    server = ServerFactory.create(otp_hour=now, otp_in_hour=3)  # one that works
    outcome = decide(verdict, server, now)
    assert (outcome.changed, outcome.unchanged, outcome.refused) == ((), (server.pk,), ())
    assert "active" in outcome.why_unchanged[server.pk]
    server.refresh_from_db()
    assert server.released_at is None
    assert not ServerStatusHistory.objects.exists()


def test_a_recovery_does_not_end_a_cooldown(now: dt.datetime) -> None:
    server = ServerFactory.create(in_cooldown=True)
    assert decide(PersonVerdict.RECOVER, server, now).unchanged == (server.pk,)
    server.refresh_from_db()
    assert server.cooldown


@pytest.mark.parametrize(
    ("verdict", "status", "event"),
    [
        (PersonVerdict.LOST, Status.LOST, Event.LOST),
        (PersonVerdict.DISABLE, Status.DISABLED, Event.DISABLED),
        (PersonVerdict.DELETE, Status.DELETED, Event.DELETED),
    ],
)
def test_what_leaves_the_rotation_leaves_its_cooldown_and_its_preheat_and_keeps_its_counters(
    now: dt.datetime, verdict: PersonVerdict, status: Status, event: Event
) -> None:
    server = ServerFactory.create(in_cooldown=True, **PREHEATING)
    decide(verdict, server, now, reason="broken")
    assert counters(server) == (2, 1, 0)
    assert (server.status, server.cooldown, server.preheating) == (status, False, False)
    row = ServerStatusHistory.objects.get()
    assert (row.event, row.note, row.data["by"]) == (event, "broken", "ada")
    assert decide(verdict, server, now).unchanged == (server.pk,)
    assert ServerStatusHistory.objects.count() == 1


def test_need_check_by_a_person_has_the_evidence_and_who_it_was(now: dt.datetime) -> None:
    server = ServerFactory.create(in_cooldown=True)
    decide(PersonVerdict.NEED_CHECK, server, now, reason="looks odd")
    assert counters(server) == (2, 1, 0)
    assert (server.status, server.cooldown) == (Status.NEED_CHECK, False)
    row = ServerStatusHistory.objects.get()
    assert (row.event, row.note) == (Event.NEED_CHECK, "admin: looks odd")
    assert (row.data["path"], row.data["by"], row.data["reason"]) == ("admin", "ada", "looks odd")
    assert row.data["evidence"]["counters"]["failed_in_row"] == 2
    assert LogEvent.objects.get().type == "server.need_check"
    assert decide(PersonVerdict.NEED_CHECK, server, now).unchanged == (server.pk,)
    assert ServerStatusHistory.objects.count() == LogEvent.objects.count() == 1


@pytest.mark.parametrize("verdict", set(PersonVerdict) - {PersonVerdict.MARK_ACTIVE, PersonVerdict.DELETE})
def test_a_deleted_server_is_marked_active_first(now: dt.datetime, verdict: PersonVerdict) -> None:
    server = ServerFactory.create(status=Status.DELETED)
    ServerFactory.create()
    with pytest.raises(VerdictRefused) as refused:
        decide(verdict, server, now)
    assert "mark it active first" in refused.value.detail
    server.refresh_from_db()
    assert server.status == Status.DELETED


@pytest.mark.parametrize(
    "verdict", [PersonVerdict.NEED_CHECK, PersonVerdict.LOST, PersonVerdict.DISABLE, PersonVerdict.DELETE]
)
@pytest.mark.parametrize("who", ["server", "partner"])
def test_what_leaves_the_rotation_ends_its_talks(now: dt.datetime, verdict: PersonVerdict, who: str) -> None:
    chat = ChatPreheatFactory.create()
    decide(verdict, getattr(chat, who), now)
    chat = ChatPreheat.objects.get()
    assert (chat.outcome, chat.ended_at, chat.due_at) == ("stopped", now, None)


def test_a_verdict_in_a_transaction_of_the_callers_that_is_refused_leaves_it_usable(now: dt.datetime) -> None:
    server = ServerFactory.create(status=Status.LOST)
    with pytest.raises(VerdictRefused):
        decide(PersonVerdict.RECOVER, server, now)
    decide(PersonVerdict.DISABLE, server, now)  # in the test's own transaction
    server.refresh_from_db()
    assert server.status == Status.DISABLED
