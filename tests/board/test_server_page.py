"""The page of a server: what stands on top of its form, for whom, and what it costs."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from otp_service.board import server_page
from otp_service.board.server_page import ServerPage
from otp_service.messages.models import Message
from servers.models import Server, ServerDelivery, ServerStatusHistory
from servers.rules import Event, Status
from tests.factories import AttemptFactory, GroupFactory, MessageFactory, ServerFactory

pytestmark = pytest.mark.django_db
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def clock_stands(monkeypatch: pytest.MonkeyPatch, now: dt.datetime) -> None:
    monkeypatch.setattr("otp_service.board.admin.utc_now", lambda: now)


def page_of(people: Client, server: Server) -> str:
    answer = people.get(address(server))
    assert answer.status_code == 200
    return answer.content.decode()


def address(server: Server) -> str:
    return f"/admin/servers/server/{server.pk}/change/"


def viewer(client: Client, *codenames: str) -> Client:
    user = User.objects.create_user("viewer", password="not very secret", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client.force_login(user)
    return client


def whole_page(server: Server, now: dt.datetime) -> ServerPage:
    return server_page.of(server, now=now, with_messages=True, with_history=True)


def row(server: Server, event: Event, at: dt.datetime, **values: Any) -> ServerStatusHistory:
    return ServerStatusHistory.objects.create(server=server, event=event, at=at, **values)


def test_it_says_how_the_server_is_and_why_and_what_comes_next(admin_client: Client) -> None:
    server = ServerFactory.create(cooldown_times=2, failed_in_row=1)
    server.groups.add(GroupFactory.create(name="Night", priority=10))
    page = page_of(admin_client, server)
    assert "Active, free to send" in page
    assert "Group Night (priority 10): in force at all times; its only group" in page
    assert "One more failure in a row starts cooldown #3: 12–14 h" in page  # noqa: RUF001 - the dash of a range


def test_it_shows_the_last_attempts_with_links_and_without_text_or_recipient(
    admin_client: Client, now: dt.datetime
) -> None:
    server = ServerFactory.create()
    message = MessageFactory.create(number="+34677000111", text="Your code is 987654", lane="otp")
    AttemptFactory.create(
        message=message,
        server=server,
        state="failed",
        finished_at=now,
        error_class="sender_fault",
        error_code=130,
        duration_ms=321,
        raw_reply="what the host said",
    )
    page = page_of(admin_client, server)
    assert f'href="/admin/otp_messages/message/{message.pk}/change/">{message.uuid}</a>' in page
    assert "sender_fault (130)" in page
    assert "321 ms" in page
    for hidden in ("677000111", "987654", "what the host said", "whsec_"):
        assert hidden not in page


def test_it_shows_twenty_attempts_of_this_server_the_newest_first(now: dt.datetime) -> None:
    server = ServerFactory.create()
    of_it = [AttemptFactory.create(server=server) for _ in range(21)]
    AttemptFactory.create()
    shown = whole_page(server, now).attempts or ()
    assert [one.message_id for one in shown] == [attempt.message_id for attempt in reversed(of_it[1:])]


def test_it_shows_twenty_rows_of_history_and_leads_to_all_of_them(admin_client: Client, now: dt.datetime) -> None:
    server, other = ServerFactory.create(), ServerFactory.create()
    for minute in range(21):
        row(server, Event.SEND_FAILED, now - dt.timedelta(minutes=minute), note=f"note {minute}.")
    row(other, Event.SEND_FAILED, now, note="of another")
    page = page_of(admin_client, server)
    assert page.count("Send failed 📉") == 20
    assert "note 0." in page
    assert "note 20." not in page
    assert "of another" not in page
    whole = f"/admin/servers/serverstatushistory/?server__id__exact={server.pk}"
    assert f'href="{whole}"' in page
    history = admin_client.get(whole)
    assert history.status_code == 200
    listed = history.content.decode()
    assert "note 20." in listed
    assert "of another" not in listed


def test_the_picture_says_in_words_what_it_shows(admin_client: Client, now: dt.datetime) -> None:
    server = ServerFactory.create()
    ServerDelivery.objects.create(server=server, at=now - dt.timedelta(hours=3))
    row(server, Event.SEND_FAILED, now - dt.timedelta(hours=2))
    page = page_of(admin_client, server)
    assert 'role="img" aria-label="The last 7 days: 1 client messages delivered, 1 failed; 0 cooldowns' in page
    assert "<title>Tue 2026-09-01 09:00 UTC: 1 delivered, 0 failed</title>" in page
    assert "<title>Tue 2026-09-01 10:00 UTC: 0 delivered, 1 failed</title>" in page


def test_a_server_in_need_check_shows_its_evidence(admin_client: Client, now: dt.datetime) -> None:
    server = ServerFactory.create(status=Status.NEED_CHECK)
    failed = {"outcome": "failed", "error_code": 130}
    others = {"servers": 9, "active": 7, "failing": 2, "cooldown": 1, "need_check": 0}
    evidence = {"outcomes": [failed, failed, {"outcome": "delivered"}], "others_of_host": others}
    row(server, Event.NEED_CHECK, now, data={"path": "ladder", "evidence": evidence})
    page = page_of(admin_client, server)
    assert "In Need Check since 12:00 UTC by the path ladder" in page
    assert "Failed of its last 3 outcomes: 2 (codes: 130 × 2)" in page  # noqa: RUF001 - times
    assert "Others of its host then: 9, of them 7 active, 2 failing, 1 in cooldown, 0 in Need Check" in page
    Server.objects.update(status=Status.ACTIVE)
    assert "Evidence" not in page_of(admin_client, server)


def test_names_and_notes_cannot_bring_markup(admin_client: Client, now: dt.datetime) -> None:
    server = ServerFactory.create(name=SCRIPT, status=Status.NEED_CHECK, cooldown_reason=SCRIPT)
    server.groups.add(GroupFactory.create(name=SCRIPT))
    row(server, Event.NEED_CHECK, now, note=SCRIPT, data={"path": "admin", "by": SCRIPT, "reason": SCRIPT})
    page = page_of(admin_client, server)
    assert SCRIPT not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 5


def test_staff_who_may_only_look_see_the_page_and_change_nothing(client: Client, now: dt.datetime) -> None:
    server = ServerFactory.create()
    people = viewer(client, "view_server")
    page = page_of(people, server)
    assert "Active, free to send" in page
    assert 'name="_save"' not in page
    assert people.post(address(server), {"name": "new"}).status_code == 403


@pytest.mark.parametrize(
    "codenames",
    [
        pytest.param((), id="servers only"),
        pytest.param(("view_message",), id="messages"),
        pytest.param(("view_serverstatushistory",), id="history"),
        pytest.param(("view_message", "view_serverstatushistory"), id="both"),
    ],
)
def test_attempts_and_history_are_read_for_those_only_who_may_see_them(
    client: Client, now: dt.datetime, codenames: tuple[str, ...]
) -> None:
    server = ServerFactory.create(status=Status.NEED_CHECK)
    attempt = AttemptFactory.create(server=server)
    evidence = {"outcomes": [{"outcome": "failed", "error_code": 130}]}
    data = {"path": "admin", "by": "ada", "reason": "a smell of smoke", "evidence": evidence}
    row(server, Event.NEED_CHECK, now, note="what ada wrote", data=data)
    people = viewer(client, "view_server", *codenames)
    with CaptureQueriesContext(connection) as captured:
        page = page_of(people, server)
    sees_messages, sees_history = "view_message" in codenames, "view_serverstatushistory" in codenames
    assert "In Need Check since 12:00 UTC by the path admin" in page
    of_messages = (str(attempt.message.uuid), f"/admin/otp_messages/message/{attempt.message_id}/", "Last attempts")
    of_history = (
        "what ada wrote",
        "a smell of smoke",
        "Failed of its last 1 outcomes",
        "The whole history",
        ">History<",
    )
    assert [shown in page for shown in of_messages] == [sees_messages] * len(of_messages)
    assert [shown in page for shown in of_history] == [sees_history] * len(of_history)
    asked = [query["sql"] for query in captured]
    assert any('FROM "otp_messages_attempt"' in sql for sql in asked) is sees_messages
    of_rows = [sql for sql in asked if 'FROM "servers_serverstatushistory"' in sql]
    assert any("LIMIT 20" in sql for sql in of_rows) is sees_history
    assert any("evidence" in sql for sql in of_rows) is sees_history


def test_staff_who_may_not_see_servers_see_nothing(client: Client) -> None:
    assert viewer(client, "view_message").get(address(ServerFactory.create())).status_code == 403


def test_a_form_that_is_refused_is_shown_with_the_page_of_the_server_as_it_is(admin_client: Client) -> None:
    server = ServerFactory.create(region="es")
    form = {"region": "too long for a region", "unit": 1, "host": server.host_id, "name": "", "handle": "x"}
    answer = admin_client.post(address(server), form)
    assert answer.status_code == 200
    assert "Active, free to send" in answer.content.decode()


def test_the_page_that_adds_a_server_has_nothing_on_top(admin_client: Client) -> None:
    assert "What happens next" not in admin_client.get("/admin/servers/server/add/").content.decode()


def test_what_is_not_there_is_not_a_fault(admin_client: Client) -> None:
    assert admin_client.get("/admin/servers/server/0/change/").status_code == 302


def test_it_takes_as_many_queries_for_a_busy_server_as_for_an_empty_one(admin_client: Client, now: dt.datetime) -> None:
    def queries(server: Server) -> int:
        with CaptureQueriesContext(connection) as captured:
            page_of(admin_client, server)
        return len(captured)

    empty, busy = ServerFactory.create(), ServerFactory.create()
    busy.groups.set([GroupFactory.create() for _ in range(3)])
    events = (Event.SEND_FAILED, Event.COOLDOWN_STARTED, Event.WARMUP_SENT, Event.COOLDOWN_FINISHED)
    ServerStatusHistory.objects.bulk_create(
        ServerStatusHistory(server=busy, event=events[n % 4], at=now - dt.timedelta(minutes=4 * n))
        for n in range(2_000)
    )
    ServerDelivery.objects.bulk_create(
        ServerDelivery(server=busy, at=now - dt.timedelta(minutes=4 * n)) for n in range(2_000)
    )
    message = MessageFactory.create()
    for number in range(1, 31):
        AttemptFactory.create(message=message, number=number, server=busy)
    queries(empty)
    assert queries(busy) == queries(empty)
    assert Message.objects.count() == 1


@pytest.mark.parametrize(
    ("day", "shown"),
    [
        pytest.param(dt.date(2026, 9, 1), 7, id="today"),
        pytest.param(dt.date(2026, 8, 31), 0, id="yesterday's are nothing today"),
        pytest.param(None, 0, id="never sent"),
    ],
)
def test_messages_are_counted_by_the_day(now: dt.datetime, day: dt.date | None, shown: int) -> None:
    server = ServerFactory.create(sends_day=day, sends_today=7)
    counted = {one.name: one.value for one in whole_page(server, now).counters}
    assert counted["Messages today"] == shown


def test_counters_stand_beside_their_limits(now: dt.datetime, settings: Any) -> None:
    settings.BUDGET_MESSAGES_PER_DAY = 50
    server = ServerFactory.create(failed_in_row=1, cooldown_times=3, fail_open_streak=2)
    ServerDelivery.objects.create(server=server, at=now - dt.timedelta(hours=14))
    ServerDelivery.objects.create(server=server, at=now - dt.timedelta(hours=14, seconds=1))
    counted = [(one.name, one.value, one.limit) for one in whole_page(server, now).counters]
    assert counted == [
        ("Failures in a row", 1, "2 start a cooldown"),
        ("Cooldowns of the ladder", 3, "4, then Need Check"),
        ("Exits without proof in a row", 2, "3 are Need Check"),
        ("Deliveries in the last 14 h", 1, "11 bring the ladder back"),
        ("Messages today", 0, "50 a day"),
        ("New recipients today", 0, "no limit"),
    ]
