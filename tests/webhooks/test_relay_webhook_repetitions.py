"""A webhook may come any number of times, also at once: it has its effect once."""

from __future__ import annotations

import threading
import uuid
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from otp_service.messages.models import Attempt
from otp_service.routes.models import OrphanReceipt
from servers.models import ServerDelivery
from tests.factories import HostFactory
from tests.racing import PATIENCE, Racer
from tests.routes.steps import attempt_of, events_of, message_of
from tests.webhooks.relay_poster import Answered, RelayPoster, about, event
from webhooks.inbound.models import RawCall, RelayEvent


def test_the_same_webhook_five_times_is_as_once(poster: RelayPoster) -> None:
    (one,) = poster.in_flight()
    failed = event("message_failed", **about(one), error_code=120)
    answers = [poster.posts(failed).counts for _ in range(5)]
    assert answers == [(1, 0), *[(0, 1)] * 4]
    attempt = attempt_of(one)
    assert attempt.server is not None
    assert (attempt.state, attempt.server.failed_in_row) == ("failed", 1)
    assert (RelayEvent.objects.count(), RawCall.objects.count()) == (1, 1)


def test_the_same_news_under_another_id_is_accepted_and_changes_nothing(poster: RelayPoster) -> None:
    (one,) = poster.in_flight()
    for _ in range(3):
        delivered = event("delivered", **about(one))
        assert poster.posts(delivered).counts == (1, 0)
    assert ServerDelivery.objects.count() == 1
    assert events_of(message_of(one)) == ["message.delivered"]


def test_an_id_that_stands_twice_in_a_list_counts_once_and_the_first_one_is_meant(poster: RelayPoster) -> None:
    (one,) = poster.in_flight()
    event_id = str(uuid.uuid4())
    sent = event("message_sent", event_id=event_id, success=True, **about(one))
    delivered = event("delivered", event_id=event_id, **about(one))
    assert poster.posts([sent, delivered, sent]).counts == (1, 2)
    assert attempt_of(one).state == "sent"


def test_a_list_that_is_partly_known_brings_in_the_rest(poster: RelayPoster) -> None:
    (one,) = poster.in_flight()
    sent = event("message_sent", **about(one), success=True)
    assert poster.posts(sent).counts == (1, 0)
    assert poster.posts([sent, event("delivered", **about(one))]).counts == (1, 1)
    assert attempt_of(one).state == "delivered"


def test_an_id_is_its_hosts_own(poster: RelayPoster) -> None:
    beat = event("heartbeat")
    other = RelayPoster(HostFactory.create(), poster.client)
    assert poster.posts(beat).counts == (1, 0)
    assert other.posts(beat).counts == (1, 0)


def test_an_orphan_that_comes_again_is_kept_once(poster: RelayPoster) -> None:
    delivered = event("delivered", guid="guid-1")
    for _ in range(3):
        poster.posts(delivered)
    assert OrphanReceipt.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_five_at_once_are_as_once(at_noon: None) -> None:
    poster = RelayPoster.of_new_host(Client())
    (one,) = poster.in_flight()
    failed = event("message_failed", **about(one), error_code=120)
    start = threading.Barrier(5)

    def post() -> Answered:
        start.wait(PATIENCE)
        return RelayPoster(poster.host, Client()).posts(failed)

    counts = sorted(racer.result().counts for racer in [Racer(post) for _ in range(5)])
    assert counts == [*[(0, 1)] * 4, (1, 0)]
    server = attempt_of(one).server
    assert server is not None
    assert server.failed_in_row == 1


@pytest.mark.django_db(transaction=True)
def test_a_repetition_waits_for_the_first_and_takes_over_when_that_one_fails(at_noon: None) -> None:
    poster = RelayPoster.of_new_host(Client())
    (one,) = poster.in_flight()
    delivered = event("delivered", **about(one))
    with transaction.atomic():
        assert poster.posts(delivered).counts == (1, 0)
        again = Racer(lambda: RelayPoster(poster.host, Client()).posts(delivered))
        again.wait_until_blocked()
        transaction.set_rollback(True)
    assert again.result().counts == (1, 0)
    assert attempt_of(one).state == "delivered"


@pytest.mark.django_db(transaction=True)
def test_lists_that_share_events_in_another_order_end_in_no_deadlock(at_noon: None) -> None:
    poster = RelayPoster.of_new_host(Client())
    ones = poster.in_flight(10)
    kinds: list[tuple[str, dict[str, Any]]] = [("message_sent", {"success": True}), ("delivered", {}), ("read", {})]
    news = [event(kind, **about(one), **data) for one in ones for kind, data in kinds]
    start = threading.Barrier(4)

    def post(turn: int) -> list[tuple[int, int]]:
        start.wait(PATIENCE)
        own = RelayPoster(poster.host, Client())
        return [own.posts(news[first : first + 15][::turn]).counts for first in (0, 7, 15)[::turn]]

    racers = [Racer(partial(post, turn)) for turn in (1, -1, 1, -1)]
    counts = [count for racer in racers for count in racer.result()]
    assert sum(accepted for accepted, _ in counts) == len(news)
    assert set(Attempt.objects.values_list("state", flat=True)) == {"delivered"}
    assert ServerDelivery.objects.count() == 10
