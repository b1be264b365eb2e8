"""What is old goes in batches, the oldest first; what somebody holds is left to the next batch."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import transaction

from otp_service.messages import idempotency
from otp_service.messages.models import IdempotencyKey
from otp_service.routes import receipts
from otp_service.routes.models import OrphanReceipt
from tests.factories import NOON, ClientFactory, HostFactory
from tests.racing import Racer
from webhooks.inbound import retention
from webhooks.inbound.models import RawCall

LONG_AGO = NOON - dt.timedelta(days=365)


def old_key(number: int) -> None:
    IdempotencyKey.objects.create(
        client=ClientFactory.create(),
        key="k",
        fingerprint=bytes(32),
        response={},
        created_at=LONG_AGO + dt.timedelta(hours=number),
    )


def old_orphan(number: int) -> None:
    at = LONG_AGO + dt.timedelta(hours=number)
    OrphanReceipt.objects.create(scope="host:1", provider_message_id="guid", receipt={}, at=at)


def old_call(number: int) -> None:
    at = LONG_AGO + dt.timedelta(hours=number)
    RawCall.objects.create(host=HostFactory.create(), received_at=at, body="[]")


CASES: list[Any] = [
    pytest.param(IdempotencyKey, old_key, idempotency.remove_old, id="idempotency keys"),
    pytest.param(OrphanReceipt, old_orphan, receipts.remove_old_orphans, id="orphan receipts"),
    pytest.param(RawCall, old_call, retention.remove_old, id="raw calls"),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("model", "make", "remove_old"), CASES)
def test_removes_a_batch_the_oldest_first(model: Any, make: Any, remove_old: Any) -> None:
    for number in (2, 0, 1):
        make(number)
    ids = list(model.objects.order_by("pk").values_list("pk", flat=True))
    assert remove_old(now=NOON, batch=2) == 2
    assert list(model.objects.values_list("pk", flat=True)) == ids[:1]
    assert [remove_old(now=NOON, batch=2), remove_old(now=NOON, batch=2)] == [1, 0]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("model", "make", "remove_old"), CASES)
def test_passes_over_what_somebody_holds(model: Any, make: Any, remove_old: Any) -> None:
    for number in range(3):
        make(number)
    with transaction.atomic():
        held = model.objects.select_for_update().order_by("pk").first()
        assert Racer(lambda: remove_old(now=NOON, batch=5)).result() == 2
    assert list(model.objects.values_list("pk", flat=True)) == [held.pk]
    assert remove_old(now=NOON, batch=5) == 1
