"""What people are told about a server: the figures behind the sentences, and what they cost."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from servers import outlook, selection
from servers.models import InternalSend, Server, ServerDelivery, ServerStatusHistory, StormBrake
from servers.rules import Event, InternalKind, Status, WhyNot
from tests.factories import GroupFactory, HostFactory, InternalSendFactory, ServerFactory

pytestmark = pytest.mark.django_db
HOUR = dt.timedelta(hours=1)


def told(server: Server, now: dt.datetime) -> str:
    shown = outlook.of(server, now=now)
    return "\n".join((shown.state, shown.group, *shown.next))


def row(server: Server, event: Event, at: dt.datetime, **data: Any) -> None:
    ServerStatusHistory.objects.create(server=server, event=event, at=at, note=data.pop("note", ""), data=data)


def test_a_server_that_may_send(now: dt.datetime) -> None:
    shown = outlook.of(ServerFactory.create(), now=now)
    assert shown.state == "Active, free to send"
    assert shown.group == "No group in force: the defaults"
    assert len(shown.next) == 1


STANDS: list[tuple[WhyNot, dict[str, Any]]] = [
    (WhyNot.DELETED, {"status": Status.DELETED}),
    (WhyNot.DISABLED, {"status": Status.DISABLED}),
    (WhyNot.LOST, {"status": Status.LOST}),
    (WhyNot.NEW, {"status": Status.NEW}),
    (WhyNot.NEED_CHECK, {"status": Status.NEED_CHECK}),
    (WhyNot.COOLDOWN, {"in_cooldown": True}),
    (WhyNot.SIGNED_OUT, {"signed_in": False}),
    (WhyNot.HOST_DISABLED, {"host__enabled": False}),
    (WhyNot.HOST_OFFLINE, {"host__last_seen_at": None}),
    (WhyNot.BUDGET, {"sends_day": dt.date(2026, 9, 1), "sends_today": 5}),
    (WhyNot.RESTING, {"next_send_date": dt.datetime(2026, 9, 1, 12, 0, 1, tzinfo=dt.UTC)}),
]


@pytest.mark.parametrize(("reason", "columns"), [pytest.param(*one, id=one[0].value) for one in STANDS])
def test_the_reason_is_the_one_that_the_fleet_is_counted_by(
    now: dt.datetime, settings: Any, reason: WhyNot, columns: dict[str, Any]
) -> None:
    settings.BUDGET_MESSAGES_PER_DAY = 5
    server = ServerFactory.create(**columns)
    ServerFactory.create()
    assert outlook.of(server, now=now).why_not is reason
    assert selection.why_not(now=now) == {reason: 1}
    assert told(server, now)


def test_the_group_in_force_decides(now: dt.datetime) -> None:
    server = ServerFactory.create(failed_in_row=1, cooldown_times=1)
    quick = {"cooldown_delay_from": 15, "cooldown_delay_to": 45}
    server.groups.add(
        GroupFactory.create(name="Quick", priority=9, from_time=dt.time(8), to_time=dt.time(19, 59, 59), **quick),
        GroupFactory.create(name="Slow", priority=1, failed_in_row=5),
    )
    text = told(server, now)
    assert "Group Quick (priority 9): in force until 19:59:59 UTC, then group Slow" in text
    assert "One more failure in a row starts cooldown #2: 15–45 min" in text  # noqa: RUF001 - the dash of a range
    assert "4 more failures in a row start cooldown #2: 60–120 min" in told(server, now + 9 * HOUR)  # noqa: RUF001


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("calendar_window", "(3 of 11 within 14 h)"), ("since_release", "(2 of 11 since its release)")],
)
def test_deliveries_are_counted_as_the_ladder_counts_them(
    now: dt.datetime, settings: Any, rule: str, expected: str
) -> None:
    settings.RESET_RULE = rule
    server = ServerFactory.create(cooldown_times=1, released_at=now - 2 * HOUR)
    for hours in (1, 2, 14, 15):
        ServerDelivery.objects.create(server=server, at=now - hours * HOUR)
    assert expected in told(server, now)


def test_need_check_is_told_by_the_row_that_put_it_there(now: dt.datetime) -> None:
    server = ServerFactory.create(status=Status.NEED_CHECK)
    row(server, Event.NEED_CHECK, now - 30 * HOUR, path="fail_open", reason="")
    back = (now - 4 * HOUR).isoformat()
    row(server, Event.NEED_CHECK, now - HOUR, path="ladder", reason="", boomerang=True, recovered_at=back)
    expected = "In Need Check since 11:00 UTC by the path ladder (boomerang: recovered 3 h before)"
    assert outlook.of(server, now=now).state == expected


def test_one_that_was_signed_out_for_too_long_says_why_it_is_lost(now: dt.datetime) -> None:
    server = ServerFactory.create(status=Status.LOST)
    row(server, Event.LOST, now, note="signed out for too long")
    assert outlook.of(server, now=now).state == "Lost since 12:00 UTC: signed out for too long"


@pytest.mark.parametrize(
    ("columns", "put_back", "expected"),
    [
        pytest.param({}, None, "Lost at 2026-09-02 10:00 UTC unless it signs in", id="since it signed out"),
        pytest.param({}, 1, "Lost at 2026-09-02 11:00 UTC unless it signs in", id="since a person put it back"),
        pytest.param({}, 3, "Lost at 2026-09-02 10:00 UTC unless it signs in", id="put back before it signed out"),
        pytest.param({"in_cooldown": True}, None, "Lost at 2026-09-02 10:00 UTC", id="in cooldown too"),
        pytest.param({"status": Status.DISABLED}, None, None, id="not in rotation"),
    ],
)
def test_when_a_server_that_is_signed_out_is_given_up(
    now: dt.datetime, columns: dict[str, Any], put_back: int | None, expected: str | None
) -> None:
    server = ServerFactory.create(signed_in=False, signed_out_at=now - 2 * HOUR, **columns)
    if put_back is not None:
        row(server, Event.MARKED_ACTIVE, now - put_back * HOUR)
    text = told(server, now)
    assert ("unless it signs in" in text) is (expected is not None)
    assert (expected or "") in text


def test_a_preheat_counts_what_was_sent_since_its_start(now: dt.datetime) -> None:
    start = now - 26 * HOUR
    server = ServerFactory.create(preheating=True, preheat_started_at=start)
    common = {"sender": server, "kind": InternalKind.PREHEAT, "service": "imessage"}
    for at in (start - HOUR, start, now - HOUR):
        InternalSendFactory.create(**common, state=InternalSend.State.SENT, created_at=at)
    text = told(server, now)
    assert "In preheat, day 2 of 5" in text
    assert "Preheat: 1 of 8 internal sends of this day are made" in text
    assert "make it warm (now 2)" in text


@pytest.mark.parametrize(
    ("mode", "name", "over", "braked"),
    [
        pytest.param("enforce", "es", False, True, id="of its region"),
        pytest.param("enforce", "4", False, True, id="of its host"),
        pytest.param("shadow", "es", False, False, id="only shown"),
        pytest.param("enforce", "es", True, False, id="over"),
    ],
)
def test_a_brake_that_is_on_bends_what_failures_lead_to(  # noqa: PLR0917 - a table's columns
    now: dt.datetime, settings: Any, mode: str, name: str, over: bool, braked: bool
) -> None:
    settings.STORM_BRAKE = mode
    server = ServerFactory.create(region="es", host=HostFactory.create(number=4))
    scope = "host" if name.isdigit() else "region"
    since, until = now - 2 * HOUR, now - HOUR if over else None
    StormBrake.objects.create(scope=scope, name=name, mode=mode, share=0.5, on_at=since, off_at=until)
    StormBrake.objects.create(scope="host", name="5", mode=mode, share=0.5, on_at=since)
    assert ("a storm's brake is on" in told(server, now)) is braked


def test_it_takes_as_many_queries_however_much_happened(now: dt.datetime) -> None:
    quiet, busy = ServerFactory.create(), ServerFactory.create()
    busy.groups.set([GroupFactory.create() for _ in range(5)])
    for minute in range(50):
        row(busy, Event.SEND_FAILED, now - dt.timedelta(minutes=minute))
        ServerDelivery.objects.create(server=busy, at=now - dt.timedelta(minutes=minute))

    def queries(server: Server) -> int:
        with CaptureQueriesContext(connection) as captured:
            outlook.of(Server.objects.get(pk=server.pk), now=now)
        return len(captured)

    assert queries(busy) == queries(quiet) == 5
