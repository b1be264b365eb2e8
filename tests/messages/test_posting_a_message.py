"""What is accepted, and what is stored of it."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from otp_service.events.models import Event
from otp_service.messages.models import Flow, Message, Ready
from otp_service.web.fields import recipient_hash
from tests.factories import ClientFactory
from tests.messages.client_api import LEAST, ClientApi, body

SECOND = dt.timedelta(seconds=1)


def test_answers_where_the_message_can_be_followed(api: ClientApi) -> None:
    answer = api.send({**LEAST, "lane": "otp"})
    message = Message.objects.get()
    address = f"/api/v1/messages/{message.uuid}/"
    assert answer.status_code == 202
    assert answer["Location"] == address
    assert not answer.has_header("Idempotent-Replayed")
    assert body(answer) == {
        "id": str(message.uuid),
        "status": "queued",
        "lane": "otp",
        "created_at": "2026-09-01T12:00:00Z",
        "expires_at": "2026-09-01T12:05:00Z",
        "links": {"self": address},
    }
    assert body(api.get(address))["expires_at"] == body(answer)["expires_at"]


def test_stores_what_was_asked_for(api: ClientApi, now: dt.datetime) -> None:
    api.send(
        {
            "to": "0034 600-000.000",
            "text": " Your code is 123456 ",
            "lane": "promo",
            "channels": ["sms", "push"],
            "addresses": {"push": "a token"},
            "sender_name": "ACME",
            "region": "vj",
            "ttl_s": 400,
            "created_at": "2026-09-01T13:59:00+02:00",
            "first_attempt_within_s": 90,
            "on_late_first": "expire",
            "max_attempts": 10,
            "max_routes": 9,
            "on_unknown": "race",
            "reference": "order 42",
            "supersede_key": "order",
            "metadata": {"a": [1, {"b": None}]},
        }
    )
    message = Message.objects.select_related("flow").get()
    assert (message.to, message.text) == ("+34600000000", " Your code is 123456 ")
    assert bytes(message.to_hash) == recipient_hash("+34600000000")
    assert (message.client_id, message.flow.client_id) == (api.client.pk, api.client.pk)
    assert (message.lane, message.flow.lane) == ("promo", "promo")
    assert (message.region, message.flow.pools) == ("vj", ["vj"])
    assert (message.channels, json.loads(message.addresses)) == (["sms", "push"], {"push": "a token"})
    assert (message.sender_name, message.supersede_key) == ("ACME", "order")
    assert message.created_at == now
    assert message.event_at == now - 60 * SECOND
    assert message.expires_at == now + 340 * SECOND
    assert message.first_attempt_by == now + 30 * SECOND
    assert (message.on_late_first, message.max_attempts) == ("expire", 10)
    assert (message.max_routes, message.on_unknown, message.copies_left) == (9, "race", 1)
    assert (message.reference, message.metadata) == ("order 42", {"a": [1, {"b": None}]})
    assert (message.status, message.attempts_made, message.attempts_charged) == ("queued", 0, 0)
    assert (message.final_reason, message.final_route, message.finished_at) == ("", "", None)


@pytest.mark.parametrize(
    ("lane", "ttl_s", "first_s", "attempts", "cascade"),
    [
        pytest.param("otp", 300, 15, 4, (3, "race"), id="otp"),
        pytest.param("transactional", 3_600, 120, 5, (3, "hold"), id="transactional"),
        pytest.param("promo", 86_400, None, 2, (2, "hold"), id="promo: its first attempt is never late"),
        pytest.param(None, 3_600, 120, 5, (3, "hold"), id="no lane: transactional"),
    ],
)
def test_lane_decides_what_is_not_given(
    api: ClientApi,
    now: dt.datetime,
    *,
    lane: str | None,
    ttl_s: int,
    first_s: int | None,
    attempts: int,
    cascade: tuple[int, str],
) -> None:
    api.send(LEAST | ({"lane": lane} if lane else {}))
    message = Message.objects.get()
    assert message.lane == (lane or "transactional")
    assert message.expires_at - now == ttl_s * SECOND
    assert message.first_attempt_by == (None if first_s is None else now + first_s * SECOND)
    assert (message.on_late_first, message.max_attempts) == ("send", attempts)
    assert (message.max_routes, message.on_unknown) == cascade
    assert (message.channels, message.region, message.metadata) == (["imessage", "sms"], "", {})
    assert (message.addresses, message.sender_name, message.supersede_key) == (None, "", "")
    assert (message.event_at, message.created_at) == (now, now)


@pytest.mark.parametrize("budget", [0, 5])
def test_setting_says_how_many_copies_may_leave(api: ClientApi, settings: Any, budget: int) -> None:
    settings.DUPLICATE_BUDGET = budget
    api.send()
    assert Message.objects.get().copies_left == budget


@pytest.mark.parametrize("channels", [["sms"], ["voice"], ["sms", "voice", "imessage"]])
def test_any_channel_may_be_named_whatever_routes_there_are(api: ClientApi, channels: list[str]) -> None:
    assert api.send({**LEAST, "channels": channels}).status_code == 202
    assert Flow.objects.get().channels == channels


@pytest.mark.parametrize(
    ("more", "due_s"),
    [
        pytest.param({"lane": "otp"}, 15, id="the first attempt is due before the end"),
        pytest.param({"lane": "promo"}, 86_400, id="the end, as nothing says when the first attempt is due"),
        pytest.param({"lane": "otp", "ttl_s": 30, "first_attempt_within_s": 60}, 30, id="the end comes first"),
    ],
)
def test_queue_row_is_due_at_the_earlier_deadline(
    api: ClientApi, now: dt.datetime, more: dict[str, Any], due_s: int
) -> None:
    api.send(LEAST | more)
    message, ready = Message.objects.get(), Ready.objects.get()
    assert (ready.message_id, ready.flow_id) == (message.pk, message.flow_id)
    assert ready.due_at == now + due_s * SECOND


@pytest.mark.parametrize(
    ("to", "pools"),
    [
        pytest.param("+34600000000", ["es", "zp", "vj"], id="Spain"),
        pytest.param("+351912345678", ["pt", "es"], id="Portugal: the longest prefix, not +3"),
        pytest.param("+14155550132", ["us"], id="United States"),
        pytest.param("+442079460000", ["es", "zp", "vj", "pt", "ua", "us"], id="every other number"),
    ],
)
def test_number_decides_the_pools(api: ClientApi, to: str, pools: list[str]) -> None:
    assert api.send({**LEAST, "to": to}).status_code == 202
    assert Flow.objects.get().pools == pools


def test_messages_of_one_kind_share_a_flow(api: ClientApi, now: dt.datetime) -> None:
    other = ClientApi(ClientFactory.create(), now=now)
    for sender, more in ((api, {}), (api, {"ttl_s": 60}), (api, {"lane": "otp"}), (api, {"region": "es"}), (other, {})):
        assert sender.send(LEAST | more).status_code == 202
    assert Message.objects.count() == 5
    assert sorted(Flow.objects.values_list("client_id", "lane", "pools")) == sorted(
        [
            (api.client.pk, "transactional", ["es", "zp", "vj"]),
            (api.client.pk, "otp", ["es", "zp", "vj"]),
            (api.client.pk, "transactional", ["es"]),
            (other.client.pk, "transactional", ["es", "zp", "vj"]),
        ]
    )


def test_client_whose_clock_is_a_little_ahead_is_not_refused(api: ClientApi, now: dt.datetime) -> None:
    assert api.send({**LEAST, "created_at": "2026-09-01T12:00:05Z"}).status_code == 202
    assert Message.objects.get().event_at == now


def test_time_in_the_clients_own_queue_counts(api: ClientApi, now: dt.datetime) -> None:
    assert api.send({**LEAST, "lane": "otp", "created_at": "2026-09-01T11:55:01Z"}).status_code == 202
    assert Message.objects.get().expires_at == now + SECOND


def test_absolute_end_is_kept(api: ClientApi, now: dt.datetime) -> None:
    assert api.send({**LEAST, "expires_at": "2026-09-08T12:00:00Z"}).status_code == 202
    assert Message.objects.get().expires_at == now + dt.timedelta(days=7)


@pytest.mark.parametrize("key", ["", "k-1"])
def test_takes_two_statements_once_the_flow_is_there(api: ClientApi, key: str) -> None:
    api.send()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        api.send(key=key)
    assert len(queries) == 2  # who calls; the message with all that belongs to it


def test_acceptance_is_no_event(api: ClientApi) -> None:
    api.send()
    assert not Event.objects.exists()


def test_reads_what_is_asked_for_whatever_accept_says(api: ClientApi) -> None:
    answer = api.call(
        "POST", "/api/v1/messages/", '{"to": "+34600000000", "text": "x"}', headers={"Accept": "text/html"}
    )
    assert answer.status_code == 202
    assert answer["Content-Type"] == "application/json"
