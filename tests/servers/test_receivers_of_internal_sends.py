"""Whom a server writes to: of its region first, on another host first, rested, and able to receive."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass
from typing import Any

import pytest

from servers import receivers
from servers.hosts import online_hosts
from servers.models import Server
from servers.preheat_rules import pick_receiver
from servers.rules import Status
from tests.factories import HostFactory, InternalSendFactory, ServerFactory

MINUTE = dt.timedelta(minutes=1)


@dataclass(frozen=True)
class At:
    id: int
    region: str
    host_id: int
    handle: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "handle", self.handle or f"handle {self.id}")


ME = At(1, "es", 1)
SAME_HOST, OTHER_HOST = At(2, "es", 1), At(3, "es", 2)
SAME_ADDRESS = At(6, "es", 2, handle=ME.handle)
ABROAD, ABROAD_SAME_HOST = At(4, "pt", 2), At(5, "pt", 1)


@pytest.mark.parametrize(
    ("candidates", "picked"),
    [
        ([], None),
        ([ME], None),
        ([ME, SAME_HOST], SAME_HOST),
        ([SAME_ADDRESS], None),
        ([SAME_HOST, OTHER_HOST], OTHER_HOST),
        ([SAME_HOST, ABROAD], SAME_HOST),
        ([ABROAD_SAME_HOST, ABROAD], ABROAD),
        ([ABROAD_SAME_HOST], ABROAD_SAME_HOST),
    ],
)
def test_the_nearest_on_another_host_is_picked(candidates: list[At], picked: At | None) -> None:
    assert pick_receiver(ME, candidates, random.Random(1)) == picked


def test_among_equals_it_is_drawn() -> None:
    equals = [At(id_, "es", 2) for id_ in range(10, 20)]
    assert len({pick_receiver(ME, equals, random.Random(seed)) for seed in range(100)}) == len(equals)


def paired(now: dt.datetime, *senders: Server) -> list[tuple[Server, Server]]:
    return receivers.pair(senders, hosts=online_hosts(now), now=now, rng=random.Random(1))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "host", "may"),
    [
        pytest.param({}, {}, True, id="active"),
        pytest.param({"region": "pt"}, {}, True, id="of another region"),
        pytest.param({"preheating": True, "preheat_started_at": dt.timedelta(0)}, {}, True, id="preheating"),
        pytest.param({"next_send_date": dt.timedelta(hours=1)}, {}, True, id="resting"),
        pytest.param({"in_cooldown": True}, {}, False, id="in cooldown"),
        pytest.param({"signed_in": False}, {}, False, id="signed out"),
        pytest.param({"status": Status.NEED_CHECK}, {}, False, id="in Need Check"),
        pytest.param({"status": Status.NEW}, {}, False, id="new"),
        pytest.param({}, {"last_seen_at": dt.timedelta(seconds=-91)}, False, id="on a host that is offline"),
        pytest.param({}, {"enabled": False}, False, id="on a host that is disabled"),
    ],
)
def test_a_receiver_is_one_that_can_receive(
    now: dt.datetime, fields: dict[str, Any], host: dict[str, Any], may: bool
) -> None:
    def at(values: dict[str, Any]) -> dict[str, Any]:
        return {name: now + value if isinstance(value, dt.timedelta) else value for name, value in values.items()}

    sender = ServerFactory.create(wants_warm_up=True)
    receiver = ServerFactory.create(host=HostFactory.create(**at(host)), **at(fields))
    assert paired(now, sender) == ([(sender, receiver)] if may else [])


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("ago", "state", "may"),
    [
        pytest.param(dt.timedelta(minutes=4, seconds=59), "accepted", False, id="just used"),
        pytest.param(dt.timedelta(minutes=5), "accepted", True, id="rested"),
        pytest.param(dt.timedelta(minutes=1), "not_submitted", True, id="nothing reached it"),
    ],
)
def test_a_receiver_rests_for_some_minutes(now: dt.datetime, ago: dt.timedelta, state: str, may: bool) -> None:
    sender, receiver = ServerFactory.create(wants_warm_up=True), ServerFactory.create()
    other = ServerFactory.create(wants_warm_up=True)
    ended = now if state == "not_submitted" else None
    InternalSendFactory.create(sender=other, receiver=receiver, state=state, finished_at=ended, created_at=now - ago)
    assert bool(paired(now, sender)) is may


@pytest.mark.django_db
def test_nobody_is_given_to_two(now: dt.datetime) -> None:
    senders = ServerFactory.create_batch(3, wants_warm_up=True)
    abroad = ServerFactory.create_batch(2, region="pt")
    pairs = paired(now, *senders)
    assert {receiver.pk for _, receiver in pairs} == {server.pk for server in abroad}
    assert len(pairs) == 2
