"""Which route each claimed message takes."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult
from otp_service.messages.models import Attempt, Flow, Message
from otp_service.messages.rules import Lane
from otp_service.routes.choose import Ways
from otp_service.routes.claim import claim
from tests.draws import Lowest
from tests.factories import AttemptFactory, FlowFactory, QueuedFactory, RouteFactory, ServerFactory
from tests.routes.steps import SECOND, ways_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _simulated(settings: Any) -> None:
    settings.SIMULATED_ROUTES = True


def both_ways(**fields: object) -> Flow:
    return FlowFactory.create(channels=["imessage", "sms"], **fields)


def queued(flow: Flow, count: int = 1, **fields: object) -> list[Message]:
    return QueuedFactory.create_batch(count, flow=flow, **fields)


def taken(flow: Flow, now: dt.datetime, *, n: int = 10, **room: int) -> list[str]:
    """The routes of what a claim takes; `room` by channel, 10,000 if not given."""
    ways = ways_of([(flow.pk, n)])
    rooms = {name: dict.fromkeys(Lane, room.get(name.partition(":")[0], 10_000)) for name in ways.room}
    batch = claim([(flow.pk, n)], Ways(ways.of_flow, rooms), now=now, rng=Lowest())
    return sorted(one.route for one in batch.claimed)


def test_the_preferred_channel_comes_first(now: dt.datetime) -> None:
    RouteFactory.create(name="sms:one")
    ServerFactory.create()
    flow = both_ways()
    queued(flow)
    assert taken(flow, now) == ["imessage:es"]


def test_what_the_pool_has_no_server_for_takes_the_next_channel(now: dt.datetime) -> None:
    RouteFactory.create(name="sms:one")
    ServerFactory.create()
    flow = both_ways()
    queued(flow, 3)
    assert taken(flow, now) == ["imessage:es", "sms:one", "sms:one"]


def test_an_attempt_over_a_route_that_is_no_pool_has_no_server(now: dt.datetime) -> None:
    RouteFactory.create(name="sms:one")
    flow = both_ways()
    (message,) = queued(flow)
    assert taken(flow, now) == ["sms:one"]
    attempt = Attempt.objects.get()
    assert (attempt.message_id, attempt.route, attempt.server_id) == (message.pk, "sms:one", None)


def test_no_route_is_given_more_than_it_has_room_for(now: dt.datetime) -> None:
    RouteFactory.create(name="sms:one", priority=1)
    RouteFactory.create(name="sms:two")
    ServerFactory.create_batch(4)
    flow = both_ways()
    queued(flow, 5)
    assert taken(flow, now, imessage=2, sms=1) == ["imessage:es", "imessage:es", "sms:one", "sms:two"]
    assert Message.objects.filter(status="waiting").count() == 1


def test_each_lane_keeps_to_its_own_room(now: dt.datetime) -> None:
    RouteFactory.create(name="sms:one")
    promo, transactional = both_ways(lane="promo"), both_ways(lane="transactional")
    queued(promo, 3, lane="promo")
    queued(transactional, 3, lane="transactional")
    plan = [(transactional.pk, 3), (promo.pk, 3)]
    room = {"sms:one": {Lane.TRANSACTIONAL: 4, Lane.PROMO: 3}}
    got = claim(plan, Ways(ways_of(plan).of_flow, room), now=now, rng=Lowest()).claimed
    assert sorted(one.lane.value for one in got) == ["transactional"] * 3


def test_a_pool_without_room_holds_no_server(now: dt.datetime) -> None:
    server = ServerFactory.create()
    flow = both_ways()
    queued(flow)
    assert taken(flow, now, imessage=0) == []
    free_at = server.next_send_date
    server.refresh_from_db()
    assert server.next_send_date == free_at


def test_a_route_that_refused_a_message_is_not_asked_again(now: dt.datetime) -> None:
    RouteFactory.create(name="sms:one", priority=1)
    RouteFactory.create(name="sms:two")
    flow = both_ways()
    (message,) = queued(flow, attempts_made=1, attempts_charged=1)
    AttemptFactory.create(
        message=message,
        number=1,
        server=None,
        route="sms:one",
        state="not_submitted",
        error_class=ErrorClass.ROUTE_REJECTED.value,
        settled_at=now - SECOND,
        finished_at=now - SECOND,
    )
    assert taken(flow, now) == ["sms:two"]


def test_a_disabled_route_is_no_way(now: dt.datetime) -> None:
    RouteFactory.create(name="sms:one", enabled=False)
    flow = both_ways()
    (message,) = queued(flow)
    assert taken(flow, now) == []
    message.refresh_from_db()
    assert message.status == "waiting"


def test_a_flow_without_any_route_waits(now: dt.datetime) -> None:
    flow = FlowFactory.create(channels=["push"])
    (message,) = queued(flow)
    assert taken(flow, now) == []
    message.refresh_from_db()
    assert message.status == "waiting"
    assert message.run_after is not None
    assert message.run_after > now


def test_simulated_routes_are_no_way_unless_they_are_switched_on(now: dt.datetime, settings: Any) -> None:
    RouteFactory.create(name="sms:one")
    settings.SIMULATED_ROUTES = False
    flow = both_ways()
    queued(flow)
    assert taken(flow, now) == []


def test_the_outcome_of_an_attempt_without_a_server_is_settled(now: dt.datetime) -> None:
    from otp_service.routes.submissions import Submitted, settle

    RouteFactory.create(name="sms:one")
    flow = both_ways()
    (message,) = queued(flow)
    plan = [(flow.pk, 1)]
    (one,) = claim(plan, ways_of(plan), now=now, rng=Lowest()).claimed
    accepted = SubmitResult(Submission.ACCEPTED, provider_message_id="theirs")
    settle([Submitted(one, accepted, SECOND)], now=now, rng=Lowest())
    message.refresh_from_db()
    assert message.status == "submitted"
    assert Attempt.objects.get().provider_message_id == "theirs"
