"""What a reservation counts, and the budgets that hold a server back."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from otp_service.web.fields import recipient_hash
from servers import selection
from servers.models import Server
from servers.rules import WhyNot
from servers.selection import SendRequest
from tests.factories import NOON, QueuedFactory, RecipientLinkFactory, ServerFactory
from tests.routes.steps import claim

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)
TODAY = NOON.date()
YESTERDAY = TODAY - dt.timedelta(days=1)
KNOWN, NEW = "+34600000000", "+34611111111"


def request(to: str = NEW, key: int = 1, **more: Any) -> SendRequest:
    return SendRequest(key=key, pools=("es",), recipient_hash=recipient_hash(to), recipient=to, **more)


def reserved(now: dt.datetime, *requests: SendRequest) -> dict[Any, int]:
    got = selection.reserve(requests, now=now, rng=random.Random(1))
    return {key: reservation.server_id for key, reservation in got.items()}


def counts(server: Server) -> tuple[Any, ...]:
    server.refresh_from_db()
    return (server.sends_day, server.sends_today, server.new_recipients_today)


def _sent(day: dt.date) -> dict[str, Any]:
    return {"sends_day": day, "sends_today": 5, "new_recipients_today": 2}


# --- what is counted -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "to", "expected"),
    [
        pytest.param({}, NEW, (TODAY, 1, 1), id="the first ever"),
        pytest.param({}, KNOWN, (TODAY, 1, 0), id="to somebody known"),
        pytest.param(_sent(TODAY), NEW, (TODAY, 6, 3), id="one more today"),
        pytest.param(_sent(TODAY), KNOWN, (TODAY, 6, 2), id="one more today, to somebody known"),
        pytest.param(_sent(YESTERDAY), NEW, (TODAY, 1, 1), id="a new day"),
        pytest.param(_sent(YESTERDAY), KNOWN, (TODAY, 1, 0), id="a new day, to somebody known"),
    ],
)
def test_a_reservation_counts_for_its_day(
    now: dt.datetime, fields: dict[str, Any], to: str, expected: tuple[Any, ...]
) -> None:
    server = ServerFactory.create(**fields)
    RecipientLinkFactory.create(server=server, number=KNOWN)
    reserved(now, request(to))
    assert counts(server) == expected
    assert server.last_sent_at == now


def test_somebody_whom_another_server_knows_is_new_to_this_one(now: dt.datetime) -> None:
    RecipientLinkFactory.create(server=ServerFactory.create(next_send_date=now + MINUTE), number=KNOWN)
    server = ServerFactory.create()
    reserved(now, request(KNOWN))
    assert counts(server) == (TODAY, 1, 1)


def test_each_message_of_several_counts_for_its_own_server(now: dt.datetime) -> None:
    known, other = ServerFactory.create(), ServerFactory.create()
    RecipientLinkFactory.create(server=known, number=KNOWN)
    assert reserved(now, request(NEW, 1, is_otp=True), request(KNOWN, 2)) == {1: other.pk, 2: known.pk}
    assert (counts(known), counts(other)) == ((TODAY, 1, 0), (TODAY, 1, 1))
    assert (known.otp_in_hour, other.otp_in_hour) == (0, 1)


def test_the_day_is_that_of_utc(now: dt.datetime) -> None:
    late = now.replace(hour=23, minute=30)
    server = ServerFactory.create(host__last_seen_at=late)
    reserved(late.astimezone(dt.timezone(dt.timedelta(hours=2))), request())
    assert counts(server)[0] == TODAY


def test_a_server_that_is_not_reserved_counts_nothing(now: dt.datetime) -> None:
    other = ServerFactory.create_batch(2, next_send_date=now - MINUTE)[1]
    Server.objects.filter(pk=other.pk).update(tie=0.9)
    reserved(now, request())
    assert counts(other) == (None, 0, 0)
    assert other.last_sent_at is None


@pytest.mark.parametrize(
    ("hour", "is_otp", "expected"),
    [
        pytest.param(NOON, True, 8, id="otp in this hour"),
        pytest.param(NOON, False, 7, id="another lane"),
        pytest.param(NOON - 60 * MINUTE, True, 1, id="otp, the first of the hour"),
        pytest.param(NOON - 60 * MINUTE, False, 0, id="another lane, the first of the hour"),
        pytest.param(None, True, 1, id="otp, the first ever"),
    ],
)
def test_otp_messages_are_counted_by_the_clock_hour(
    now: dt.datetime, hour: dt.datetime | None, is_otp: bool, expected: int
) -> None:
    at = now + 59 * MINUTE
    server = ServerFactory.create(otp_hour=hour, otp_in_hour=7, host__last_seen_at=at)
    reserved(at, request(is_otp=is_otp))
    server.refresh_from_db()
    assert (server.otp_hour, server.otp_in_hour) == (NOON, expected)


@pytest.mark.parametrize(("lane", "otp"), [("otp", 1), ("transactional", 0), ("promo", 0)])
def test_a_claim_says_which_messages_are_otp(now: dt.datetime, lane: str, otp: int) -> None:
    server = ServerFactory.create()
    message = QueuedFactory.create(flow__lane=lane)
    assert len(claim([(message.flow_id, 1)], now=now)) == 1
    server.refresh_from_db()
    assert (server.sends_today, server.otp_in_hour) == (1, otp)


def test_a_server_in_preheat_rests_four_times_as_long(now: dt.datetime) -> None:
    server = ServerFactory.create(preheating=True, preheat_started_at=now)
    reserved(now, request())
    server.refresh_from_db()
    assert 32 * MINUTE <= server.next_send_date - now <= 48 * MINUTE


# --- the budgets ---------------------------------------------------------------------------------------


def test_as_shipped_no_number_holds_a_server_back_and_none_is_asked_about(now: dt.datetime) -> None:
    ServerFactory.create(sends_day=TODAY, sends_today=10_000, new_recipients_today=10_000)
    with CaptureQueriesContext(connection) as captured:
        assert selection.may_send(now=now) == 1
        assert selection.free_by_pool(now=now) == {"es": 1}
        assert selection.next_free_at(("es",), now=now) == now - MINUTE
        assert selection.why_not(now=now) == {}
        assert len(reserved(now, request())) == 1
    selects = [query["sql"] for query in captured if "UPDATE servers_server" not in query["sql"]]
    assert not [sql for sql in selects if "sends_day" in sql or "recipients_today" in sql]


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        pytest.param({"sends_day": TODAY, "sends_today": 9}, True, id="one left"),
        pytest.param({"sends_day": TODAY, "sends_today": 10}, False, id="used up"),
        pytest.param({"sends_day": YESTERDAY, "sends_today": 10}, True, id="used up yesterday"),
        pytest.param({}, True, id="never sent"),
    ],
)
@pytest.mark.parametrize("to", [KNOWN, NEW])
def test_a_server_that_used_up_its_messages_is_not_reserved_for_anybody(
    now: dt.datetime, settings: Settings, fields: dict[str, Any], may: bool, to: str
) -> None:
    settings.BUDGET_MESSAGES_PER_DAY = 10
    server = ServerFactory.create(**fields)
    RecipientLinkFactory.create(server=server, number=KNOWN)
    assert reserved(now, request(to)) == ({1: server.pk} if may else {})


@pytest.mark.parametrize(
    ("fields", "to", "may"),
    [
        pytest.param({"sends_day": TODAY, "new_recipients_today": 9}, NEW, True, id="one left"),
        pytest.param({"sends_day": TODAY, "new_recipients_today": 10}, NEW, False, id="used up"),
        pytest.param({"sends_day": TODAY, "new_recipients_today": 10}, KNOWN, True, id="used up, somebody known"),
        pytest.param({"sends_day": YESTERDAY, "new_recipients_today": 10}, NEW, True, id="used up yesterday"),
    ],
)
def test_a_server_that_used_up_its_new_recipients_is_reserved_for_known_ones_only(
    now: dt.datetime, settings: Settings, fields: dict[str, Any], to: str, may: bool
) -> None:
    settings.BUDGET_NEW_RECIPIENTS_PER_DAY = 10
    server = ServerFactory.create(**fields)
    RecipientLinkFactory.create(server=server, number=KNOWN)
    assert reserved(now, request(to)) == ({1: server.pk} if may else {})


def test_a_server_held_for_somebody_known_is_not_given_to_somebody_new(now: dt.datetime, settings: Settings) -> None:
    settings.BUDGET_NEW_RECIPIENTS_PER_DAY = 10
    server = ServerFactory.create(sends_day=TODAY, new_recipients_today=10)
    RecipientLinkFactory.create(server=server, number=KNOWN)
    elsewhere = request(KNOWN, 1, excluded_servers=frozenset({server.pk}))
    assert reserved(now, elsewhere, request(NEW, 2)) == {}
    assert reserved(now, request(NEW, 2), request(KNOWN, 3)) == {3: server.pk}


def test_servers_without_budget_do_not_stand_in_the_way_of_others(now: dt.datetime, settings: Settings) -> None:
    settings.BUDGET_MESSAGES_PER_DAY = 10
    used_up = {"sends_day": TODAY, "sends_today": 10, "next_send_date": now - 60 * MINUTE}
    ServerFactory.create_batch(3 * selection.SPARE, **used_up)
    free = ServerFactory.create()
    assert reserved(now, request()) == {1: free.pk}


@pytest.mark.parametrize("used_up", ["sends_today", "new_recipients_today"])
@pytest.mark.parametrize(
    ("limit", "field"),
    [("BUDGET_MESSAGES_PER_DAY", "sends_today"), ("BUDGET_NEW_RECIPIENTS_PER_DAY", "new_recipients_today")],
)
def test_a_server_without_budget_is_counted_as_such(
    now: dt.datetime, settings: Settings, limit: str, field: str, used_up: str
) -> None:
    setattr(settings, limit, 10)
    ServerFactory.create(sends_day=TODAY, **{used_up: 10}, next_send_date=now)
    ServerFactory.create_batch(2, next_send_date=now)
    free = 2 if used_up == field else 3
    assert selection.may_send(now=now) == free
    assert selection.free_by_pool(now=now) == {"es": free}
    assert selection.why_not(now=now) == ({WhyNot.BUDGET: 1} if used_up == field else {})


def test_a_server_without_budget_is_not_waited_for(now: dt.datetime, settings: Settings) -> None:
    settings.BUDGET_MESSAGES_PER_DAY = 10
    ServerFactory.create(sends_day=TODAY, sends_today=10, next_send_date=now + MINUTE)
    assert selection.next_free_at(("es",), now=now) is None
    ServerFactory.create(next_send_date=now + 2 * MINUTE)
    assert selection.next_free_at(("es",), now=now) == now + 2 * MINUTE


def test_a_server_that_is_resting_and_without_budget_is_counted_under_its_budget(
    now: dt.datetime, settings: Settings
) -> None:
    settings.BUDGET_MESSAGES_PER_DAY = 10
    ServerFactory.create(sends_day=TODAY, sends_today=10, next_send_date=now + MINUTE)
    assert selection.why_not(now=now) == {WhyNot.BUDGET: 1}


@pytest.mark.parametrize("messages", [1, 20])
def test_budgets_cost_no_queries(now: dt.datetime, settings: Settings, messages: int) -> None:
    ServerFactory.create_batch(60)
    counted = []
    for limit in (0, 10):
        settings.BUDGET_MESSAGES_PER_DAY = settings.BUDGET_NEW_RECIPIENTS_PER_DAY = limit
        with CaptureQueriesContext(connection) as captured:
            assert len(reserved(now, *(request(key=key) for key in range(messages)))) == messages
        counted.append(len(captured))
    assert counted[0] == counted[1]
