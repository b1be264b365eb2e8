"""Need Check: what it clears, and the evidence that a person finds."""

from __future__ import annotations

import datetime as dt

import pytest

from otp_service.events.models import Event as LogEvent
from servers.deliverability_limits import record_delivery, record_failed_send, set_need_check
from servers.models import ServerStatusHistory
from servers.rules import Event, NeedCheckPath, Status
from tests.draws import Lowest
from tests.factories import GroupFactory, ServerFactory

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)


def test_need_check_ends_a_cooldown_and_keeps_the_counters(now: dt.datetime) -> None:
    server = ServerFactory.create(in_cooldown=True, cooldown_warmup_at=now, cooldown_extensions=2)
    assert set_need_check(server.pk, now=now, path=NeedCheckPath.FAIL_OPEN, reason="looks odd")
    server.refresh_from_db()
    assert server.status == Status.NEED_CHECK
    assert not server.cooldown
    assert (server.cooldown_start_date, server.cooldown_end_date, server.cooldown_warmup_at) == (None, None, None)
    assert (server.cooldown_reason, server.cooldown_extensions) == ("", 0)
    assert (server.failed_in_row, server.cooldown_times) == (2, 1)
    row = ServerStatusHistory.objects.get()
    assert row.note == "fail_open: looks odd"
    assert row.data["old"]["status"] == "active"
    assert row.data["new"]["status"] == "need_check"


def test_need_check_is_entered_once(now: dt.datetime) -> None:
    server = ServerFactory.create()
    set_need_check(server.pk, now=now, path=NeedCheckPath.FAIL_OPEN)
    assert not set_need_check(server.pk, now=now, path=NeedCheckPath.CHAT_PREHEAT)
    assert ServerStatusHistory.objects.count() == LogEvent.objects.count() == 1


def test_the_evidence_is_what_happened_last_and_how_its_host_is_doing(now: dt.datetime) -> None:
    server = ServerFactory.create(cooldown_times=4, host__number=39)
    server.groups.add(GroupFactory.create(name="Quick"))
    ServerFactory.create(host=server.host)
    ServerFactory.create(host=server.host, failed_in_row=1)
    ServerFactory.create(host=server.host, in_cooldown=True)
    ServerFactory.create(host=server.host, status=Status.NEED_CHECK)
    ServerFactory.create()
    for number in range(20):
        record_delivery(server.pk, now=now + number * MINUTE, recipient_hash=bytes([number]) * 32)
    record_failed_send(server.pk, now=now + 30 * MINUTE, reason="message_failed", error_code=120, rng=Lowest())
    server.cooldown_times = 4
    server.save(update_fields=["cooldown_times"])
    record_failed_send(server.pk, now=now + 31 * MINUTE, reason="timeout_125", error_code=125, rng=Lowest())

    evidence = ServerStatusHistory.objects.get(event=Event.NEED_CHECK).data["evidence"]
    assert evidence["counters"] == {"failed_in_row": 2, "cooldown_times": 4, "fail_open_streak": 0}
    assert evidence["group"]["name"] == "Quick"
    assert evidence["host"] == 39
    assert evidence["others_of_host"] == {"servers": 4, "active": 3, "cooldown": 1, "need_check": 1, "failing": 2}
    assert len(evidence["outcomes"]) == 20
    assert evidence["outcomes"][:3] == [
        {"at": "2026-09-01T12:31:00+00:00", "outcome": "failed", "reason": "timeout_125", "error_code": 125},
        {"at": "2026-09-01T12:30:00+00:00", "outcome": "failed", "reason": "message_failed", "error_code": 120},
        {"at": "2026-09-01T12:19:00+00:00", "outcome": "delivered"},
    ]
