"""The list: newest first, by cursor, filtered."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from otp_service.core.crypto import KeyedHash
from otp_service.messages.models import Flow, Message
from otp_service.web import fields as web_fields
from otp_service.web.fields import field_cipher
from tests.factories import FlowFactory, MessageFactory
from tests.messages.client_api import MESSAGES, ClientApi, body, fields

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def flow(api: ClientApi) -> Flow:
    return FlowFactory.create(client=api.client)


def listed(api: ClientApi, **query: str) -> list[str]:
    """The references on a page."""
    answer = api.get(MESSAGES, **query)
    assert answer.status_code == 200, answer.content
    return [row["reference"] for row in body(answer)["results"]]


def named(flow: Flow, *references: str, **more: Any) -> list[Message]:
    return [MessageFactory.create(flow=flow, reference=reference, **more) for reference in references]


def test_newest_come_first(api: ClientApi, flow: Flow) -> None:
    named(flow, "a", "b", "c")
    assert listed(api) == ["c", "b", "a"]


def test_pages_hold_every_message_once_while_new_ones_come(api: ClientApi, flow: Flow) -> None:
    named(flow, *"abcde")
    seen: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        page = body(api.get(MESSAGES, limit="2", **cursor))
        seen.append([row["reference"] for row in page["results"]])
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
        named(flow, "new")
    assert seen == [["e", "d"], ["c", "b"], ["a"]]


def test_full_last_page_has_no_next_one(api: ClientApi, flow: Flow) -> None:
    named(flow, "a", "b")
    assert body(api.get(MESSAGES, limit="2"))["next_cursor"] is None
    assert body(api.get(MESSAGES, limit="1"))["next_cursor"]


def test_page_holds_twenty_unless_told_otherwise(api: ClientApi, flow: Flow) -> None:
    named(flow, *(str(number) for number in range(21)))
    assert len(listed(api)) == 20
    assert len(listed(api, limit="100")) == 21


def test_attempts_are_not_in_the_list(api: ClientApi, flow: Flow) -> None:
    named(flow, "a")
    assert "attempts" not in body(api.get(MESSAGES))["results"][0]


@pytest.mark.parametrize("number", [1, 5])
def test_takes_two_queries_whatever_the_number_of_rows(api: ClientApi, flow: Flow, number: int) -> None:
    named(flow, *(str(n) for n in range(number)))
    with CaptureQueriesContext(connection) as queries:
        assert len(listed(api)) == number
    assert len(queries) == 2  # who calls; the page


@pytest.mark.parametrize(
    ("query", "found"),
    [
        pytest.param({"status": "delivered"}, ["yes"], id="status"),
        pytest.param({"lane": "promo"}, ["yes"], id="lane"),
        pytest.param({"reference": "yes"}, ["yes"], id="reference"),
        pytest.param({"reference": "ye"}, [], id="the beginning of a reference"),
        pytest.param({"to": "+34600000001"}, ["yes"], id="number"),
        pytest.param({"to": "0034 600 000 001"}, ["yes"], id="number written otherwise"),
        pytest.param({"created_from": "2026-09-01T13:00:00Z"}, ["yes"], id="from that moment on"),
        pytest.param({"created_from": "2026-09-01T13:00:00.000001Z"}, [], id="from a moment later on"),
        pytest.param({"created_to": "2026-09-01T13:00:00Z"}, ["no"], id="before that moment"),
        pytest.param({"created_to": "2026-09-01T15:00:01+02:00"}, ["yes", "no"], id="before a second later"),
        pytest.param({"status": "delivered", "lane": "otp"}, [], id="all filters must match"),
        pytest.param({"status": "delivered", "lane": "promo", "reference": "yes"}, ["yes"], id="and do"),
    ],
)
def test_filters(api: ClientApi, flow: Flow, now: dt.datetime, query: dict[str, str], found: list[str]) -> None:
    named(flow, "no")
    promo = FlowFactory.create(client=api.client, lane="promo")
    named(
        promo,
        "yes",
        status="delivered",
        finished_at=now + HOUR,
        number="+34600000001",
        event_at=now + HOUR,
        expires_at=now + 2 * HOUR,
    )
    assert listed(api, **query) == found


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"status": "lost"}, {"status": "invalid_choice"}),
        ({"status": ""}, {"status": "invalid_choice"}),
        ({"lane": "OTP"}, {"lane": "invalid_choice"}),
        ({"reference": ""}, {"reference": "blank"}),
        ({"reference": "a\x00"}, {"reference": "null_characters_not_allowed"}),
        ({"to": "600000000"}, {"to": "not_international"}),
        ({"created_from": "yesterday"}, {"created_from": "invalid"}),
        ({"created_to": "2026-09-01T12:00:00 00:00"}, {"created_to": "invalid"}),
        ({"limit": "0"}, {"limit": "min_value"}),
        ({"limit": "101"}, {"limit": "max_value"}),
        ({"limit": "many"}, {"limit": "invalid"}),
        ({"limit": ""}, {"limit": "invalid"}),
        ({"limit": "1_0"}, {"limit": "invalid"}),
        ({"limit": "\u0663"}, {"limit": "invalid"}),
        ({"limit": "\u00b2"}, {"limit": "invalid"}),
        ({"limit": "5.0"}, {"limit": "invalid"}),
        ({"limit": " 5"}, {"limit": "invalid"}),
        ({"limit": "+5"}, {"limit": "invalid"}),
        ({"limit": "-5"}, {"limit": "invalid"}),
        ({"limit": "9" * 5_000}, {"limit": "max_string_length"}),
        ({"cursor": ""}, {"cursor": "blank"}),
        ({"cursor": "42"}, {"cursor": "bad_cursor"}),
        ({"cursor": "é"}, {"cursor": "bad_cursor"}),
        ({"page": "2"}, {"page": "unknown_field"}),
        ({"page": "2", "limit": "x"}, {"page": "unknown_field", "limit": "invalid"}),
    ],
    ids=str,
)
def test_names_the_parameter_that_is_wrong(api: ClientApi, query: dict[str, str], expected: dict[str, str]) -> None:
    answer = api.get(MESSAGES, **query)
    assert (answer.status_code, fields(answer)) == (400, expected)


def test_parameter_that_is_given_twice_is_refused(api: ClientApi) -> None:
    answer = api.get(f"{MESSAGES}?lane=otp&lane=promo")
    assert (answer.status_code, fields(answer)) == (400, {"lane": "repeated"})


def test_cursor_says_nothing_and_cannot_be_made_up(api: ClientApi, flow: Flow) -> None:
    last = named(flow, "a", "b")[0]
    cursor = body(api.get(MESSAGES, limit="1"))["next_cursor"]
    assert str(last.pk) not in cursor or len(str(last.pk)) < 3  # a digit or two stands in any random text
    changed = cursor[:-5] + ("A" if cursor[-5] != "A" else "B") + cursor[-4:]
    assert fields(api.get(MESSAGES, cursor=changed)) == {"cursor": "bad_cursor"}
    for_another_column = field_cipher().encrypt(str(last.pk), field="otp_messages.message.to").hex()
    assert fields(api.get(MESSAGES, cursor=for_another_column)) == {"cursor": "bad_cursor"}


def test_number_is_found_under_an_older_hash_key_too(
    api: ClientApi, flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(flow, "old")
    new = KeyedHash("new", b"n" * 32)
    known = (new, *web_fields.keyed_hashes())
    monkeypatch.setattr(web_fields, "keyed_hash", lambda: new)
    monkeypatch.setattr(web_fields, "keyed_hashes", lambda: known)
    named(flow, "new")
    assert listed(api, to="+34600000000") == ["new", "old"]
