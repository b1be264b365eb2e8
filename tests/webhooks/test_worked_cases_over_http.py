"""The worked cases of sender health that hosts bring about: signed webhooks in, the server's row and history out."""

from __future__ import annotations

import datetime as dt
import json
import threading
import uuid
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from pytest_django.live_server_helper import LiveServer

from otp_service.core import clock as process_clock
from otp_service.core.signing import signature_headers
from otp_service.messages.models import Attempt, Flow, Message
from servers.cooldown import check_cooldown_servers
from servers.models import Host, InternalSend, Server, ServerDelivery
from servers.preheat import preheat_otp_sender_names
from servers.rules import Event, Status
from tests.deadline import eventually
from tests.draws import Drawn, Lowest
from tests.factories import NOON, AttemptFactory, ServerFactory
from tests.http import Answer, call
from tests.racing import PATIENCE, Racer
from tests.routes.steps import attempt_of, claimed
from tests.servers.scripted_relay import ScriptedRelay
from tests.webhooks.relay_poster import RelayPoster, about, event
from webhooks.inbound import api

SECOND, MINUTE, HOUR = dt.timedelta(seconds=1), dt.timedelta(minutes=1), dt.timedelta(hours=1)


def at(clock: str) -> dt.datetime:
    """That time of the test's day."""
    return dt.datetime.combine(NOON.date(), dt.time.fromisoformat(clock), dt.UTC)


