"""The slow start of a new server, from a person's start to its end."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest

from otp_service.events.models import Event as LogEvent
from servers.models import Host, InternalSend, Server, ServerStatusHistory
from servers.preheat import send_preheats
from servers.recovery import Outcome, VerdictRefused, carry_out
from servers.recovery_rules import PersonVerdict
from servers.rules import Event, Policy, Status, draw_send_interval
from tests.factories import InternalSendFactory, ServerFactory
from tests.servers.scripted_relay import NOT_CONNECTED, ScriptedRelay

pytestmark = pytest.mark.django_db
MINUTE, HOUR, DAY = dt.timedelta(minutes=1), dt.timedelta(hours=1), dt.timedelta(days=1)


def preheating(now: dt.datetime, **fields: Any) -> Server:
    return ServerFactory.create(**{"preheating": True, "preheat_started_at": now, **fields})


def start_preheat(server: Server, now: dt.datetime) -> Outcome:
    return carry_out(PersonVerdict.START_PREHEAT, [server.pk], now=now, by="ada", reason="a new SIM")


def run(now: dt.datetime, relay: ScriptedRelay | None = None) -> ScriptedRelay:
    Host.objects.update(last_seen_at=now)
    relay = relay or ScriptedRelay()
    send_preheats(now=now, adapter=relay)
    return relay


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.DELETED])
def test_a_preheat_starts_from_any_status_with_nothing_counted(now: dt.datetime, status: Status) -> None:
    server = ServerFactory.create(status=status, failed_in_row=1, cooldown_times=4, fail_open_streak=2)
    start_preheat(server, now)
    server.refresh_from_db()
    assert (server.status, server.preheating, server.preheat_started_at) == (Status.ACTIVE, True, now)
    assert (server.failed_in_row, server.cooldown_times, server.fail_open_streak) == (0, 0, 0)
    row = ServerStatusHistory.objects.get()
    assert (row.event, row.note, row.data["by"]) == (Event.PREHEAT_STARTED, "a new SIM", "ada")
    assert row.data["old"]["cooldown_times"] == 4
    assert row.data["new"]["preheating"] is True


def test_a_preheat_ends_a_cooldown(now: dt.datetime) -> None:
    server = ServerFactory.create(in_cooldown=True)
    start_preheat(server, now)
    server.refresh_from_db()
    assert (server.cooldown, server.cooldown_end_date, server.failed_in_row) == (False, None, 0)


def test_a_preheat_that_a_person_was_asked_about_may_begin_anew(now: dt.datetime) -> None:
    server = preheating(now - 6 * DAY, preheat_repeats=2, preheat_asked_at=now - DAY)
    start_preheat(server, now)
    server.refresh_from_db()
    assert (server.preheat_started_at, server.preheat_repeats, server.preheat_asked_at) == (now, 0, None)


def test_one_that_runs_goes_on_as_it_is(now: dt.datetime) -> None:
    server = preheating(now - 6 * DAY, preheat_repeats=1)
    assert start_preheat(server, now).unchanged == (server.pk,)
    server.refresh_from_db()
    assert (server.preheat_started_at, server.preheat_repeats) == (now - 6 * DAY, 1)
    assert not ServerStatusHistory.objects.exists()


def test_one_of_a_server_that_left_the_rotation_begins_anew(now: dt.datetime) -> None:
    server = preheating(now - 6 * DAY, status=Status.NEED_CHECK)
    assert start_preheat(server, now).changed == (server.pk,)
    server.refresh_from_db()
    assert (server.status, server.preheat_started_at) == (Status.ACTIVE, now)


def test_a_deleted_server_is_not_preheated(now: dt.datetime) -> None:
    server = ServerFactory.create(status=Status.DELETED)
    with pytest.raises(VerdictRefused) as refused:
        start_preheat(server, now)
    assert "mark it active first" in refused.value.detail
    assert not ServerStatusHistory.objects.exists()


def test_a_server_in_preheat_writes_to_another_one(now: dt.datetime) -> None:
    server, receiver = preheating(now), ServerFactory.create()
    relay = run(now)
    send = InternalSend.objects.get()
    assert (send.kind, send.sender, send.receiver, send.state) == ("preheat", server, receiver, "accepted")
    assert [submitted.to for _, submitted in relay.sends] == [receiver.handle]
    assert not ServerStatusHistory.objects.exists()


def test_the_next_one_comes_after_a_pause(now: dt.datetime) -> None:
    preheating(now)
    ServerFactory.create()
    run(now)
    assert run(now + 2 * HOUR).sends == []
    assert len(run(now + 4 * HOUR).sends) == 1


def test_one_that_did_not_leave_is_made_up_for(now: dt.datetime) -> None:
    preheating(now)
    ServerFactory.create()
    run(now, ScriptedRelay(NOT_CONNECTED))
    assert run(now + 20 * MINUTE).sends == []
    assert len(run(now + 21 * MINUTE).sends) == 1  # a tenth of the pause


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"in_cooldown": True}, id="in cooldown"),
        pytest.param({"signed_in": False}, id="signed out"),
        pytest.param({"status": Status.NEED_CHECK}, id="in Need Check"),
        pytest.param({"preheat_asked_at": dt.datetime(2026, 9, 1, tzinfo=dt.UTC)}, id="a person was asked"),
        pytest.param({"region": "us"}, id="it is eight in the morning in Madrid and two at night in New York"),
    ],
)
def test_it_rests(now: dt.datetime, fields: dict[str, Any]) -> None:
    morning = now.replace(hour=6)
    preheating(morning, **fields)
    ServerFactory.create()
    assert run(morning).sends == []


def test_waking_hours_are_those_of_the_region(now: dt.datetime) -> None:
    morning = now.replace(hour=6)  # eight in Madrid
    preheating(morning)
    ServerFactory.create()
    assert len(run(morning).sends) == 1


def sent(server: Server, number: int, at: dt.datetime, *, state: str = "sent", service: str = "imessage") -> None:
    for _ in range(number):
        InternalSendFactory.create(sender=server, kind="preheat", created_at=at, state=state, service=service)


def test_a_plan_that_is_done_ends_the_preheat(now: dt.datetime) -> None:
    server = preheating(now - 5 * DAY)
    sent(server, 48, now - DAY)
    run(now)
    server.refresh_from_db()
    assert (server.status, server.preheating, server.preheat_started_at) == (Status.ACTIVE, False, None)
    row = ServerStatusHistory.objects.get()
    assert (row.event, row.note) == (Event.PREHEAT_FINISHED, "done: 48 of 60 confirmed")
    assert (row.data["planned"], row.data["confirmed"], row.data["new"]["preheating"]) == (60, 48, False)


@pytest.mark.parametrize(
    ("state", "service"), [("accepted", ""), ("failed", "imessage"), ("sent", "sms"), ("unknown", "")]
)
def test_what_is_not_confirmed_does_not_count(now: dt.datetime, state: str, service: str) -> None:
    server = preheating(now - 5 * DAY)
    sent(server, 47, now - DAY)
    InternalSendFactory.create(
        sender=server,
        kind="preheat",
        created_at=now - DAY,
        state=state,
        service=service,
        finished_at=now if state == "failed" else None,
    )
    run(now)
    server.refresh_from_db()
    assert (server.preheating, server.preheat_repeats) == (True, 1)


def test_a_plan_that_proves_nothing_repeats_its_last_day_twice_and_then_asks_a_person(now: dt.datetime) -> None:
    server = preheating(now - 5 * DAY)
    for repeats in (1, 2):
        run(now + (repeats - 1) * DAY)
        server.refresh_from_db()
        assert (server.preheating, server.preheat_repeats, server.preheat_asked_at) == (True, repeats, None)
    asked_at = now + 2 * DAY
    for at in (asked_at, asked_at + MINUTE):
        run(at)
    server.refresh_from_db()
    assert (server.status, server.preheating, server.preheat_asked_at) == (Status.ACTIVE, True, asked_at)
    assert list(server.history.order_by("id").values_list("event", "data__outcome")) == [
        (Event.PREHEAT_UNPROVEN, "repeated"),
        (Event.PREHEAT_UNPROVEN, "repeated"),
        (Event.PREHEAT_UNPROVEN, "asked"),
    ]
    told = LogEvent.objects.get()
    assert (told.type, told.subject_uuid) == ("server.preheat_unproven", server.uuid)


def test_a_server_in_preheat_gets_one_client_message_in_four() -> None:
    normal = draw_send_interval(Policy(), random.Random(1))
    assert draw_send_interval(Policy(), random.Random(1), preheating=True) == 4 * normal
