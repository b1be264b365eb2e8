"""Internal sends that report nothing are asked about at their hosts."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from otp_service.core.outcomes import ReportedState, StatusReport
from servers.internal_sends import ask_about_silence
from servers.models import InternalSend, Server, ServerStatusHistory
from servers.rules import Event
from tests.factories import InternalSendFactory, ServerFactory
from tests.servers.scripted_relay import NOT_FOUND, ScriptedRelay

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)
UNANSWERED = StatusReport(ReportedState.UNKNOWN, answered=False)
SENT = StatusReport(ReportedState.SENT, provider_message_id="guid-1", service="imessage")


def silent(now: dt.datetime, **fields: Any) -> InternalSend:
    server = ServerFactory.create(wants_warm_up=True)
    return InternalSendFactory.create(sender=server, **{"created_at": now - 2 * MINUTE, "check_at": now, **fields})


def test_what_the_host_says_is_written_down(now: dt.datetime) -> None:
    send = silent(now)
    relay = ScriptedRelay(report=SENT)
    assert ask_about_silence(now=now, adapter=relay) == 1
    assert relay.asked == [send.uuid]
    send.refresh_from_db()
    assert (send.state, send.guid, send.check_at) == ("sent", "guid-1", None)
    assert Server.objects.get(pk=send.sender_id).cooldown_warmup_delivered
    confirmed = ServerStatusHistory.objects.get(event=Event.WARMUP_CONFIRMED)
    assert confirmed.data["via"] == "query"


def test_before_its_time_nobody_is_asked(now: dt.datetime) -> None:
    silent(now, check_at=now + MINUTE / 60)
    assert ask_about_silence(now=now, adapter=ScriptedRelay()) == 0


@pytest.mark.parametrize(
    ("age", "again"),
    [
        pytest.param(MINUTE / 2, MINUTE, id="a minute at least"),
        pytest.param(20 * MINUTE, 20 * MINUTE, id="as long as it is old"),
        pytest.param(89 * MINUTE, 89 * MINUTE, id="within three hours"),
        pytest.param(90 * MINUTE, None, id="not after them"),
    ],
)
def test_one_that_stays_silent_is_asked_about_less_and_less(
    now: dt.datetime, age: dt.timedelta, again: dt.timedelta | None
) -> None:
    send = silent(now, created_at=now - age)
    ask_about_silence(now=now, adapter=ScriptedRelay(report=UNANSWERED))
    send.refresh_from_db()
    assert send.check_at == (None if again is None else now + again)
    assert send.state == "accepted"


@pytest.mark.parametrize(
    ("state", "withdrawn", "ends"),
    [
        pytest.param("submitting", True, "not_submitted", id="whoever sent it died"),
        pytest.param("unknown", True, "not_submitted", id="no clear answer"),
        pytest.param("accepted", False, "accepted", id="it was accepted: it may have left"),
    ],
)
def test_one_that_the_host_has_never_seen_is_withdrawn(
    now: dt.datetime, state: str, withdrawn: bool, ends: str
) -> None:
    send = silent(now, state=state)
    relay = ScriptedRelay(report=NOT_FOUND)
    ask_about_silence(now=now, adapter=relay)
    assert relay.withdrawn == ([send.uuid] if withdrawn else [])
    send.refresh_from_db()
    assert send.state == ends
    assert Server.objects.get(pk=send.sender_id).cooldown_warmup_sent_date is None


def test_one_whose_process_died_is_unknown_while_its_host_is_away(now: dt.datetime) -> None:
    send = silent(now, state="submitting")
    ask_about_silence(now=now, adapter=ScriptedRelay(report=UNANSWERED))
    send.refresh_from_db()
    assert send.state == "unknown"


def test_a_host_that_answers_is_alive(now: dt.datetime) -> None:
    send = silent(now)
    host = send.sender.host
    host.last_seen_at = now - 10 * MINUTE
    host.save(update_fields=["last_seen_at"])
    ask_about_silence(now=now, adapter=ScriptedRelay(report=UNANSWERED))
    host.refresh_from_db()
    assert host.last_seen_at == now - 10 * MINUTE
    InternalSend.objects.update(check_at=now)
    ask_about_silence(now=now, adapter=ScriptedRelay(report=SENT))
    host.refresh_from_db()
    assert host.last_seen_at == now
