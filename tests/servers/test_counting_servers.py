"""How many servers may send, when the next one may, and why the others may not."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from servers import selection
from servers.rules import Status, WhyNot
from tests.factories import NOON, ServerFactory

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)
SECOND = dt.timedelta(seconds=1)

REASONS: list[tuple[dict[str, Any], WhyNot]] = [
    ({"status": Status.DELETED}, WhyNot.DELETED),
    ({"status": Status.DISABLED}, WhyNot.DISABLED),
    ({"status": Status.LOST}, WhyNot.LOST),
    ({"status": Status.NEW}, WhyNot.NEW),
    ({"status": Status.NEED_CHECK}, WhyNot.NEED_CHECK),
    ({"in_cooldown": True}, WhyNot.COOLDOWN),
    ({"signed_in": False}, WhyNot.SIGNED_OUT),
    ({"host__enabled": False}, WhyNot.HOST_DISABLED),
    ({"host__last_seen_at": None}, WhyNot.HOST_OFFLINE),
    ({"host__last_seen_at": NOON - 91 * SECOND}, WhyNot.HOST_OFFLINE),
    ({"next_send_date": NOON + SECOND}, WhyNot.RESTING),
]


@pytest.mark.parametrize(
    ("fields", "reason"), REASONS, ids=[f"{reason}-{number}" for number, (_, reason) in enumerate(REASONS)]
)
def test_a_server_that_may_not_send_is_counted_under_its_reason(
    now: dt.datetime, fields: dict[str, Any], reason: WhyNot
) -> None:
    ServerFactory.create(**fields)
    assert selection.why_not(now=now) == {reason: 1}
    assert selection.may_send(now=now) == 0


def test_every_status_but_active_has_its_reason() -> None:
    assert {status.value for status in Status} - {reason.value for reason in WhyNot} == {Status.ACTIVE.value}


def test_a_server_with_several_reasons_is_counted_once_under_the_first(now: dt.datetime) -> None:
    ServerFactory.create(in_cooldown=True, signed_in=False, host__last_seen_at=None, next_send_date=now + MINUTE)
    assert selection.why_not(now=now) == {WhyNot.COOLDOWN: 1}


def test_every_server_is_either_free_or_has_a_reason(now: dt.datetime) -> None:
    for fields, _ in REASONS:
        ServerFactory.create(**fields)
    ServerFactory.create_batch(3)
    assert sum(selection.why_not(now=now).values()) == len(REASONS)
    assert selection.may_send(now=now) == 3
    assert selection.free_by_pool(now=now) == {"es": 3}


def test_free_servers_are_counted_by_pool_up_to_the_cap(now: dt.datetime) -> None:
    ServerFactory.create_batch(3)
    ServerFactory.create_batch(2, region="zp")
    ServerFactory.create(region="vj", next_send_date=now + MINUTE)
    assert selection.free_by_pool(now=now) == {"es": 3, "zp": 2, "vj": 0}
    assert selection.free_by_pool(now=now, cap=2) == {"es": 2, "zp": 2, "vj": 0}


def test_no_servers_no_pools(now: dt.datetime) -> None:
    assert selection.free_by_pool(now=now) == {}


def test_the_next_free_time_is_the_earliest_of_the_pools_asked_for(now: dt.datetime) -> None:
    ServerFactory.create(next_send_date=now + 3 * MINUTE)
    ServerFactory.create(next_send_date=now + 2 * MINUTE)
    ServerFactory.create(region="zp", next_send_date=now + MINUTE)
    ServerFactory.create(region="vj", next_send_date=now)
    assert selection.next_free_at(("es",), now=now) == now + 2 * MINUTE
    assert selection.next_free_at(("es", "zp"), now=now) == now + MINUTE


@pytest.mark.parametrize("fields", [fields for fields, reason in REASONS if reason is not WhyNot.RESTING], ids=str)
def test_a_server_that_would_not_be_eligible_anyway_is_not_waited_for(now: dt.datetime, fields: dict[str, Any]) -> None:
    ServerFactory.create(**fields)
    assert selection.next_free_at(("es",), now=now) is None
