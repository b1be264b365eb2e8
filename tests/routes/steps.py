"""Steps of a message's way that the tests of routes share."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence

from django.db import transaction
from django.db.models import QuerySet

from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult
from otp_service.events.models import Event
from otp_service.messages.models import Attempt, Flow, Message, Ready
from otp_service.messages.rules import Lane
from otp_service.routes import claim as claiming
from otp_service.routes import route_rules, table
from otp_service.routes.choose import Ways
from otp_service.routes.claim import Claimed
from otp_service.routes.submissions import Submitted, settle
from servers.relay.base import HostAddress
from tests.draws import Lowest
from tests.factories import NOON, FlowFactory, QueuedFactory, ServerFactory

ACCEPTED = SubmitResult(Submission.ACCEPTED)
UNKNOWN = SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT)
THROTTLED = SubmitResult(Submission.REFUSED, error_class=ErrorClass.THROTTLED, error_code=140)
NOT_CONNECTED = SubmitResult(Submission.NOT_CONNECTED, error_class=ErrorClass.CONNECTION_REFUSED)
SIGNED_OUT = SubmitResult(Submission.REFUSED, error_class=ErrorClass.SENDER_FAULT, error_code=130)

MINUTE = dt.timedelta(minutes=1)
SECOND = dt.timedelta(seconds=1)


def ways_of(plan: Sequence[tuple[int, int]], *, room: int = 10_000) -> Ways:
    """The routes of the planned flows, with so much room on each."""
    specs = table.load()
    flows = Flow.objects.filter(pk__in=[flow for flow, _ in plan])
    names = {
        flow.pk: route_rules.possible(specs.values(), channels=flow.channels, pools=flow.pools, lane=Lane(flow.lane))
        for flow in flows
    }
    return Ways(
        {flow: tuple(specs[name] for name in each) for flow, each in names.items()},
        {name: dict.fromkeys(Lane, room) for name in specs},
    )


def claim(plan: Sequence[tuple[int, int]], *, now: dt.datetime, rng: random.Random | None = None) -> Sequence[Claimed]:
    """What a claim by this plan takes, where no route is short of room."""
    return claiming.claim(plan, ways_of(plan), now=now, rng=rng or random.Random(1)).claimed


def host_of(one: Claimed) -> HostAddress:
    """The host that carries it."""
    assert one.host is not None
    return one.host


def claimed(*flows: Flow, n: int = 1, now: dt.datetime = NOON, rng: random.Random | None = None) -> list[Claimed]:
    """What a claim of `n` messages from each flow takes, by ascending attempt id."""
    got = claim([(flow.pk, n) for flow in flows], now=now, rng=rng or Lowest())
    return sorted(got, key=lambda one: one.attempt_id)


def in_flight(n: int = 1, *, lane: str = "otp", now: dt.datetime = NOON, **fields: object) -> list[Claimed]:
    """So many messages of one flow that have just been claimed, each by a server on a host of its own."""
    flow = FlowFactory.create(lane=lane)
    for _ in range(n):
        ServerFactory.create()
        QueuedFactory.create(flow=flow, **fields)
    got = claimed(flow, n=n, now=now)
    assert len(got) == n
    return got


def settled(one: Claimed, result: SubmitResult, *, now: dt.datetime = NOON) -> None:
    """Its call ended so."""
    settle([Submitted(one, result, dt.timedelta(milliseconds=150))], now=now, rng=Lowest())


def attempt_of(one: Claimed) -> Attempt:
    return Attempt.objects.select_related("message", "server").get(pk=one.attempt_id)


def message_of(one: Claimed) -> Message:
    return attempt_of(one).message


def events_of(message: Message) -> list[str]:
    """The types of its events, oldest first."""
    return list(Event.objects.filter(subject_uuid=message.uuid).order_by("id").values_list("type", flat=True))


def is_ready(message: Message) -> bool:
    return Ready.objects.filter(pk=message.pk).exists()


def held(rows: QuerySet[Flow] | QuerySet[Message] | QuerySet[Ready]) -> None:
    """Lock rows as somebody who is about to change them does; until the end of the running transaction."""
    assert transaction.get_connection().in_atomic_block
    assert len(rows.select_for_update(no_key=True))
