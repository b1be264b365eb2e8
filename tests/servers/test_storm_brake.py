"""What a storm does to a server that reaches its threshold: off, in shadow, enforced."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from servers.cooldown import check_cooldown_servers
from servers.deliverability_limits import record_failed_send
from servers.models import Host, Server, ServerStatusHistory, StormBrake
from servers.rules import Event, NeedCheckPath, NoChange, StartCooldown, Status
from tests.draws import Drawn, Lowest
from tests.factories import GroupFactory, HostFactory, ServerFactory

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)
SECOND = dt.timedelta(seconds=1)


def failing(host: Host, now: dt.datetime, **fields: Any) -> Server:
    """One failure from its threshold, with a message sent a minute ago."""
    return ServerFactory.create(host=host, failed_in_row=1, last_sent_at=now - MINUTE, **fields)


def fail(server: Server, now: dt.datetime, rng: Any = None) -> Any:
    step = record_failed_send(server.pk, now=now, reason="message_failed", rng=rng or Lowest())
    server.refresh_from_db()
    return step


def sent(host: Host, count: int, at: dt.datetime, **fields: Any) -> list[Server]:
    return ServerFactory.create_batch(count, host=host, last_sent_at=at, **fields)


def hit(server: Server, at: dt.datetime, event: Event = Event.COOLDOWN_STARTED, **data: Any) -> None:
    """It reached its threshold: one of the rows that tell so."""
    data = data or ({"reason": "failed in row"} if event is Event.COOLDOWN_STARTED else {"path": "ladder"})
    ServerStatusHistory.objects.create(server=server, event=event, at=at, data=data)


def told(server: Server) -> ServerStatusHistory | None:
    return ServerStatusHistory.objects.filter(server=server, event=Event.STORM_BRAKE).first()


def storm_of_five(now: dt.datetime) -> Host:
    """A host with four that sent, one of which reached its threshold: the next one makes it 40 % of five."""
    host = HostFactory.create(number=39)
    hit(sent(host, 4, now - MINUTE)[0], now - MINUTE)
    return host


def test_in_shadow_a_storm_is_told_of_and_changes_nothing(now: dt.datetime) -> None:
    server = failing(storm_of_five(now), now, cooldown_times=2)
    fail(server, now, Drawn(840, 20))  # no draw but those of the ladder's third step
    assert (server.cooldown, server.cooldown_times) == (True, 3)
    assert server.cooldown_end_date == now + 840 * MINUTE
    row = told(server)
    assert row is not None
    assert row.data == {
        "old": {},
        "new": {},
        "scope": "host",
        "name": "39",
        "share": 0.4,
        "mode": "shadow",
        "without_brake": {"step": "cooldown", "number": 3, "drawn_from": [720, 840]},
        "with_brake": {"step": "cooldown", "number": 2, "drawn_from": [60, 120]},
    }


def test_in_shadow_the_ladder_still_ends_in_need_check(now: dt.datetime) -> None:
    server = failing(storm_of_five(now), now, cooldown_times=4)
    fail(server, now)
    assert server.status == Status.NEED_CHECK
    row = told(server)
    assert row is not None
    assert row.data["without_brake"] == {"step": "need_check", "path": "ladder"}
    assert row.data["with_brake"] == {"step": "cooldown", "number": 4, "drawn_from": [60, 120]}


@pytest.mark.parametrize("cooldown_times", [0, 2, 4], ids=["fresh", "in the ladder", "the ladder is used up"])
def test_enforced_a_short_cooldown_starts_that_is_not_counted(
    now: dt.datetime, settings: Settings, cooldown_times: int
) -> None:
    settings.STORM_BRAKE = "enforce"
    server = failing(storm_of_five(now), now, cooldown_times=cooldown_times)
    step = fail(
        server, now, Drawn(*([720, 20] if cooldown_times == 2 else [120, 20] if cooldown_times == 0 else []), 61, 25)
    )
    assert isinstance(step, StartCooldown)
    assert (server.status, server.cooldown, server.cooldown_times) == (Status.ACTIVE, True, cooldown_times)
    assert (server.cooldown_end_date, server.cooldown_warmup_at) == (now + 61 * MINUTE, now + 25 * MINUTE)
    events = ServerStatusHistory.objects.filter(server=server).order_by("id")
    assert [row.event for row in events] == [Event.SEND_FAILED, Event.STORM_BRAKE, Event.COOLDOWN_STARTED]
    started = events[2]
    assert started.data["number"] == cooldown_times
    assert started.note == f"cooldown #{cooldown_times} until 2026-09-01 13:01:00 UTC"
    assert events[1].data["mode"] == "enforce"


def test_enforced_the_groups_range_goes_before_the_first_step(now: dt.datetime, settings: Settings) -> None:
    settings.STORM_BRAKE = "enforce"
    server = failing(storm_of_five(now), now, cooldown_times=4)
    server.groups.add(GroupFactory.create(cooldown_delay_from=15, cooldown_delay_to=45))
    fail(server, now)
    assert server.cooldown_end_date == now + 15 * MINUTE


def test_a_cooldown_that_was_not_counted_ends_as_any_other(now: dt.datetime, settings: Settings) -> None:
    settings.STORM_BRAKE = "enforce"
    server = failing(storm_of_five(now), now)
    fail(server, now)
    check_cooldown_servers(now=now + 60 * MINUTE)
    server.refresh_from_db()
    assert (server.cooldown, server.cooldown_times) == (False, 0)
    assert ServerStatusHistory.objects.get(server=server, event=Event.COOLDOWN_FINISHED).data["number"] == 0


def test_off_nothing_is_asked_and_nothing_told(now: dt.datetime, settings: Settings) -> None:
    host = storm_of_five(now)
    StormBrake.objects.create(scope="host", name="39", mode="enforce", share=0.4, on_at=now)
    queries = {}
    for mode in ("off", "shadow"):
        settings.STORM_BRAKE = mode
        server = failing(host, now)
        with CaptureQueriesContext(connection) as captured:
            fail(server, now)
        queries[mode] = " ".join(query["sql"] for query in captured)
        assert (told(server) is None) == (mode == "off")
    assert "stormbrake" in queries["shadow"]
    assert "stormbrake" not in queries["off"]


def test_below_the_threshold_no_storm_is_asked_about(now: dt.datetime) -> None:
    server = ServerFactory.create(host=storm_of_five(now), last_sent_at=now)
    with CaptureQueriesContext(connection) as captured:
        assert fail(server, now) == NoChange()
    assert not [query for query in captured if "stormbrake" in query["sql"]]


def test_a_quiet_fleet_costs_two_queries_more(now: dt.datetime, settings: Settings) -> None:
    counts = []
    for mode in ("off", "enforce"):
        settings.STORM_BRAKE = mode
        server = failing(HostFactory.create(), now)
        with CaptureQueriesContext(connection) as captured:
            fail(server, now)
        counts.append(len(captured))
    assert counts[1] == counts[0] + 2


@pytest.mark.parametrize(
    ("others", "hits", "braked"),
    [
        pytest.param(3, 3, False, id="4 servers"),
        pytest.param(4, 1, True, id="5 servers, 40 %"),
        pytest.param(4, 0, False, id="5 servers, 20 %"),
        pytest.param(9, 2, True, id="10 servers, 30 %"),
        pytest.param(10, 2, False, id="11 servers, 27 %"),
    ],
)
def test_a_host_is_in_a_storm_from_five_servers_and_30_percent_on(
    now: dt.datetime, others: int, hits: int, braked: bool
) -> None:
    host = HostFactory.create()
    for server in sent(host, others, now - MINUTE)[:hits]:
        hit(server, now - MINUTE)
    server = failing(host, now)
    fail(server, now)
    assert (told(server) is not None) is braked


@pytest.mark.parametrize(
    ("others", "hits", "braked"),
    [
        pytest.param(18, 18, False, id="19 servers"),
        pytest.param(19, 5, True, id="20 servers, 30 %"),
        pytest.param(19, 4, False, id="20 servers, 25 %"),
    ],
)
def test_a_region_is_in_a_storm_from_20_servers_on(now: dt.datetime, others: int, hits: int, braked: bool) -> None:
    for number in range(others):
        server = ServerFactory.create(last_sent_at=now - MINUTE)  # each on a host of its own
        if number < hits:
            hit(server, now - MINUTE)
    server = failing(HostFactory.create(), now)
    fail(server, now)
    row = told(server)
    assert (row is not None) is braked
    if row is not None:
        assert (row.data["scope"], row.data["name"], row.data["share"]) == ("region", "es", 0.3)


@pytest.mark.parametrize(
    ("ago", "event", "data", "braked"),
    [
        pytest.param(15 * MINUTE, Event.COOLDOWN_STARTED, {}, True, id="15 min ago"),
        pytest.param(15 * MINUTE + SECOND, Event.COOLDOWN_STARTED, {}, False, id="longer ago"),
        pytest.param(
            MINUTE, Event.COOLDOWN_STARTED, {"reason": "failure rate in 24 hours"}, False, id="another reason"
        ),
        pytest.param(MINUTE, Event.NEED_CHECK, {}, True, id="the ladder used up"),
        pytest.param(MINUTE, Event.NEED_CHECK, {"path": NeedCheckPath.ADMIN.value}, False, id="a person's verdict"),
        pytest.param(MINUTE, Event.SEND_FAILED, {"reason": "failed in row"}, False, id="a failure alone"),
    ],
)
def test_only_thresholds_reached_within_the_window_count(
    now: dt.datetime, ago: dt.timedelta, event: Event, data: dict[str, Any], braked: bool
) -> None:
    host = HostFactory.create()
    hit(sent(host, 4, now - MINUTE)[0], now - ago, event, **data)
    server = failing(host, now)
    fail(server, now)
    assert (told(server) is not None) is braked


@pytest.mark.parametrize(("ago", "braked"), [(15 * MINUTE, True), (15 * MINUTE + SECOND, False)])
def test_only_servers_that_sent_within_the_window_count(now: dt.datetime, ago: dt.timedelta, braked: bool) -> None:
    host = HostFactory.create()
    hit(sent(host, 1, now - ago)[0], now - MINUTE)
    sent(host, 3, now - MINUTE)
    server = failing(host, now)
    fail(server, now)
    assert (told(server) is not None) is braked


def test_a_server_that_reached_its_threshold_twice_counts_once(now: dt.datetime) -> None:
    host = HostFactory.create()
    twice = sent(host, 9, now - MINUTE)[0]
    hit(twice, now - 2 * MINUTE)
    hit(twice, now - MINUTE)
    server = failing(host, now)
    fail(server, now)
    assert told(server) is None


@pytest.mark.parametrize(
    ("brake", "braked"),
    [
        pytest.param({"scope": "host", "name": "39"}, True, id="its host's"),
        pytest.param({"scope": "region", "name": "es"}, True, id="its region's"),
        pytest.param({"scope": "host", "name": "40"}, False, id="another host's"),
        pytest.param({"scope": "region", "name": "zp"}, False, id="another region's"),
        pytest.param({"scope": "host", "name": "39", "off": True}, False, id="let go"),
    ],
)
def test_a_brake_that_is_on_holds_whatever_the_share_is_by_now(
    now: dt.datetime, settings: Settings, brake: dict[str, Any], braked: bool
) -> None:
    settings.STORM_BRAKE = "enforce"
    off_at = now if brake.pop("off", False) else None
    StormBrake.objects.create(**brake, mode="enforce", share=0.6, on_at=now - MINUTE, off_at=off_at)
    server = failing(HostFactory.create(number=39), now)
    fail(server, now)
    assert server.cooldown_times == (0 if braked else 1)
    row = told(server)
    assert (row.data["share"] if row else None) == (0.6 if braked else None)


def test_a_failure_writes_no_row_that_others_wait_for(now: dt.datetime, settings: Settings) -> None:
    settings.STORM_BRAKE = "enforce"
    fail(failing(storm_of_five(now), now), now)
    assert not StormBrake.objects.exists()
