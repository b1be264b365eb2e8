"""A person's verdicts on servers."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from otp_service.core.errors import ServiceError
from otp_service.events.models import Event as LogEvent
from servers.models import ChatPreheat, Server, ServerStatusHistory
from servers.recovery import VERDICTS, RecoveryRefused, delete, disable, lost, mark_active, need_check, recover
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


def counters(server: Server) -> tuple[int, int, int]:
    server.refresh_from_db()
    return server.failed_in_row, server.cooldown_times, server.fail_open_streak


def test_a_recovery_brings_a_server_back_with_nothing_counted(now: dt.datetime) -> None:
    server = ServerFactory.create(status=Status.NEED_CHECK, **COUNTED)
    recover(server.pk, now=now, by="ada", reason="a new SIM")
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
    recover(server.pk, now=now, by="ada")
    server.refresh_from_db()
    assert (server.preheating, server.preheat_started_at, server.preheat_repeats) == (False, None, 0)
    assert server.next_send_date == now + MINUTE


def test_need_check_keeps_the_preheat_to_be_looked_at(now: dt.datetime) -> None:
    server = ServerFactory.create(**PREHEATING)
    need_check(server.pk, now=now, by="ada")
    server.refresh_from_db()
    assert (server.preheating, server.preheat_repeats) == (True, 2)


@pytest.mark.parametrize("name", VERDICTS)
def test_a_verdict_has_somebody_whose_it_is(now: dt.datetime, name: str) -> None:
    ServerFactory.create(host=HostFactory.create())  # somebody to talk with
    server = ServerFactory.create(status=Status.NEED_CHECK if name == "recover" else Status.NEW)
    VERDICTS[name](server.pk, now=now, by="ada", reason="a new SIM")
    row = server.history.get()
    assert (row.data["by"], row.data["reason"]) == ("ada", "a new SIM")


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.NEED_CHECK])
def test_only_need_check_is_recovered_from(now: dt.datetime, status: Status) -> None:
    server = ServerFactory.create(status=status, **COUNTED)
    with pytest.raises(RecoveryRefused) as refused:
        recover(server.pk, now=now, by="ada")
    assert "mark it active" in refused.value.detail
    assert counters(server) == (2, 4, 3)
    assert not ServerStatusHistory.objects.exists()


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.ACTIVE])
def test_a_server_is_marked_active_from_any_status(now: dt.datetime, status: Status) -> None:
    server = ServerFactory.create(status=status, **COUNTED)
    mark_active(server.pk, now=now, by="ada")
    assert counters(server) == (0, 0, 0)
    assert server.status == Status.ACTIVE
    row = ServerStatusHistory.objects.get()
    assert (row.event, row.data["by"], row.data["old"]["status"]) == (Event.MARKED_ACTIVE, "ada", status)


@pytest.mark.parametrize("fields", [{"in_cooldown": True}, COUNTED, PREHEATING])
def test_an_active_server_is_marked_active_when_something_is_held_against_it(
    now: dt.datetime, fields: dict[str, Any]
) -> None:
    server = ServerFactory.create(**fields)
    mark_active(server.pk, now=now, by="ada")
    assert counters(server) == (0, 0, 0)
    assert (server.cooldown, server.cooldown_end_date, server.cooldown_reason, server.preheating) == (
        False,
        None,
        "",
        False,
    )
    assert ServerStatusHistory.objects.get().event == Event.MARKED_ACTIVE


def test_marking_active_what_is_so_already_is_refused(now: dt.datetime) -> None:
    with pytest.raises(RecoveryRefused):
        mark_active(ServerFactory.create().pk, now=now, by="ada")
    assert not ServerStatusHistory.objects.exists()


@pytest.mark.parametrize(
    ("verdict", "status", "event"),
    [
        (lost, Status.LOST, Event.LOST),
        (disable, Status.DISABLED, Event.DISABLED),
        (delete, Status.DELETED, Event.DELETED),
    ],
)
def test_what_leaves_the_rotation_leaves_its_cooldown_and_its_preheat_and_keeps_its_counters(
    now: dt.datetime, verdict: Any, status: Status, event: Event
) -> None:
    server = ServerFactory.create(in_cooldown=True, **PREHEATING)
    verdict(server.pk, now=now, by="ada", reason="broken")
    assert counters(server) == (2, 1, 0)
    assert (server.status, server.cooldown, server.preheating) == (status, False, False)
    row = ServerStatusHistory.objects.get()
    assert (row.event, row.note, row.data["by"]) == (event, "broken", "ada")
    with pytest.raises(RecoveryRefused):
        verdict(server.pk, now=now, by="ada")
    assert ServerStatusHistory.objects.count() == 1


def test_need_check_by_a_person_has_the_evidence_and_who_it_was(now: dt.datetime) -> None:
    server = ServerFactory.create(in_cooldown=True)
    need_check(server.pk, now=now, by="ada", reason="looks odd")
    assert counters(server) == (2, 1, 0)
    assert (server.status, server.cooldown) == (Status.NEED_CHECK, False)
    row = ServerStatusHistory.objects.get()
    assert (row.event, row.note) == (Event.NEED_CHECK, "admin: looks odd")
    assert (row.data["path"], row.data["by"], row.data["reason"]) == ("admin", "ada", "looks odd")
    assert row.data["evidence"]["counters"]["failed_in_row"] == 2
    assert LogEvent.objects.get().type == "server.need_check"
    with pytest.raises(RecoveryRefused):
        need_check(server.pk, now=now, by="ada")


@pytest.mark.parametrize("name", ["recover", "need_check", "lost", "disable", "start_preheat", "start_chat_preheat"])
def test_a_deleted_server_is_marked_active_first(now: dt.datetime, name: str) -> None:
    server = ServerFactory.create(status=Status.DELETED)
    ServerFactory.create()
    with pytest.raises(ServiceError) as refused:
        VERDICTS[name](server.pk, now=now, by="ada")
    assert "active" in refused.value.detail
    server.refresh_from_db()
    assert server.status == Status.DELETED


@pytest.mark.parametrize("name", ["need_check", "lost", "disable", "delete"])
@pytest.mark.parametrize("who", ["server", "partner"])
def test_what_leaves_the_rotation_ends_its_talks(now: dt.datetime, name: str, who: str) -> None:
    chat = ChatPreheatFactory.create()
    VERDICTS[name](getattr(chat, f"{who}_id"), now=now, by="ada")
    chat = ChatPreheat.objects.get()
    assert (chat.outcome, chat.ended_at, chat.due_at) == ("stopped", now, None)


def test_a_verdict_in_a_transaction_of_the_callers_that_is_refused_leaves_it_usable(now: dt.datetime) -> None:
    server = ServerFactory.create()
    with pytest.raises(RecoveryRefused):
        recover(server.pk, now=now, by="ada")
    disable(server.pk, now=now, by="ada")  # in the test's own transaction
    server.refresh_from_db()
    assert server.status == Status.DISABLED
