"""What proves that a server in cooldown is alive."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest

from servers.cooldown import check_cooldown_servers, confirm_cooldown_warmup_delivery
from servers.models import Server, ServerStatusHistory
from servers.rules import Event
from tests.factories import InternalSendFactory, ServerFactory

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)
SOME_UUID = uuid.UUID(int=7)


def warmed_up(now: dt.datetime, **fields: Any) -> Server:
    """In cooldown, its warm-up sent at noon."""
    return ServerFactory.create(
        wants_warm_up=True,
        **{"cooldown_warmup_uuid": uuid.UUID(int=1), "cooldown_warmup_sent_date": now, **fields},
    )


def confirm(server: Server, now: dt.datetime, **named: Any) -> bool:
    return confirm_cooldown_warmup_delivery(server.pk, now=now, via="message_sent", **named)


def test_a_confirmation_is_written_down_once(now: dt.datetime) -> None:
    server = warmed_up(now)
    assert confirm(server, now + MINUTE, uuid=server.cooldown_warmup_uuid)
    assert not confirm(server, now + 2 * MINUTE, uuid=server.cooldown_warmup_uuid)
    server.refresh_from_db()
    assert server.cooldown_warmup_delivered
    row = ServerStatusHistory.objects.get()
    assert (row.event, row.at, row.note) == (Event.WARMUP_CONFIRMED, now + MINUTE, "via message_sent")
    assert row.data["old"] == {"cooldown_warmup_delivered": False}
    assert row.data["new"] == {"cooldown_warmup_delivered": True}
    assert row.data["via"] == "message_sent"


@pytest.mark.parametrize("named", [{}, {"uuid": SOME_UUID}], ids=["without a uuid", "with another uuid"])
def test_it_needs_no_matching_uuid(now: dt.datetime, named: dict[str, Any]) -> None:
    assert confirm(warmed_up(now), now + MINUTE, **named)


def test_any_internal_send_of_the_cooldown_counts(now: dt.datetime) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    InternalSendFactory.create(sender=server, kind="preheat", created_at=now - 10 * MINUTE, uuid=SOME_UUID)
    assert confirm(server, now, uuid=SOME_UUID)


@pytest.mark.parametrize(("minutes", "counts"), [(180, True), (181, False)])
def test_it_counts_for_three_hours_after_the_sending(now: dt.datetime, minutes: int, counts: bool) -> None:
    server = warmed_up(now, cooldown_end_date=now + 600 * MINUTE)
    assert confirm(server, now + minutes * MINUTE) is counts
    assert ServerStatusHistory.objects.exists() is counts


def test_what_was_sent_before_the_cooldown_proves_nothing(now: dt.datetime) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    InternalSendFactory.create(sender=server, created_at=now - 61 * MINUTE, uuid=SOME_UUID)
    assert not confirm(server, now, uuid=SOME_UUID)
    assert not confirm(server, now)


def test_what_never_left_proves_nothing(now: dt.datetime) -> None:
    server = ServerFactory.create(wants_warm_up=True)
    InternalSendFactory.create(sender=server, state="not_submitted", finished_at=now)
    assert not confirm(server, now)


def test_a_warm_up_that_the_host_refused_was_no_sending(now: dt.datetime) -> None:
    server = warmed_up(now, cooldown_warmup_uuid=SOME_UUID)
    InternalSendFactory.create(sender=server, uuid=SOME_UUID, state="not_submitted", finished_at=now)
    assert not confirm(server, now + MINUTE)
    assert not confirm(server, now + MINUTE, uuid=SOME_UUID)


@pytest.mark.parametrize("fields", [{}, {"status": "need_check"}])
def test_outside_a_cooldown_there_is_nothing_to_prove(now: dt.datetime, fields: dict[str, Any]) -> None:
    server = ServerFactory.create(**fields)
    InternalSendFactory.create(sender=server)
    assert not confirm(server, now)
    assert not ServerStatusHistory.objects.exists()


def test_a_late_confirmation_of_the_first_round_counts_in_the_second(now: dt.datetime) -> None:
    server = warmed_up(now, cooldown_end_date=now + 5 * MINUTE)
    InternalSendFactory.create(sender=server, created_at=now, uuid=SOME_UUID)
    check_cooldown_servers(now=now + 6 * MINUTE)
    server.refresh_from_db()
    assert (server.cooldown_extensions, server.cooldown_warmup_sent_date) == (1, None)
    assert confirm(server, now + 7 * MINUTE, uuid=SOME_UUID)


def test_a_verdict_waits_for_what_left_a_moment_ago(now: dt.datetime) -> None:
    server = warmed_up(now, cooldown_end_date=now + MINUTE)
    assert check_cooldown_servers(now=now + 179 * MINUTE / 60) == 0
    server.refresh_from_db()
    assert (server.cooldown, server.cooldown_extensions) == (True, 0)
    assert check_cooldown_servers(now=now + 3 * MINUTE) == 1
    server.refresh_from_db()
    assert server.cooldown_extensions == 1


def test_the_verdict_of_one_that_was_confirmed_at_once_does_not_wait(now: dt.datetime) -> None:
    server = warmed_up(now, cooldown_end_date=now + MINUTE, cooldown_warmup_delivered=True)
    assert check_cooldown_servers(now=now + MINUTE) == 1
    server.refresh_from_db()
    assert not server.cooldown
    assert ServerStatusHistory.objects.get().data["verdict"] == "verified"


def test_those_that_wait_for_a_confirmation_hold_up_no_batch(now: dt.datetime) -> None:
    for _ in range(4):
        warmed_up(now, cooldown_end_date=now + MINUTE)
    due = ServerFactory.create(in_cooldown=True, cooldown_end_date=now + 2 * MINUTE)
    assert check_cooldown_servers(now=now + 2 * MINUTE, batch=2) == 1
    due.refresh_from_db()
    assert not due.cooldown
