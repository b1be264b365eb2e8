"""What the fleet leaves behind is kept for a while, and then forgotten."""

from __future__ import annotations

import datetime as dt

import pytest

from servers.models import InternalSend, RecipientLink, ServerDelivery
from servers.retention import remove_old
from tests.factories import InternalSendFactory, RecipientLinkFactory, ServerDeliveryFactory

pytestmark = pytest.mark.django_db
DAY, SECOND = dt.timedelta(days=1), dt.timedelta(seconds=1)


def test_what_is_too_old_to_count_is_removed_and_the_rest_stays(now: dt.datetime) -> None:
    for age in (40 * DAY, 40 * DAY + SECOND):
        ServerDeliveryFactory.create(at=now - age)
        InternalSendFactory.create(created_at=now - age)
    for number, age in enumerate((30 * DAY, 30 * DAY + SECOND)):
        RecipientLinkFactory.create(number=f"+3460000000{number}", first_at=now - age, delivered_at=now - age)
    assert remove_old(now=now) == 3
    assert remove_old(now=now) == 0
    assert [kind.objects.count() for kind in (ServerDelivery, InternalSend, RecipientLink)] == [1, 1, 1]


def test_a_batch_is_bounded(now: dt.datetime) -> None:
    for _ in range(3):
        ServerDeliveryFactory.create(at=now - 41 * DAY)
    assert [remove_old(now=now, batch=2), remove_old(now=now, batch=2), remove_old(now=now, batch=2)] == [2, 1, 0]
