"""Keys live as long as is promised, and not for ever."""

from __future__ import annotations

import datetime as dt

from django.conf import settings

from otp_service.messages import idempotency
from otp_service.messages.models import IdempotencyKey, Message
from tests.messages.client_api import ClientApi

LIFE = settings.IDEMPOTENCY_KEY_LIFE


def test_key_is_removed_when_its_life_is_over(api: ClientApi, now: dt.datetime) -> None:
    api.send(key="k")
    assert idempotency.remove_old(now + LIFE) == 0
    assert idempotency.remove_old(now + LIFE + dt.timedelta(microseconds=1)) == 1
    assert not IdempotencyKey.objects.exists()
    assert Message.objects.count() == 1


def test_removes_a_batch_at_a_time_the_oldest_first(api: ClientApi, now: dt.datetime) -> None:
    for number in range(3):
        api.send(key=str(number))
    IdempotencyKey.objects.filter(key="1").update(created_at=now - dt.timedelta(days=1))
    later = now + LIFE + dt.timedelta(days=1)
    assert idempotency.remove_old(later, batch=1) == 1
    assert sorted(IdempotencyKey.objects.values_list("key", flat=True)) == ["0", "2"]
    assert [idempotency.remove_old(later, batch=5), idempotency.remove_old(later, batch=5)] == [2, 0]


def test_removed_key_is_free_again(api: ClientApi, now: dt.datetime) -> None:
    first = api.send(key="k")
    idempotency.remove_old(now + LIFE + dt.timedelta(seconds=1))
    assert api.send(key="k").content != first.content