class Posting:
    """A host that posts at any time of the day."""

    def __init__(self, poster: RelayPoster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.poster, self.now = poster, NOON
        self.host = poster.host
        monkeypatch.setattr(api, "utc_now", lambda: self.now)
        monkeypatch.setattr(process_clock.rng, "randint", Lowest().randint)

    def posts(self, kind: str, now: dt.datetime, **data: Any) -> None:
        self.now = now
        assert self.poster.posts(event(kind, **data), at=now).counts == (1, 0)

    def reports(self, server: Server, kind: str, now: dt.datetime, **data: Any) -> Attempt:
        """News of a message of its own that the server was given."""
        attempt = AttemptFactory.create(server=server)
        self.posts(kind, now, attempt_id=str(attempt.uuid), **data)
        server.refresh_from_db()
        return attempt


@pytest.fixture
def host(poster: RelayPoster, monkeypatch: pytest.MonkeyPatch) -> Posting:
    return Posting(poster, monkeypatch)


@pytest.fixture
def server(host: Posting) -> Server:
    return ServerFactory.create(host=host.host)


def events(server: Server) -> list[int]:
    return list(server.history.order_by("id").values_list("event", flat=True))


FAILURES: dict[str, dict[str, Any]] = {
    "message_failed": {"error_code": 120},
    "message_sent": {"success": False, "error_code": 125},
}


@pytest.mark.parametrize("kind", FAILURES)
def test_two_reported_failures_in_a_row_start_the_first_cooldown(host: Posting, server: Server, kind: str) -> None:
    """Case 1."""
    host.reports(server, kind, at("12:00"), **FAILURES[kind])
    assert (server.cooldown, server.failed_in_row) == (False, 1)
    host.reports(server, kind, at("12:01"), **FAILURES[kind])
    assert (server.cooldown_start_date, server.cooldown_end_date) == (at("12:01"), at("13:01"))
    assert (server.cooldown_warmup_at, server.cooldown_times, server.failed_in_row) == (at("12:21"), 1, 2)
    assert events(server) == [109, 109, 101]


def test_a_reported_delivery_between_two_failures_starts_the_count_anew(host: Posting, server: Server) -> None:
    """Case 2."""
    host.reports(server, "message_failed", at("12:00"), error_code=120)
    host.reports(server, "delivered", at("12:01"))
    host.reports(server, "message_failed", at("12:02"), error_code=120)
    assert (server.cooldown, server.failed_in_row) == (False, 1)
    assert events(server) == [109, 113, 109]


# --- case 9 and 10: the warm-up gate -------------------------------------------------------------------


@pytest.fixture
def receiver(host: Posting) -> Server:
    """On another host."""
    return ServerFactory.create()


def warm_up(server: Server, now: dt.datetime) -> InternalSend:
    """The warm-up that is due now, as its host took it."""
    Host.objects.update(last_seen_at=now)
    assert preheat_otp_sender_names(now=now, adapter=ScriptedRelay()) == 1
    return InternalSend.objects.filter(sender=server).latest("id")


def sweep(server: Server, now: dt.datetime, *draws: int) -> None:
    check_cooldown_servers(now=now, rng=Drawn(*draws))
    server.refresh_from_db()


def into_cooldown(host: Posting, server: Server, now: dt.datetime) -> None:
    """An hour long, with its slot after 20 minutes."""
    for _ in range(2):
        host.reports(server, "message_failed", now, error_code=120)
    assert server.cooldown_end_date == now + HOUR


#: What a host says of a warm-up that proves nothing.
SILENCE: dict[str, dict[str, Any] | None] = {
    "case 9: nothing is heard": None,
    "case 9: it left as SMS": {"success": True, "service": "sms"},
    "case 9: it failed": {"success": False, "service": "imessage", "error_code": 120},
}


@pytest.mark.parametrize("said", SILENCE.values(), ids=SILENCE)
def test_what_is_not_confirmed_is_extended_twice_then_let_out_without_proof(
    host: Posting, server: Server, receiver: Server, said: dict[str, Any] | None
) -> None:
    into_cooldown(host, server, at("12:00"))
    rounds = [("12:20", "13:00", (55, 5)), ("13:05", "13:55", (70, 10)), ("14:05", "15:05", ())]
    for number, (slot, end, draws) in enumerate(rounds):
        assert (server.cooldown_extensions, server.cooldown_end_date) == (number, at(end))
        send = warm_up(server, at(slot))
        if said is not None:
            host.posts("message_sent", at(slot) + MINUTE, attempt_id=str(send.uuid), **said)
        sweep(server, at(end), *draws)
    assert (server.cooldown, server.status, server.fail_open_streak) == (False, Status.ACTIVE, 1)
    assert (server.failed_in_row, server.next_send_date) == (0, at("15:15"))
    assert events(server) == [109, 109, 101, 104, 102, 104, 102, 104, 100]
    assert server.history.latest("id").data["verdict"] == "fail_open"


def test_the_third_exit_in_a_row_without_proof_is_need_check(host: Posting, server: Server, receiver: Server) -> None:
    """Case 9."""
    Server.objects.filter(pk=server.pk).update(fail_open_streak=2)
    into_cooldown(host, server, at("12:00"))
    for slot, end, draws in (("12:20", "13:00", (55, 5)), ("13:05", "13:55", (55, 5)), ("14:00", "14:50", ())):
        warm_up(server, at(slot))
        sweep(server, at(end), *draws)
    assert (server.status, server.cooldown, server.fail_open_streak) == (Status.NEED_CHECK, False, 3)
    assert server.history.latest("id").data["path"] == "fail_open"


@pytest.mark.parametrize("how", ["message_sent", "inbound", "inbound as SMS"])
@pytest.mark.parametrize("extended", [False, True], ids=["case 9: in the first round", "case 9: in an extension"])
def test_a_confirmation_ends_the_streak(
    host: Posting, server: Server, receiver: Server, how: str, extended: bool
) -> None:
    Server.objects.filter(pk=server.pk).update(fail_open_streak=2)
    into_cooldown(host, server, at("12:00"))
    now, send = at("12:20"), warm_up(server, at("12:20"))
    end = at("13:00")
    if extended:
        sweep(server, end, 55, 5)
        now, send, end = at("13:05"), warm_up(server, at("13:05")), at("13:55")
    if how == "message_sent":
        host.posts("message_sent", now + MINUTE, attempt_id=str(send.uuid), success=True, service="iMessage")
    else:
        service = "sms" if "SMS" in how else "imessage"
        comes_in = {"from": server.handle, "to": receiver.handle, "text": "Hello!", "service": service}
        host.now = now + MINUTE
        there = RelayPoster(receiver.host, host.poster.client)
        there.posts(event("inbound", unit=receiver.unit, **comes_in), at=host.now)
    proved = "SMS" not in how
    sweep(server, end, *(() if proved else (70, 10)))
    assert server.history.filter(event=Event.WARMUP_CONFIRMED).count() == int(proved)
    assert (server.cooldown, server.fail_open_streak) == ((False, 0) if proved else (True, 2))
    verdicts = server.history.filter(event=Event.COOLDOWN_FINISHED).values_list("data__verdict", flat=True)
    assert list(verdicts) == (["verified"] if proved else [])


@pytest.mark.parametrize(
    ("age", "counts"),
    [(3 * HOUR, True), (3 * HOUR + SECOND, False), (3 * HOUR + MINUTE, False)],
    ids=["case 10: 3 h", "case 10: 3 h and 1 s", "case 10: 3 h and 1 min"],
)
def test_a_success_is_no_proof_when_it_comes_over_three_hours_late(
    host: Posting, server: Server, receiver: Server, age: dt.timedelta, counts: bool
) -> None:
    into_cooldown(host, server, at("12:00"))
    send = warm_up(server, at("12:20"))
    Server.objects.filter(pk=server.pk).update(cooldown_end_date=at("17:00"))  # in it for long enough
    host.posts("message_sent", at("12:20") + age, attempt_id=str(send.uuid), success=True, service="imessage")
    server.refresh_from_db()
    assert server.cooldown_warmup_delivered is counts


# --- cases 13 to 16: what comes twice, at once, or too late ----------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_two_failures_posted_at_once_start_one_cooldown(
    live_server: LiveServer, at_noon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 13. Both calls wait for the server's row in connections of their own before either may go on."""
    monkeypatch.setattr(process_clock.rng, "randint", Lowest().randint)
    server = ServerFactory.create()
    bodies = [
        json.dumps(event("message_failed", attempt_id=str(attempt.uuid), error_code=120)).encode()
        for attempt in AttemptFactory.create_batch(2, server=server)
    ]
    start = threading.Barrier(2)

    def post(body: bytes) -> Answer:
        start.wait(PATIENCE)
        signed = signature_headers([server.host.secret], message_id=str(uuid.uuid4()), now=NOON, body=body)
        return call("POST", f"{live_server.url}/webhooks/relay/{server.host.number}/", body, signed)

    with transaction.atomic():
        Server.objects.select_for_update().get(pk=server.pk)
        racers = [Racer(partial(post, body)) for body in bodies]
        eventually(lambda: waiting() == 2)
    assert [racer.result().body for racer in racers] == [{"accepted": 1, "duplicates": 0}] * 2
    server.refresh_from_db()
    assert (server.cooldown, server.cooldown_times, server.failed_in_row) == (True, 1, 2)
    assert events(server) == [109, 109, 101]


def waiting() -> int:
    """How many other connections wait for a lock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(DISTINCT pid) FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE NOT granted AND datname = current_database()"
        )
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("kind", FAILURES)
def test_the_same_webhook_five_times_is_as_once(host: Posting, server: Server, kind: str) -> None:
    """Case 14. One failure below the threshold, so that a second count would start a cooldown."""
    attempt = AttemptFactory.create(server=server)
    failed = event(kind, attempt_id=str(attempt.uuid), **FAILURES[kind])
    assert [host.poster.posts(failed).counts for _ in range(5)] == [(1, 0), *[(0, 1)] * 4]
    server.refresh_from_db()
    assert (server.failed_in_row, server.cooldown, events(server)) == (1, False, [109])


@pytest.mark.parametrize(
    "late",
    [
        pytest.param({"success": True, "service": "imessage"}, id="case 15: a success"),
        pytest.param({"success": False, "error_code": 120}, id="case 15: a failure"),
    ],
)
def test_a_message_sent_after_the_delivery_changes_nothing(host: Posting, server: Server, late: dict[str, Any]) -> None:
    Server.objects.filter(pk=server.pk).update(failed_in_row=1)
    attempt = host.reports(server, "delivered", at("12:00"))
    host.posts("message_sent", at("12:01"), attempt_id=str(attempt.uuid), **late)
    attempt.refresh_from_db()
    server.refresh_from_db()
    assert (attempt.state, Message.objects.get().status) == ("delivered", "delivered")
    assert (attempt.finished_at, server.failed_in_row, events(server)) == (at("12:00"), 0, [113])
    assert ServerDelivery.objects.count() == 1


@pytest.mark.parametrize(
    ("failed_in_row", "told"),
    [(0, []), (1, []), (2, [101])],
    ids=["case 16: none before", "case 16: one below the threshold", "case 16: at the threshold"],
)
def test_the_last_attempt_after_a_retry_is_not_counted_but_looked_at(
    host: Posting, failed_in_row: int, told: list[int]
) -> None:
    (first,) = host.poster.in_flight(max_attempts=2)
    host.posts("message_failed", NOON, **about(first), error_code=120)
    second = ServerFactory.create(host=host.host, failed_in_row=failed_in_row)
    (last,) = claimed(Flow.objects.get())
    assert attempt_of(last).server == second
    host.posts("message_failed", NOON, **about(last), error_code=120)
    second.refresh_from_db()
    assert (second.failed_in_row, second.cooldown, events(second)) == (failed_in_row, bool(told), told)
    tried_first = attempt_of(first).server
    assert tried_first is not None
    assert events(tried_first) == [109]
    assert attempt_of(last).message.status == "failed"
