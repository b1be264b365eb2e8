"""A key that another transaction holds: wait for it, but not for long."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
from django.db import connection, transaction
from django.http import HttpResponse

from otp_service.messages import idempotency, intake
from otp_service.messages.models import IdempotencyKey, Message
from otp_service.messages.plan import NewMessage
from tests.factories import FlowFactory
from tests.messages.client_api import ClientApi, body, code
from tests.racing import Racer

REQUEST = NewMessage(to="+34600000000", text="Your code is 123456")


@pytest.fixture
def holder(transactional_db: None, api: ClientApi, now: dt.datetime) -> Iterator[None]:
    """An open transaction in which the key `k` was used, for a request like `api.send()`."""
    FlowFactory.create(client=api.client, lane="transactional", pools=["es", "zp", "vj"])
    with transaction.atomic():
        intake.accept(api.client.pk, REQUEST, now=now, idempotency_key="k")
        yield


@pytest.mark.usefixtures("holder")
def test_key_that_is_held_for_too_long_is_a_conflict(api: ClientApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "KEY_WAIT", dt.timedelta(milliseconds=20))
    answer = Racer(lambda: api.send(key="k")).result()
    assert (answer.status_code, code(answer), answer["Retry-After"]) == (409, "idempotency_key_in_progress", "1")


@pytest.mark.django_db(transaction=True)
def test_patience_ends_with_the_request(api: ClientApi) -> None:
    assert api.send(key="k").status_code == 202
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)


def test_second_request_waits_and_replays(transactional_db: None, api: ClientApi, now: dt.datetime) -> None:
    with transaction.atomic():
        first = intake.accept(api.client.pk, REQUEST, now=now, idempotency_key="k")
        second: Racer[HttpResponse] = Racer(lambda: api.send(key="k"))
        second.wait_until_blocked()
    answer = second.result()
    assert (answer.status_code, answer["Idempotent-Replayed"]) == (202, "true")
    assert body(answer)["id"] == first.response["id"]
    assert Message.objects.count() == 1


def test_second_request_is_the_first_if_the_first_is_undone(
    transactional_db: None, api: ClientApi, now: dt.datetime
) -> None:
    FlowFactory.create(client=api.client, lane="transactional", pools=["es", "zp", "vj"])
    with transaction.atomic():
        intake.accept(api.client.pk, REQUEST, now=now, idempotency_key="k")
        second: Racer[HttpResponse] = Racer(lambda: api.send(key="k"))
        second.wait_until_blocked()
        transaction.set_rollback(True)
    answer = second.result()
    assert answer.status_code == 202
    assert not answer.has_header("Idempotent-Replayed")
    assert Message.objects.count() == IdempotencyKey.objects.count() == 1


def test_two_first_messages_of_a_kind_make_one_flow(transactional_db: None, api: ClientApi, now: dt.datetime) -> None:
    with transaction.atomic():
        intake.accept(api.client.pk, REQUEST, now=now)
        second: Racer[HttpResponse] = Racer(api.send)
        second.wait_until_blocked()
    assert second.result().status_code == 202
    assert len(set(Message.objects.values_list("flow_id", flat=True))) == 1
    assert Message.objects.count() == 2
