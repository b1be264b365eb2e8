"""What has not been handed over is not sent."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import transaction
from django.http import HttpResponse

from otp_service.events.models import Event
from otp_service.messages import queue
from otp_service.messages.models import Message, Ready
from otp_service.messages.rules import AttemptState, MessageStatus
from tests.factories import AttemptFactory, MessageFactory
from tests.messages.client_api import MESSAGES, ClientApi, body, code
from tests.racing import Racer


def cancel(api: ClientApi, message: Message) -> HttpResponse:
    return api.call("POST", f"{MESSAGES}{message.uuid}/cancel/")


def queued(api: ClientApi, **more: Any) -> Message:
    message = MessageFactory.create(flow__client=api.client, **more)
    queue.add([queue.ReadyRow(message.pk, message.flow_id, message.expires_at)])
    return message


def test_queued_message_leaves_the_queue(api: ClientApi, now: dt.datetime) -> None:
    message, other = queued(api, reference="r"), queued(api)
    answer = cancel(api, message)
    assert answer.status_code == 200
    assert {name: body(answer)[name] for name in ("id", "status", "reason", "finished_at")} == {
        "id": str(message.uuid),
        "status": "cancelled",
        "reason": "cancelled",
        "finished_at": "2026-09-01T12:00:00Z",
    }
    assert list(Ready.objects.values_list("message_id", flat=True)) == [other.pk]
    other.refresh_from_db()
    assert other.status == "queued"


def test_waiting_message_does_not_come_back(api: ClientApi, now: dt.datetime) -> None:
    message = MessageFactory.create(flow__client=api.client, status=MessageStatus.WAITING, run_after=now)
    assert body(cancel(api, message))["status"] == "cancelled"
    message.refresh_from_db()
    assert message.run_after is None


def test_client_is_told_once_without_text_or_number(api: ClientApi, now: dt.datetime) -> None:
    message = queued(api, reference="r")
    assert cancel(api, message).content == cancel(api, message).content
    event = Event.objects.values("type", "at", "client_id", "subject_uuid", "data").get()
    assert event == {
        "type": "message.cancelled",
        "at": now,
        "client_id": api.client.pk,
        "subject_uuid": message.uuid,
        "data": {"status": "cancelled", "lane": "otp", "reference": "r", "reason": "cancelled", "error_code": None},
    }


@pytest.mark.parametrize(
    ("status", "more"),
    [
        (MessageStatus.SENDING, {}),
        (MessageStatus.SUBMITTED, {}),
        (MessageStatus.DELIVERED, {"finished_at": 0}),
        (MessageStatus.FAILED, {"finished_at": 0, "final_reason": "attempts_exhausted"}),
        (MessageStatus.EXPIRED, {"finished_at": 0, "final_reason": "expired_unsent"}),
    ],
)
def test_what_was_handed_over_or_has_ended_stays_as_it_is(
    api: ClientApi, now: dt.datetime, status: MessageStatus, more: dict[str, Any]
) -> None:
    message = MessageFactory.create(
        flow__client=api.client, status=status, **{name: value or now for name, value in more.items()}
    )
    answer = cancel(api, message)
    assert (answer.status_code, code(answer)) == (409, "not_cancellable")
    assert body(answer)["message_status"] == status
    message.refresh_from_db()
    assert message.status == status
    assert not Event.objects.exists()


def test_no_extra_copy_leaves_of_what_was_handed_over(api: ClientApi) -> None:
    message = queued(api, status=MessageStatus.SUBMITTED, attempts_made=1, copies_left=1)
    AttemptFactory.create(message=message, state=AttemptState.UNKNOWN)
    assert code(cancel(api, message)) == "not_cancellable"
    message.refresh_from_db()
    assert (message.status, message.withdrawn) == ("submitted", "cancelled")
    assert not Ready.objects.exists()


def test_waits_for_a_claim_and_then_finds_it_handed_over(transactional_db: None, api: ClientApi) -> None:
    message = queued(api)
    with transaction.atomic():
        Message.objects.select_for_update(no_key=True).get(pk=message.pk)
        racer: Racer[HttpResponse] = Racer(lambda: cancel(api, message))
        racer.wait_until_blocked()
        queue.remove([message.pk])
        Message.objects.filter(pk=message.pk).update(status=MessageStatus.SENDING, attempts_made=1)
    assert code(racer.result()) == "not_cancellable"
    assert not Event.objects.exists()


def test_waits_for_a_claim_that_holds_only_its_queue_row(transactional_db: None, api: ClientApi) -> None:
    message = queued(api)
    with transaction.atomic():
        Ready.objects.select_for_update().get(pk=message.pk)
        racer: Racer[HttpResponse] = Racer(lambda: cancel(api, message))
        racer.wait_until_blocked()
        taken = Message.objects.select_for_update(no_key=True, skip_locked=True).filter(pk=message.pk)
        assert not taken.exists()
    assert racer.result().status_code == 200
    assert not Ready.objects.exists()


def test_body_is_not_asked_for(api: ClientApi) -> None:
    answer = api.call("POST", f"{MESSAGES}{queued(api).uuid}/cancel/", "anything", content_type="text/plain")
    assert answer.status_code == 200
