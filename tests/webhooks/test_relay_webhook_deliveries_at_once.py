"""A list of deliveries costs as many queries as a short one, and reaches every server all the same."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from otp_service.messages.models import Attempt, Message
from servers.models import RecipientLink, Server, ServerDelivery, ServerStatusHistory
from tests.routes.steps import attempt_of
from tests.webhooks.relay_poster import RelayPoster, about, event


def test_a_hundred_deliveries_take_no_more_queries_than_ten(poster: RelayPoster) -> None:
    ones = poster.in_flight(110)
    Server.objects.update(failed_in_row=1)
    for one in ones:
        to_hash = one.attempt_id.to_bytes(32, "little")
        Message.objects.filter(attempts=one.attempt_id).update(to_hash=to_hash)

    def queries(n: int) -> int:
        news = [event("delivered", **about(ones.pop()), guid=f"guid-{len(ones)}") for _ in range(n)]
        with CaptureQueriesContext(connection) as context:
            assert poster.posts(news).counts == (n, 0)
        return len(context)

    assert queries(100) <= queries(10)
    assert ServerDelivery.objects.count() == ServerStatusHistory.objects.count() == 110
    assert not Server.objects.filter(failed_in_row__gt=0).exists()


@pytest.mark.parametrize("last", ["delivered", "message_failed"])
def test_a_server_with_other_news_too_gets_it_in_the_order_of_arrival(poster: RelayPoster, last: str) -> None:
    first, second, other = poster.in_flight(3)
    server = attempt_of(first).server
    assert server is not None
    Attempt.objects.filter(pk=second.attempt_id).update(server=server)
    kinds = ["message_failed", "delivered"] if last == "delivered" else ["delivered", "message_failed"]
    poster.posts(
        [event(kind, **about(one)) for kind, one in zip(kinds, (first, second), strict=True)]
        + [event("delivered", **about(other))]
    )
    server.refresh_from_db()
    assert server.failed_in_row == (0 if last == "delivered" else 1)
    assert ServerDelivery.objects.filter(server=server).count() == 1
    assert ServerDelivery.objects.count() == 2
    assert RecipientLink.objects.count() == 1  # factories write to one number
