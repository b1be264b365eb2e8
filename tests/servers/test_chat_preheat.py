"""Two servers that talk in turns."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest
from django.db import transaction

from otp_service.core.outcomes import ReportedState
from servers import chats
from servers.deliverability_limits import record_failed_send
from servers.history import lock_servers
from servers.internal_sends import News, take_news
from servers.models import ChatPreheat, Host, InternalSend, Server, ServerStatusHistory
from servers.preheat import take_turns
from servers.recovery import Outcome, VerdictRefused, carry_out
from servers.recovery_rules import PersonVerdict
from servers.rules import Event, Status
from tests.factories import ChatPreheatFactory, ServerFactory
from tests.racing import Racer
from tests.servers.scripted_relay import NOT_CONNECTED, SIGNED_OUT, ScriptedRelay

MINUTE = dt.timedelta(minutes=1)


def start_chat_preheat(server: Server, now: dt.datetime, *, by: str = "ada", reason: str = "") -> Outcome:
    return carry_out(PersonVerdict.START_CHAT_PREHEAT, [server.pk], now=now, by=by, reason=reason)


def run(now: dt.datetime, relay: ScriptedRelay | None = None) -> ScriptedRelay:
    Host.objects.update(last_seen_at=now)
    relay = relay or ScriptedRelay()
    take_turns(now=now, adapter=relay)
    return relay


def report(now: dt.datetime, state: ReportedState = ReportedState.DELIVERED, service: str = "imessage") -> None:
    send = InternalSend.objects.latest("id")
    take_news(News(send.pk, state, "message_sent", service), now=now, rng=random.Random(1))


def outcome(chat: ChatPreheat) -> str:
    chat.refresh_from_db()
    return chat.outcome


@pytest.mark.django_db
def test_starting_one_resets_what_was_counted_and_holds_client_messages_back(now: dt.datetime) -> None:
    server = ServerFactory.create(status=Status.NEED_CHECK, failed_in_row=2, cooldown_times=4)
    partner = ServerFactory.create()
    start_chat_preheat(server, now, reason="let us see")
    server.refresh_from_db()
    assert (server.status, server.failed_in_row, server.cooldown_times) == (Status.ACTIVE, 0, 0)
    assert server.next_send_date == now + 24 * MINUTE  # six messages, four minutes apart at most
    chat = ChatPreheat.objects.get()
    assert (chat.server, chat.partner, chat.planned, chat.made, chat.due_at) == (server, partner, 6, 0, now)
    row = ServerStatusHistory.objects.get()
    assert (row.server, row.event, row.note) == (server, Event.CHAT_PREHEAT_STARTED, "let us see")
    assert (row.data["by"], row.data["partner"]) == ("ada", str(partner.uuid))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "partners", "why"),
    [
        pytest.param({"status": Status.DELETED}, 1, "mark it active first", id="deleted"),
        pytest.param({"signed_in": False}, 1, "sign it in", id="signed out"),
        pytest.param({}, 0, "no other server", id="nobody to talk with"),
    ],
)
def test_what_cannot_talk_is_refused_and_stays_as_it_was(
    now: dt.datetime, fields: dict[str, Any], partners: int, why: str
) -> None:
    server = ServerFactory.create(failed_in_row=1, **fields)
    ServerFactory.create_batch(partners)
    with pytest.raises(VerdictRefused) as refused:
        start_chat_preheat(server, now)
    assert why in refused.value.detail
    server.refresh_from_db()
    assert server.failed_in_row == 1
    assert not ChatPreheat.objects.exists()


@pytest.mark.django_db
def test_a_server_talks_with_one_at_a_time(now: dt.datetime) -> None:
    server = ServerFactory.create()
    ServerFactory.create_batch(2)
    start_chat_preheat(server, now)
    again = start_chat_preheat(server, now + MINUTE)
    assert again.unchanged == (server.pk,)
    assert "already" in again.why_unchanged[server.pk]
    assert ChatPreheat.objects.count() == ServerStatusHistory.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("fields", [{"status": Status.NEED_CHECK}, {"in_cooldown": True}])
def test_a_new_talk_waits_for_the_end_of_one_that_cannot_go_on(now: dt.datetime, fields: dict[str, Any]) -> None:
    chat = ChatPreheatFactory.create(**{f"server__{name}": value for name, value in fields.items()})
    with pytest.raises(VerdictRefused) as refused:
        start_chat_preheat(chat.server, now)
    assert "try again" in refused.value.detail
    run(now)
    assert outcome(chat) == "stopped"
    assert start_chat_preheat(chat.server, now).changed == (chat.server_id,)


@pytest.mark.django_db
def test_they_talk_in_turns_until_the_last_message_has_arrived(now: dt.datetime) -> None:
    chat = ChatPreheatFactory.create()
    at, spoke = now, []
    for made in range(1, 7):
        relay = run(at)
        assert len(relay.sends) == 1
        spoke.append(InternalSend.objects.latest("id").sender_id)
        assert run(at).sends == []  # it is awaited
        report(at)
        chat.refresh_from_db()
        assert chat.made == made
        if chat.due_at is not None:
            assert MINUTE <= chat.due_at - at <= 4 * MINUTE
            assert run(chat.due_at - MINUTE / 60).sends == []
            at = chat.due_at
    assert spoke == [chat.server_id, chat.partner_id] * 3
    assert (outcome(chat), chat.ended_at) == ("finished", at)
    assert run(at + 60 * MINUTE).sends == []
    assert not ServerStatusHistory.objects.exists()


@pytest.mark.django_db
def test_a_message_that_fell_back_to_sms_puts_its_sender_into_need_check(now: dt.datetime) -> None:
    chat = ChatPreheatFactory.create()
    run(now)
    report(now, ReportedState.SENT, "sms")
    chat.server.refresh_from_db()
    chat.partner.refresh_from_db()
    assert (chat.server.status, chat.partner.status) == (Status.NEED_CHECK, Status.ACTIVE)
    row = ServerStatusHistory.objects.get()
    assert (row.event, row.data["path"]) == (Event.NEED_CHECK, "chat_preheat")
    assert outcome(chat) == "sms"


@pytest.mark.django_db
def test_sms_is_noticed_when_the_service_is_told_last(now: dt.datetime) -> None:
    chat = ChatPreheatFactory.create()
    run(now)
    report(now, ReportedState.DELIVERED, "")
    report(now, ReportedState.SENT, "sms")
    chat.server.refresh_from_db()
    assert (chat.server.status, outcome(chat)) == (Status.NEED_CHECK, "sms")


@pytest.mark.django_db
def test_what_was_only_sent_is_still_awaited(now: dt.datetime) -> None:
    chat = ChatPreheatFactory.create()
    run(now)
    report(now, ReportedState.SENT)
    chat.refresh_from_db()
    assert (chat.made, chat.awaited) == (0, True)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("after", "ended"), [(14 * MINUTE, ""), (15 * MINUTE, "unanswered")], ids=["in time", "too long"]
)
def test_a_message_that_is_never_heard_of_ends_the_talk(now: dt.datetime, after: dt.timedelta, ended: str) -> None:
    chat = ChatPreheatFactory.create()
    run(now)
    run(now + after)
    assert outcome(chat) == ended


@pytest.mark.django_db
def test_a_message_that_failed_ends_the_talk(now: dt.datetime) -> None:
    chat = ChatPreheatFactory.create()
    run(now)
    report(now, ReportedState.FAILED)
    assert outcome(chat) == "failed"


@pytest.mark.django_db
@pytest.mark.parametrize("result", [NOT_CONNECTED, SIGNED_OUT])
def test_a_message_that_could_not_be_handed_over_ends_the_talk(now: dt.datetime, result: Any) -> None:
    chat = ChatPreheatFactory.create()
    run(now, ScriptedRelay(result))
    assert outcome(chat) == "failed"


@pytest.mark.django_db
@pytest.mark.parametrize("who", ["server", "partner"])
@pytest.mark.parametrize("fields", [{"status": Status.DISABLED}, {"signed_in": False}])
def test_a_talk_ends_when_one_of_the_two_cannot_go_on(now: dt.datetime, who: str, fields: dict[str, Any]) -> None:
    chat = ChatPreheatFactory.create()
    Server.objects.filter(pk=getattr(chat, f"{who}_id")).update(**fields)
    assert run(now).sends == []
    assert outcome(chat) == "stopped"


@pytest.mark.django_db
def test_while_the_host_of_the_next_one_is_away_the_talk_waits(now: dt.datetime) -> None:
    chat = ChatPreheatFactory.create()
    Host.objects.filter(pk=chat.server.host_id).update(last_seen_at=now - 91 * MINUTE / 60)
    assert take_turns(now=now, adapter=ScriptedRelay()) == 0
    assert (outcome(chat), chat.due_at) == ("", now)
    assert len(run(now).sends) == 1


@pytest.mark.django_db
def test_a_late_repetition_does_not_end_the_next_turn(now: dt.datetime) -> None:
    chat = ChatPreheatFactory.create()
    run(now)
    first = InternalSend.objects.get()
    report(now)
    chat.refresh_from_db()
    assert chat.due_at is not None
    run(chat.due_at)
    with transaction.atomic():
        chats.end_turn(first, chats.Turn.ARRIVED, now=now, rng=random.Random(1))
    chat.refresh_from_db()
    assert (chat.made, chat.awaited) == (1, True)


@pytest.mark.django_db(transaction=True)
def test_two_runs_at_once_send_one_message(now: dt.datetime) -> None:
    chat = ChatPreheatFactory.create()
    relays = [ScriptedRelay(), ScriptedRelay()]
    with transaction.atomic():
        lock_servers([chat.server_id])
        second = Racer(lambda: take_turns(now=now, adapter=relays[1]))
        second.wait_until_blocked()
        first = Racer(lambda: take_turns(now=now, adapter=relays[0]))
        first.wait_until_blocked()
    assert first.result() + second.result() == 1
    assert len(relays[0].sends) + len(relays[1].sends) == 1
    assert InternalSend.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("status", [Status.DELETED, Status.DISABLED, Status.LOST])
def test_late_news_of_an_sms_brings_no_server_back_into_need_check(now: dt.datetime, status: Status) -> None:
    chat = ChatPreheatFactory.create()
    run(now)
    Server.objects.filter(pk=chat.server_id).update(status=status)
    report(now, ReportedState.SENT, "sms")
    chat.server.refresh_from_db()
    assert chat.server.status == status
    assert outcome(chat) == "sms"
    assert not ServerStatusHistory.objects.exists()


@pytest.mark.django_db
def test_need_check_of_either_ends_the_talk_at_the_next_look(now: dt.datetime) -> None:
    chat = ChatPreheatFactory.create(
        partner__failed_in_row=1, partner__cooldown_times=4, awaited=True, due_at=now + 15 * MINUTE
    )
    record_failed_send(chat.partner_id, now=now, reason="message_sent")
    assert run(now).sends == []
    assert outcome(chat) == "stopped"


@pytest.mark.django_db
def test_a_recovered_server_is_not_taken_out_again_by_the_same_sms(now: dt.datetime) -> None:
    chat = ChatPreheatFactory.create()
    run(now)
    report(now, ReportedState.SENT, "sms")
    carry_out(PersonVerdict.RECOVER, [chat.server_id], now=now + MINUTE, by="ada")
    report(now + 2 * MINUTE, ReportedState.DELIVERED, "sms")
    chat.server.refresh_from_db()
    assert chat.server.status == Status.ACTIVE


@pytest.mark.django_db
def test_an_sms_from_before_a_recovery_is_old_news(now: dt.datetime) -> None:
    chat = ChatPreheatFactory.create()
    run(now)
    Server.objects.filter(pk=chat.server_id).update(released_at=now + MINUTE)
    report(now + 2 * MINUTE, ReportedState.SENT, "sms")
    chat.server.refresh_from_db()
    assert chat.server.status == Status.ACTIVE


@pytest.mark.django_db
def test_a_talk_whose_hosts_stay_away_ends_and_holds_up_no_other(now: dt.datetime) -> None:
    away = ChatPreheatFactory.create(server__host__last_seen_at=now - 91 * MINUTE / 60)
    ChatPreheatFactory.create(due_at=now)
    relay = ScriptedRelay()
    assert take_turns(now=now, adapter=relay, batch=1) == 1
    assert outcome(away) == ""
    take_turns(now=now + 15 * MINUTE, adapter=relay)
    assert outcome(away) == "stopped"


@pytest.mark.django_db
def test_a_server_on_a_host_that_is_away_does_not_begin_to_talk(now: dt.datetime) -> None:
    server = ServerFactory.create(host__last_seen_at=now - 91 * MINUTE / 60)
    ServerFactory.create()
    with pytest.raises(VerdictRefused) as refused:
        start_chat_preheat(server, now)
    assert "offline" in refused.value.detail


@pytest.mark.django_db(transaction=True)
def test_two_people_who_start_one_at_once_start_one(now: dt.datetime) -> None:
    server, _ = ServerFactory.create(), ServerFactory.create_batch(2)
    with transaction.atomic():
        start_chat_preheat(server, now)
        second = Racer(lambda: start_chat_preheat(server, now, by="bob"))
        second.wait_until_blocked()
    assert second.result().unchanged == (server.pk,)
    assert [row.data["by"] for row in server.history.all()] == ["ada"]


@pytest.mark.django_db(transaction=True)
def test_late_news_of_an_sms_and_a_verdict_at_once_leave_what_the_verdict_says(now: dt.datetime) -> None:
    chat = ChatPreheatFactory.create()
    run(now)
    with transaction.atomic():
        carry_out(PersonVerdict.DISABLE, [chat.server_id], now=now, by="ada")
        reporting = Racer(lambda: report(now, ReportedState.SENT, "sms"))
        reporting.wait_until_blocked()
    reporting.result()
    chat.server.refresh_from_db()
    assert (chat.server.status, outcome(chat)) == (Status.DISABLED, "stopped")
