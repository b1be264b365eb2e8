"""Reserving: which servers may be taken, in what order, and until when they rest then."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from otp_service.web.fields import recipient_hash
from servers import selection
from servers.models import Server
from servers.rules import Status
from servers.selection import SendRequest
from tests.factories import GroupFactory, HostFactory, RecipientLinkFactory, ServerFactory

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)
SECOND = dt.timedelta(seconds=1)
NUMBER = "+34600000000"
NOON = dt.datetime(2026, 9, 1, 12, 0, 0, tzinfo=dt.UTC)


def request(key: int = 1, *, to: str = NUMBER, pools: tuple[str, ...] = ("es",), **exclusions: Any) -> SendRequest:
    return SendRequest(key=key, pools=pools, recipient_hash=recipient_hash(to), recipient=to, **exclusions)


def reserved(requests: Sequence[SendRequest], now: dt.datetime) -> dict[Any, int]:
    """The ids of the servers that messages got."""
    got = selection.reserve(requests, now=now, rng=random.Random(1))
    return {key: reservation.server_id for key, reservation in got.items()}


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        pytest.param({}, True, id="active"),
        *(pytest.param({"status": s}, False, id=s.value) for s in Status if s is not Status.ACTIVE),
        pytest.param({"in_cooldown": True}, False, id="in cooldown"),
        pytest.param({"signed_in": False}, False, id="signed out"),
        pytest.param({"region": "zp"}, False, id="another region"),
        pytest.param({"handle": NUMBER}, False, id="the recipient itself"),
        pytest.param({"next_send_date": NOON}, True, id="free now"),
        pytest.param({"next_send_date": NOON + SECOND}, False, id="resting"),
        pytest.param({"host__enabled": False}, False, id="host switched off"),
        pytest.param({"host__last_seen_at": NOON - 90 * SECOND}, True, id="host seen 90 s ago"),
        pytest.param({"host__last_seen_at": NOON - 91 * SECOND}, False, id="host offline"),
        pytest.param({"host__last_seen_at": None}, False, id="host never seen"),
    ],
)
def test_only_a_server_that_may_send_is_reserved(now: dt.datetime, fields: dict[str, Any], may: bool) -> None:
    server = ServerFactory.create(**fields)
    assert reserved([request()], now) == ({1: server.pk} if may else {})


def test_a_reservation_says_where_the_message_goes(now: dt.datetime) -> None:
    server = ServerFactory.create()
    got = selection.reserve([request()], now=now, rng=random.Random(1))[1]
    assert (got.server_id, got.unit) == (server.pk, server.unit)
    assert (got.host_id, got.region) == (server.host_id, "es")


def test_a_reserved_server_rests_for_the_default_interval(now: dt.datetime) -> None:
    servers = ServerFactory.create_batch(30)
    reserved([request(key) for key in range(30)], now)
    ends = [Server.objects.get(pk=server.pk).next_send_date - now for server in servers]
    assert 8 * MINUTE <= min(ends) < max(ends) <= 12 * MINUTE
    assert len(set(Server.objects.values_list("tie", flat=True))) == 30


@pytest.mark.parametrize(
    ("group", "shortest", "longest"),
    [
        pytest.param({"send_from_message_interval": 2, "send_to_message_interval": 3}, 2, 3, id="the group's"),
        pytest.param({"send_from_message_interval": 0, "send_to_message_interval": 3}, 8, 12, id="half set"),
        pytest.param(
            {"send_from_message_interval": 2, "send_to_message_interval": 3, "to_time": dt.time(11, 59, 59)},
            8,
            12,
            id="not in force now",
        ),
    ],
)
def test_a_reserved_server_rests_as_its_group_in_force_says(
    now: dt.datetime, group: dict[str, Any], shortest: int, longest: int
) -> None:
    server = ServerFactory.create()
    server.groups.add(GroupFactory.create(**group))
    reserved([request()], now)
    server.refresh_from_db()
    assert shortest * MINUTE <= server.next_send_date - now <= longest * MINUTE


def test_a_server_is_not_reserved_again_before_it_has_rested(now: dt.datetime) -> None:
    server = ServerFactory.create(host__last_seen_at=now + 12 * MINUTE)
    assert reserved([request()], now) == {1: server.pk}
    assert reserved([request()], now) == {}
    assert reserved([request()], now + 12 * MINUTE) == {1: server.pk}


def test_the_least_recently_used_goes_first_and_the_tie_decides_between_equals(now: dt.datetime) -> None:
    later = ServerFactory.create(next_send_date=now - MINUTE)
    second = ServerFactory.create(next_send_date=now - 2 * MINUTE, tie=0.9)
    first = ServerFactory.create(next_send_date=now - 2 * MINUTE, tie=0.1)
    assert reserved([request(1), request(2), request(3)], now) == {1: first.pk, 2: second.pk, 3: later.pk}


@pytest.mark.parametrize(
    ("link", "asked"),
    [
        pytest.param({}, True, id="delivered an hour ago"),
        pytest.param({"delivered_at": NOON - dt.timedelta(days=30)}, True, id="30 days ago"),
        pytest.param({"delivered_at": NOON - dt.timedelta(days=30, seconds=1)}, False, id="longer ago"),
        pytest.param({"number": "+34611111111"}, False, id="to somebody else"),
    ],
)
def test_the_server_that_delivered_to_the_recipient_before_goes_first(
    now: dt.datetime, link: dict[str, Any], asked: bool
) -> None:
    longest_unused = ServerFactory.create(next_send_date=now - 60 * MINUTE)
    sticky = ServerFactory.create(next_send_date=now - MINUTE)
    RecipientLinkFactory.create(server=sticky, **link)
    assert reserved([request()], now) == {1: (sticky if asked else longest_unused).pk}


def test_a_sticky_server_that_rests_is_not_waited_for(now: dt.datetime) -> None:
    RecipientLinkFactory.create(server=ServerFactory.create(next_send_date=now + MINUTE))
    other = ServerFactory.create()
    assert reserved([request()], now) == {1: other.pk}


def test_a_second_try_goes_to_another_server_on_another_host(now: dt.datetime) -> None:
    tried = ServerFactory.create(next_send_date=now - 60 * MINUTE)
    ServerFactory.create(host=tried.host, next_send_date=now - 60 * MINUTE)
    other_host = ServerFactory.create(next_send_date=now - MINUTE)
    again = request(excluded_servers=frozenset({tried.pk}), excluded_hosts=frozenset({tried.host_id}))
    assert reserved([again], now) == {1: other_host.pk}


def test_a_second_try_finds_another_host_behind_any_number_of_servers_of_the_first(now: dt.datetime) -> None:
    host = HostFactory.create()
    servers = ServerFactory.create_batch(3 * selection.SPARE, host=host, next_send_date=now - 60 * MINUTE)
    other_host = ServerFactory.create(next_send_date=now - MINUTE)
    again = request(1, excluded_servers=frozenset({servers[0].pk}), excluded_hosts=frozenset({host.pk}))
    first_tries = [request(key) for key in range(2, 12)]
    assert reserved([*first_tries, again], now)[1] == other_host.pk


def test_a_second_try_stays_on_the_host_when_no_other_is_free(now: dt.datetime) -> None:
    tried = ServerFactory.create()
    same_host = ServerFactory.create(host=tried.host)
    again = request(excluded_servers=frozenset({tried.pk}), excluded_hosts=frozenset({tried.host_id}))
    assert reserved([again], now) == {1: same_host.pk}


def test_a_server_that_was_tried_is_not_tried_again(now: dt.datetime) -> None:
    tried = ServerFactory.create()
    again = request(excluded_servers=frozenset({tried.pk}), excluded_hosts=frozenset({tried.host_id}))
    assert reserved([again], now) == {}


def test_the_next_pool_is_used_when_the_preferred_one_is_used_up(now: dt.datetime) -> None:
    es, zp = ServerFactory.create(), ServerFactory.create(region="zp")
    requests = [request(key, pools=("es", "zp")) for key in (1, 2, 3)]
    assert reserved(requests, now) == {1: es.pk, 2: zp.pk}


def test_messages_of_several_pools_are_served_together(now: dt.datetime) -> None:
    zp = ServerFactory.create_batch(3, region="zp")
    es = ServerFactory.create_batch(12)
    requests = [request(1, pools=("zp",)), *(request(key, pools=("es", "zp")) for key in range(2, 16))]
    got = reserved(requests, now)
    assert len(got) == 15
    assert got[1] in {server.pk for server in zp}
    assert set(got.values()) == {server.pk for server in (*zp, *es)}


def test_a_second_choice_is_found_behind_what_others_took_as_their_first(now: dt.datetime) -> None:
    taken = selection.SPARE + 2
    ServerFactory.create_batch(taken + 1, region="zp")
    requests = [*(request(key, pools=("zp",)) for key in range(taken)), request(99, pools=("es", "zp"))]
    assert 99 in reserved(requests, now)


def test_an_earlier_message_is_served_before_a_later_one(now: dt.datetime) -> None:
    ServerFactory.create_batch(2)
    assert set(reserved([request(7), request(3), request(5)], now)) == {7, 3}


def test_nothing_asked_nothing_reserved(now: dt.datetime) -> None:
    ServerFactory.create()
    assert reserved([], now) == {}


@pytest.mark.parametrize("messages", [1, 40])
def test_the_number_of_queries_does_not_follow_the_number_of_messages(now: dt.datetime, messages: int) -> None:
    server = ServerFactory.create(region="zp")
    RecipientLinkFactory.create(server=server)
    ServerFactory.create_batch(20)
    requests = [
        request(key, pools=("es", "zp"), excluded_hosts=frozenset({server.host_id} if key % 2 else ()))
        for key in range(1, messages + 1)
    ]
    with CaptureQueriesContext(
        connection,
    ) as captured:
        reserved(requests, now)
    # Hosts, links, sticky servers, two pools twice, their second choice, groups, the update.
    assert len(captured) <= 10


def test_a_request_shows_no_recipient() -> None:
    assert NUMBER not in repr(request())
