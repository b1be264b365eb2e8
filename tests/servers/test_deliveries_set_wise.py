"""Many deliveries at once end as one after the other would, and cost as many queries as one."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from pytest_django import DjangoAssertNumQueries, Settings

from servers.deliverability_limits import Delivery, record_deliveries, record_delivery
from servers.models import RecipientLink, Server, ServerDelivery, ServerStatusHistory
from servers.rules import Status
from tests.draws import Lowest
from tests.factories import RecipientLinkFactory, ServerDeliveryFactory, ServerFactory
from tests.racing import Racer

HOUR = dt.timedelta(hours=1)
RECIPIENTS = [bytes([number]) * 32 for number in range(6)]

#: A server as its news may find it.
FLEET: tuple[dict[str, Any], ...] = (
    {},
    {"failed_in_row": 1},
    {"failed_in_row": 1, "status": Status.NEED_CHECK},
    {"in_cooldown": True},
    {"cooldown_times": 3},
    {"cooldown_times": 2, "failed_in_row": 1},
)


def fleet(now: dt.datetime) -> list[Server]:
    """Two servers of each kind; those on the ladder are one or two deliveries away from its reset."""
    servers = [ServerFactory.create(**fields) for fields in FLEET * 2]
    for server in servers:
        ServerDeliveryFactory.create_batch(9, server=server, at=now - HOUR)
    RecipientLinkFactory.create(recipient_hash=RECIPIENTS[0], server=servers[0])
    RecipientLinkFactory.create(recipient_hash=RECIPIENTS[1], server=servers[1], delivered_at=now + HOUR)
    return servers


def written() -> dict[str, Any]:
    """What deliveries may write, apart from the numbers of rows."""
    return {
        "servers": list(Server.objects.order_by("id").values()),
        "history": list(
            ServerStatusHistory.objects.order_by("server", "id").values("server", "event", "at", "note", "data")
        ),
        "deliveries": list(ServerDelivery.objects.order_by("server", "at").values("server", "at")),
        "links": list(RecipientLink.objects.order_by("recipient_hash").values()),
    }


def outcome(work: Callable[[], None]) -> dict[str, Any]:
    """What stands after `work`, which is undone."""
    with transaction.atomic():
        work()
        found = written()
        transaction.set_rollback(True)
    return found


def one_after_the_other(deliveries: list[Delivery], now: dt.datetime) -> None:
    for delivery in sorted(deliveries, key=lambda delivery: delivery.server_id):
        record_delivery(delivery.server_id, now=now, recipient_hash=delivery.recipient_hash, rng=Lowest())


@pytest.mark.django_db
@pytest.mark.parametrize("limits", [{}, {"MESSAGES_LIMIT_24_HOURS": 11}], ids=["no limit", "a limit for the day"])
@pytest.mark.parametrize("rule", ["calendar_window", "either"])
@pytest.mark.parametrize("seed", range(3))
def test_they_end_as_one_after_the_other(
    now: dt.datetime, settings: Settings, seed: int, rule: str, limits: dict[str, int]
) -> None:
    for name, value in {"RESET_RULE": rule, **limits}.items():
        setattr(settings, name, value)
    rng = random.Random(seed)
    servers = fleet(now)
    deliveries = [Delivery(rng.choice(servers).pk, rng.choice([None, *RECIPIENTS])) for _ in range(rng.randint(1, 30))]
    at_once = outcome(lambda: record_deliveries(deliveries, now=now, rng=Lowest()))
    assert at_once == outcome(lambda: one_after_the_other(deliveries, now))
    assert len(at_once["deliveries"]) == 9 * len(servers) + len(deliveries)


@pytest.mark.django_db
def test_a_recipient_of_two_servers_stays_with_the_second(now: dt.datetime) -> None:
    first, second = ServerFactory.create_batch(2)
    RecipientLinkFactory.create(recipient_hash=RECIPIENTS[0], server=second)
    twice = [Delivery(server.pk, RECIPIENTS[0]) for server in (second, first)]
    record_deliveries(twice, now=now)
    link = RecipientLink.objects.get()
    assert (link.server_id, link.first_at, link.delivered_at) == (second.pk, now, now)


@pytest.mark.django_db
def test_a_hundred_servers_cost_as_much_as_one(
    now: dt.datetime, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    servers = ServerFactory.create_batch(100, failed_in_row=1)
    deliveries = [Delivery(server.pk, server.pk.to_bytes(32, "big")[::-1]) for server in servers]
    with django_assert_max_num_queries(5):
        record_deliveries(deliveries, now=now)
    assert not Server.objects.filter(failed_in_row__gt=0).exists()
    assert (ServerDelivery.objects.count(), RecipientLink.objects.count()) == (100, 100)
    assert ServerStatusHistory.objects.count() == 100


@pytest.mark.django_db(transaction=True)
def test_they_are_locked_by_ascending_id(now: dt.datetime) -> None:
    low, high = ServerFactory.create_batch(2)
    with transaction.atomic():
        Server.objects.select_for_update(no_key=True).get(pk=low.pk)
        racer = Racer(lambda: record_deliveries([Delivery(high.pk), Delivery(low.pk)], now=now))
        racer.wait_until_blocked()
        Server.objects.select_for_update(no_key=True, nowait=True).get(pk=high.pk)
    racer.result()
    assert ServerDelivery.objects.count() == 2
