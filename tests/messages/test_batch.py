"""Many messages in one request: each is answered for itself, and none is stored twice."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection, transaction
from django.http import HttpResponse
from django.test.utils import CaptureQueriesContext

from otp_service.messages import batch, idempotency
from otp_service.messages.batch import Item
from otp_service.messages.intake import Accepted
from otp_service.messages.models import Flow, IdempotencyKey, Message, Ready
from otp_service.messages.plan import NewMessage
from tests.factories import ClientFactory, FlowFactory
from tests.messages.client_api import ClientApi, body, code, fields
from tests.racing import Racer

BATCH = "/api/v1/messages/batch/"
ONE = {"to": "+34600000000", "text": "Your code is 123456"}
NOBODY = {**ONE, "to": "+34000000000"}

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def batches_at_noon(now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otp_service.messages.batch_api.utc_now", lambda: now)


def send(api: ClientApi, items: Any) -> HttpResponse:
    return api.call("POST", BATCH, json.dumps({"messages": items}))


def results(api: ClientApi, items: Sequence[Any]) -> list[dict[str, Any]]:
    answer = send(api, items)
    assert answer.status_code == 200
    found: list[dict[str, Any]] = body(answer)["results"]
    assert [row["index"] for row in found] == list(range(len(items)))
    return found


def outcomes(api: ClientApi, items: Sequence[Any]) -> list[str]:
    return [row["result"] for row in results(api, items)]


def test_every_item_is_answered_in_order(api: ClientApi) -> None:
    first, refused, last = results(api, [{**ONE, "reference": "a"}, NOBODY, {**ONE, "lane": "otp"}])
    assert (first["result"], refused["result"], last["result"]) == ("accepted", "refused", "accepted")
    assert (first["lane"], last["lane"]) == ("transactional", "otp")
    message = Message.objects.get(uuid=first["id"])
    assert (message.reference, message.to, message.text) == ("a", ONE["to"], ONE["text"])
    followed = body(api.get(first["links"]["self"]))
    assert {name: first[name] for name in ("id", "status", "lane", "created_at", "expires_at")}.items() <= (
        followed.items()
    )


def test_an_item_that_is_null_refuses_itself_alone(api: ClientApi) -> None:
    nothing, one = results(api, [None, ONE])
    assert (nothing["result"], nothing["problem"]["code"], one["result"]) == ("refused", "invalid", "accepted")


def test_what_is_stored_is_as_if_it_was_posted_alone(api: ClientApi) -> None:
    more = {"addresses": {"push": "token"}, "sender_name": "ACME", "max_routes": 1, "on_unknown": "race"}
    item = {**ONE, **more, "channels": ["sms", "push"], "metadata": {"a": [1]}, "max_attempts": 2, "ttl_s": 600}
    results(api, [item])
    api.send(item)
    rows = Message.objects.order_by("id")
    assert {message.addresses for message in rows} == {'{"push": "token"}'}
    own = {"id", "uuid", "to", "text", "addresses"}
    together, alone = rows.values(*({field.attname for field in Message._meta.concrete_fields} - own))
    assert together == alone
    assert len(set(Ready.objects.values_list("flow_id", "due_at"))) == 1


def test_a_refused_item_says_what_to_do(api: ClientApi) -> None:
    invalid, late, not_an_object = results(
        api, [NOBODY, {**ONE, "expires_at": "2026-09-01T11:00:00Z", "created_at": "2026-09-01T10:00:00Z"}, 7]
    )
    assert [row["field"] for row in invalid["problem"]["errors"]] == ["to"]
    assert invalid["problem"]["code"] == "invalid"
    assert late["problem"]["code"] == "already_expired"
    assert not_an_object["problem"]["detail"] == "Mend the item and send it again."
    for row in (invalid, late, not_an_object):
        assert row["problem"]["status"] == 400
        assert "+34" not in json.dumps(row)
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param({}, {"messages": "required"}, id="no list"),
        pytest.param({"messages": {"0": ONE}}, {"messages": "not_a_list"}, id="an object"),
        pytest.param({"messages": "+34600000000"}, {"messages": "not_a_list"}, id="a string"),
        pytest.param({"messages": []}, {"messages": "empty"}, id="empty"),
        pytest.param({"messages": [ONE], "lane": "otp"}, {"lane": "unknown_field"}, id="more than the list"),
        pytest.param([ONE], {"": "invalid"}, id="the list alone"),
    ],
)
def test_odd_document_is_refused_whole(api: ClientApi, document: Any, expected: dict[str, str]) -> None:
    answer = api.call("POST", BATCH, json.dumps(document))
    assert (answer.status_code, fields(answer)) == (400, expected)
    assert not Message.objects.exists()


@pytest.mark.parametrize(("count", "status"), [(1_000, 200), (1_001, 400)])
def test_holds_up_to_a_thousand_items(api: ClientApi, count: int, status: int) -> None:
    answer = send(api, [7] * (count - 1) + [ONE])
    assert answer.status_code == status
    assert Message.objects.count() == (1 if status == 200 else 0)


def test_many_cost_as_many_queries_as_few(api: ClientApi) -> None:
    def cost(count: int) -> int:
        items = [{**ONE, "idempotency_key": f"{count}-{n}", "lane": "otp"} for n in range(count)]
        with CaptureQueriesContext(connection) as captured:
            assert set(outcomes(api, items)) == {"accepted"}
        return len(captured)

    cost(1)
    assert cost(200) == cost(2) <= 12


def test_same_batch_again_sends_nothing_again(api: ClientApi) -> None:
    items = [{**ONE, "idempotency_key": "a"}, {**ONE, "idempotency_key": "b"}]
    first = results(api, items)
    again = results(api, items)
    assert [row["result"] for row in again] == ["replayed", "replayed"]
    assert [row["id"] for row in again] == [row["id"] for row in first]
    assert Message.objects.count() == Ready.objects.count() == 2


def test_one_key_in_one_batch_is_one_message(api: ClientApi) -> None:
    first, same, other = results(
        api,
        [
            {**ONE, "idempotency_key": "a"},
            {**ONE, "idempotency_key": "a"},
            {**ONE, "text": "?", "idempotency_key": "a"},
        ],
    )
    assert (first["result"], same["result"], same["id"]) == ("accepted", "replayed", first["id"])
    assert other["problem"]["code"] == "idempotency_key_reused"
    assert Message.objects.count() == 1


def test_items_without_keys_are_messages_of_their_own(api: ClientApi) -> None:
    assert outcomes(api, [ONE, ONE]) == ["accepted", "accepted"]
    assert Message.objects.count() == 2


def test_key_of_a_message_that_was_posted_alone_is_known(api: ClientApi) -> None:
    alone = body(api.send(ONE, key="a"))
    (row,) = results(api, [{**ONE, "idempotency_key": "a"}])
    assert (row["result"], row["id"]) == ("replayed", alone["id"])
    assert api.send(ONE, key="a").headers["Idempotent-Replayed"] == "true"


def test_what_was_accepted_in_time_stays_accepted(api: ClientApi, now: dt.datetime, monkeypatch: Any) -> None:
    items = [{**ONE, "idempotency_key": "a", "expires_at": "2026-09-01T12:05:00Z"}]
    (first,) = results(api, items)
    monkeypatch.setattr("otp_service.messages.batch_api.utc_now", lambda: now + dt.timedelta(hours=1))
    (again,) = results(api, items)
    assert (again["result"], again["id"]) == ("replayed", first["id"])


@pytest.mark.parametrize("key", ["", "é", "a\nb", "k" * 256, 7, None])
def test_key_that_no_header_could_hold_is_refused(api: ClientApi, key: Any) -> None:
    (row,) = results(api, [{**ONE, "idempotency_key": key}])
    assert [error["field"] for error in row["problem"]["errors"]] == ["idempotency_key"]


def test_a_key_without_its_scope_opens_nothing(api: ClientApi, now: dt.datetime) -> None:
    stranger = ClientApi(ClientFactory.create(), now=now, scopes=())
    answer = send(stranger, [ONE])
    assert (answer.status_code, code(answer)) == (403, "scope_missing")


def test_another_clients_keys_are_free(api: ClientApi, now: dt.datetime) -> None:
    stranger = ClientApi(ClientFactory.create(), now=now)
    items = [{**ONE, "idempotency_key": "a"}]
    assert outcomes(api, items) == outcomes(stranger, items) == ["accepted"]


# --- beside others -----------------------------------------------------------------------------------------


def asked(*keys: str) -> list[Item]:
    return [Item(NewMessage(ONE["to"], ONE["text"]), key) for key in keys]


@pytest.mark.django_db(transaction=True)
def test_two_batches_with_the_same_keys_give_one_message_each(api: ClientApi, now: dt.datetime) -> None:
    FlowFactory.create(client=api.client, lane="transactional", pools=["es", "zp", "vj"])
    with transaction.atomic():
        first = batch.accept_many(api.client.pk, asked("c", "a"), now=now)
        second: Racer[list[batch.Outcome]] = Racer(
            lambda: batch.accept_many(api.client.pk, asked("a", "b", "c"), now=now)
        )
        second.wait_until_blocked()
    got = second.result()
    assert [isinstance(one, Accepted) and one.replayed for one in got] == [True, False, True]
    assert Message.objects.count() == IdempotencyKey.objects.count() == 3
    assert Flow.objects.count() == 1
    assert isinstance(first[1], Accepted)
    assert isinstance(got[0], Accepted)
    assert first[1].response == got[0].response


@pytest.mark.django_db(transaction=True)
def test_key_that_is_held_for_too_long_refuses_the_batch(
    api: ClientApi, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "KEY_WAIT", dt.timedelta(milliseconds=20))
    FlowFactory.create(client=api.client, lane="transactional", pools=["es", "zp", "vj"])
    with transaction.atomic():
        batch.accept_many(api.client.pk, asked("a"), now=now)
        answer = Racer(lambda: send(api, [ONE, {**ONE, "idempotency_key": "a"}])).result()
    assert (answer.status_code, code(answer)) == (409, "idempotency_key_in_progress")
    assert Message.objects.count() == 1
