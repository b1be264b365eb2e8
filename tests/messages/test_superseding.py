"""A newer message with the same supersede_key cancels older ones that have not been handed over."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from otp_service.events.models import Event
from otp_service.messages.models import Message, Ready
from otp_service.messages.rules import AttemptState, MessageStatus
from tests.factories import AttemptFactory, ClientFactory, MessageFactory, QueuedFactory
from tests.messages.client_api import LEAST, ClientApi, body

pytestmark = pytest.mark.django_db
NEW = {**LEAST, "lane": "otp", "supersede_key": "login"}
BATCH = "/api/v1/messages/batch/"


@pytest.fixture(autouse=True)
def batches_at_noon(now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otp_service.messages.batch_api.utc_now", lambda: now)


def statuses() -> list[str]:
    return list(Message.objects.order_by("id").values_list("status", flat=True))


def in_the_queue() -> set[int]:
    return set(Ready.objects.values_list("message_id", flat=True))


def test_older_message_is_cancelled_and_its_client_is_told(api: ClientApi, now: dt.datetime) -> None:
    first = body(api.send({**NEW, "reference": "first"}))
    second = body(api.send(NEW))
    older, newer = Message.objects.order_by("id")
    assert (str(older.uuid), str(newer.uuid)) == (first["id"], second["id"])
    assert (older.status, older.final_reason, older.finished_at) == ("cancelled", "superseded", now)
    assert (newer.status, in_the_queue()) == ("queued", {newer.pk})
    event = Event.objects.values("type", "at", "client_id", "subject_uuid", "data").get()
    assert event == {
        "type": "message.cancelled",
        "at": now,
        "client_id": api.client.pk,
        "subject_uuid": older.uuid,
        "data": {
            "status": "cancelled",
            "lane": "otp",
            "reference": "first",
            "reason": "superseded",
            "error_code": None,
        },
    }


def test_waiting_message_does_not_come_back(api: ClientApi, now: dt.datetime) -> None:
    MessageFactory.create(
        flow__client=api.client, supersede_key="login", status=MessageStatus.WAITING, run_after=now, attempts_made=1
    )
    api.send(NEW)
    assert Message.objects.values_list("status", "run_after").order_by("id")[0] == ("cancelled", None)


@pytest.mark.parametrize("other", ["key", "case", "client", "no key"])
def test_others_stay(api: ClientApi, now: dt.datetime, other: str) -> None:
    poster = ClientApi(ClientFactory.create(), now=now) if other == "client" else api
    keys = {"key": "log-in", "case": "Login", "client": "login", "no key": None}
    poster.send(NEW | {"supersede_key": keys[other]} if keys[other] else {**LEAST, "lane": "otp"})
    api.send(NEW)
    assert statuses() == ["queued", "queued"]
    assert not Event.objects.exists()


def test_messages_without_a_key_take_no_place(api: ClientApi) -> None:
    api.send()
    api.send()
    assert statuses() == ["queued", "queued"]


@pytest.mark.parametrize(
    ("status", "more"),
    [
        (MessageStatus.SENDING, {}),
        (MessageStatus.SUBMITTED, {}),
        (MessageStatus.DELIVERED, {"finished_at": 0}),
        (MessageStatus.FAILED, {"finished_at": 0, "final_reason": "no_route"}),
        (MessageStatus.CANCELLED, {"finished_at": 0, "final_reason": "cancelled"}),
    ],
)
def test_what_was_handed_over_or_has_ended_stays_as_it_is(
    api: ClientApi, now: dt.datetime, status: MessageStatus, more: dict[str, Any]
) -> None:
    given = {name: value or now for name, value in more.items()}
    message = MessageFactory.create(flow__client=api.client, supersede_key="login", status=status, **given)
    before = (message.status, message.finished_at, message.final_reason)
    api.send(NEW)
    message.refresh_from_db()
    assert (message.status, message.finished_at, message.final_reason) == before
    assert not Event.objects.exists()


def test_no_extra_copy_leaves_of_what_was_handed_over(api: ClientApi) -> None:
    message = QueuedFactory.create(
        flow__client=api.client, supersede_key="login", status=MessageStatus.SUBMITTED, attempts_made=1, copies_left=1
    )
    AttemptFactory.create(message=message, state=AttemptState.UNKNOWN)
    assert in_the_queue() == {message.pk}
    api.send(NEW)
    message.refresh_from_db()
    assert (message.status, message.withdrawn) == ("submitted", "superseded")
    assert in_the_queue() == {Message.objects.latest("id").pk}


def test_many_older_ones_go_at_once(api: ClientApi) -> None:
    QueuedFactory.create_batch(3, flow__client=api.client, supersede_key="login")
    api.send(NEW)
    assert statuses() == ["cancelled"] * 3 + ["queued"]
    assert Event.objects.count() == 3


def test_repeated_request_supersedes_nothing(api: ClientApi) -> None:
    api.send(NEW, key="k")
    api.send(NEW)
    assert api.send(NEW, key="k")["Idempotent-Replayed"] == "true"
    assert statuses() == ["cancelled", "queued"]


def test_first_message_of_its_kind_supersedes_too(api: ClientApi) -> None:
    api.send(NEW)
    api.send({**NEW, "lane": "promo"}, key="k")
    assert statuses() == ["cancelled", "queued"]


@pytest.mark.parametrize("key", ["", "k"])
def test_costs_one_statement_more_than_a_plain_message(api: ClientApi, key: str) -> None:
    api.send(NEW)
    api.call("POST", f"/api/v1/messages/{Message.objects.get().uuid}/cancel/")
    with CaptureQueriesContext(connection) as captured:
        api.send(NEW, key=key)
    statements = [query["sql"] for query in captured if not query["sql"].startswith(("SAVEPOINT", "RELEASE"))]
    assert len(statements) == 3, statements  # who calls; the message with all that belongs to it; older ones


# --- many in one request -----------------------------------------------------------------------------------


def send(api: ClientApi, items: list[dict[str, Any]]) -> list[str]:
    answer = api.call("POST", BATCH, json.dumps({"messages": items}))
    return [row["result"] for row in body(answer)["results"]]


def test_later_item_of_a_batch_wins(api: ClientApi) -> None:
    other = {**NEW, "supersede_key": "other"}
    items = [NEW, other, {**NEW, "lane": "promo"}, LEAST, NEW, other]
    named = [{**item, "reference": str(place)} for place, item in enumerate(items)]
    assert send(api, named) == ["accepted"] * 6
    left = Message.objects.filter(status="queued")
    assert set(left.values_list("reference", flat=True)) == {"3", "4", "5"}
    assert in_the_queue() == set(left.values_list("id", flat=True))


def test_item_of_a_batch_cancels_what_was_there_before(api: ClientApi) -> None:
    api.send(NEW)
    api.send({**NEW, "supersede_key": "other"})
    send(api, [NEW])
    assert statuses() == ["cancelled", "queued", "queued"]


def test_repeated_item_supersedes_nothing(api: ClientApi) -> None:
    item = {**NEW, "idempotency_key": "k"}
    send(api, [item])
    api.send(NEW)
    assert send(api, [item]) == ["replayed"]
    assert statuses() == ["cancelled", "queued"]
