"""What a client sees of its message."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from otp_service.core.outcomes import ErrorClass
from otp_service.messages.models import Message
from otp_service.messages.rules import AttemptState, MessageStatus
from tests.factories import NOON, AttemptFactory, MessageFactory, ServerFactory
from tests.messages.client_api import MESSAGES, ClientApi, body

MINUTE = dt.timedelta(minutes=1)


def read(api: ClientApi, message: Message) -> dict[str, Any]:
    answer = api.get(f"{MESSAGES}{message.uuid}/")
    assert answer.status_code == 200
    return body(answer)


def test_shows_a_message_that_nobody_has_touched(api: ClientApi) -> None:
    message = MessageFactory.create(
        flow__client=api.client,
        reference="r",
        metadata={"a": [1]},
        region="vj",
        sender_name="ACME",
        supersede_key="login",
        on_unknown="race",
        max_routes=2,
    )
    assert read(api, message) == {
        "id": str(message.uuid),
        "lane": "otp",
        "status": "queued",
        "outcome": None,
        "reason": None,
        "error_code": None,
        "to": "+34 6•• ••• •00",
        "reference": "r",
        "supersede_key": "login",
        "metadata": {"a": [1]},
        "region": "vj",
        "sender_name": "ACME",
        "on_unknown": "race",
        "max_routes": 2,
        "created_at": "2026-09-01T12:00:00Z",
        "accepted_at": "2026-09-01T12:00:00Z",
        "expires_at": "2026-09-01T12:05:00Z",
        "finished_at": None,
        "attempts": [],
    }


def test_shows_every_attempt_in_order(api: ClientApi, now: dt.datetime) -> None:
    message = MessageFactory.create(
        flow__client=api.client, status=MessageStatus.SUBMITTED, attempts_made=2, attempts_charged=2
    )
    second = AttemptFactory.create(
        message=message,
        number=2,
        route="sms:one",
        server=None,
        claimed_at=now + MINUTE,
        settled_at=now + MINUTE,
        possible_duplicate=True,
        parts=2,
        cost=Decimal("0.0905"),
        currency="EUR",
        refusals={"sms:two": "breaker_open"},
    )
    first = AttemptFactory.create(
        message=message,
        state=AttemptState.FAILED,
        error_class=ErrorClass.SENDER_FAULT,
        error_code=120,
        finished_at=now,
        raw_reply="a reply that nobody sees",
    )
    assert read(api, message)["attempts"] == [
        {
            "id": str(first.uuid),
            "number": 1,
            "route": "imessage:es",
            "state": "failed",
            "error_class": "sender_fault",
            "error_code": 120,
            "possible_duplicate": False,
            "parts": None,
            "cost": None,
            "currency": None,
            "started_at": "2026-09-01T12:00:00Z",
            "settled_at": "2026-09-01T12:00:00Z",
            "finished_at": "2026-09-01T12:00:00Z",
        },
        {
            "id": str(second.uuid),
            "number": 2,
            "route": "sms:one",
            "state": "accepted",
            "error_class": None,
            "error_code": None,
            "possible_duplicate": True,
            "parts": 2,
            "cost": "0.090500",
            "currency": "EUR",
            "started_at": "2026-09-01T12:01:00Z",
            "settled_at": "2026-09-01T12:01:00Z",
            "finished_at": None,
        },
    ]


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        pytest.param([AttemptState.UNKNOWN], "unknown", id="one in doubt"),
        pytest.param([AttemptState.ACCEPTED], None, id="accepted"),
        pytest.param([AttemptState.SENT], None, id="sent"),
        pytest.param([AttemptState.UNKNOWN, AttemptState.UNKNOWN], "unknown", id="two in doubt"),
        pytest.param([AttemptState.FAILED, AttemptState.UNKNOWN], "unknown", id="what failed is not alive"),
        pytest.param([AttemptState.UNKNOWN, AttemptState.ACCEPTED], None, id="the second copy was accepted"),
        pytest.param([AttemptState.SENT, AttemptState.UNKNOWN], None, id="the first copy was sent"),
    ],
)
def test_says_that_an_outcome_is_unknown(api: ClientApi, states: list[AttemptState], outcome: str | None) -> None:
    message = MessageFactory.create(flow__client=api.client, status=MessageStatus.SUBMITTED, attempts_made=len(states))
    for number, state in enumerate(states, 1):
        ended = NOON if state is AttemptState.FAILED else None
        AttemptFactory.create(message=message, number=number, state=state, finished_at=ended)
    assert read(api, message)["outcome"] == outcome
    assert body(api.get(MESSAGES))["results"][0]["outcome"] == outcome


def test_message_that_has_ended_is_not_in_doubt(api: ClientApi, now: dt.datetime) -> None:
    message = MessageFactory.create(
        flow__client=api.client, status=MessageStatus.DELIVERED, finished_at=now, attempts_made=1, attempts_charged=1
    )
    AttemptFactory.create(message=message, state=AttemptState.UNKNOWN)
    assert read(api, message)["outcome"] is None


def test_says_why_a_message_was_not_delivered_and_which_pool_tried(api: ClientApi, now: dt.datetime) -> None:
    message = MessageFactory.create(
        flow__client=api.client,
        status=MessageStatus.FAILED,
        finished_at=now + MINUTE,
        final_reason="recipient_invalid",
        final_error_code=21211,
        final_server=ServerFactory.create(region="pt"),
        region="es",
    )
    seen = read(api, message)
    assert (seen["status"], seen["reason"], seen["error_code"]) == ("failed", "recipient_invalid", 21211)
    assert (seen["region"], seen["finished_at"]) == ("pt", "2026-09-01T12:01:00Z")


def test_never_shows_a_text_or_a_number(api: ClientApi) -> None:
    message = MessageFactory.create(
        flow__client=api.client, text="Your code is 739184", number="+34612345678", addresses='{"push": "token-739184"}'
    )
    for path in (f"{MESSAGES}{message.uuid}/", MESSAGES):
        shown = api.get(path).content.decode()
        assert "739184" not in shown
        assert "text" not in shown
        assert "612345678" not in shown


def test_explains_what_happened_to_it_in_three_queries(api: ClientApi) -> None:
    message = MessageFactory.create(flow__client=api.client, status=MessageStatus.SUBMITTED, text="739184")
    for number in (1, 2):
        AttemptFactory.create(
            message=message, number=number, server=None, route="sms:one", refusals={"sms:two": "no_capacity"}
        )
    with CaptureQueriesContext(connection) as queries:
        explained = body(api.get(f"{MESSAGES}{message.uuid}/explain/"))
    assert len(queries) == 3  # who calls; the message; its attempts
    assert explained["id"] == str(message.uuid)
    assert [sentence.split(":")[0] for sentence in explained["sentences"]] == [
        "Accepted at 12",
        *("Not over sms", "Attempt 1 over sms"),
        *("Not over sms", "Attempt 2 over sms"),
        "Handed over",
    ]
    assert "739184" not in str(explained)


@pytest.mark.parametrize("attempts", [0, 10])
def test_takes_three_queries_whatever_the_number_of_attempts(api: ClientApi, attempts: int) -> None:
    message = MessageFactory.create(flow__client=api.client, attempts_made=attempts)
    for number in range(attempts):
        AttemptFactory.create(message=message, number=number + 1)
    with CaptureQueriesContext(connection) as queries:
        assert len(read(api, message)["attempts"]) == attempts
    assert len(queries) == 3  # who calls; the message; its attempts


@pytest.mark.parametrize("written", [str.upper, str.title, str.lower])
def test_is_found_however_its_id_is_written(api: ClientApi, written: Callable[[str], str]) -> None:
    message = MessageFactory.create(flow__client=api.client)
    address = f"{MESSAGES}{written(str(message.uuid))}/"
    assert body(api.get(address))["id"] == str(message.uuid)
    assert body(api.call("POST", f"{address}cancel/"))["id"] == str(message.uuid)


@pytest.mark.parametrize("written", ["{}0", "{{{}}}", "urn:uuid:{}"])
def test_is_not_found_by_what_is_no_id(api: ClientApi, written: str) -> None:
    message = MessageFactory.create(flow__client=api.client)
    assert api.get(f"{MESSAGES}{written.format(message.uuid)}/").status_code == 404
