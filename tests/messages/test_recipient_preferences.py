"""Clients read and replace what a recipient wants; it is one for all clients, and never holds the number."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.http import HttpResponse

from otp_service.events.models import Event
from otp_service.messages import api_keys
from otp_service.messages.recipient_models import Recipient
from otp_service.web.fields import recipient_hash
from tests.factories import ClientFactory
from tests.messages.client_api import ClientApi, body, code, fields
from tests.messages.recipient_keys import hash_keys

NUMBER = "+34600000000"
ADDRESS = f"/api/v1/recipients/{NUMBER}/preferences/"
NOTHING: dict[str, Any] = {"refused_channels": [], "quiet_hours": None, "stopped": False}
NIGHT = {"from": "22:00", "to": "08:00"}
ALL = {"refused_channels": ["sms", "voice"], "quiet_hours": NIGHT, "stopped": True}


@pytest.fixture(autouse=True)
def edge_at_noon(at_noon: None, now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otp_service.messages.recipient_api.utc_now", lambda: now)


def put(api: ClientApi, wanted: Any, *, address: str = ADDRESS) -> HttpResponse:
    return api.call("PUT", address, json.dumps(wanted))


def test_of_whom_nothing_is_known_everything_is_wanted(api: ClientApi) -> None:
    assert (api.get(ADDRESS).status_code, body(api.get(ADDRESS))) == (200, NOTHING)
    assert not Recipient.objects.exists()


def test_what_is_put_holds(api: ClientApi) -> None:
    answer = put(api, ALL)
    assert (answer.status_code, body(answer), body(api.get(ADDRESS))) == (200, ALL, ALL)


def test_what_was_read_can_be_put_again(api: ClientApi) -> None:
    put(api, ALL)
    assert put(api, body(api.get(ADDRESS))).status_code == 200
    assert Event.objects.count() == 1


def test_a_put_replaces_all_of_it(api: ClientApi) -> None:
    put(api, ALL)
    assert body(put(api, NOTHING)) == NOTHING
    assert Recipient.objects.values_list("time_zone", "stopped_at").get() == ("", None)


@pytest.mark.parametrize("stopped", [True, False])
def test_stop_stays_as_it_was_where_a_put_says_nothing_of_it(api: ClientApi, stopped: bool) -> None:
    put(api, {**NOTHING, "stopped": stopped})
    assert body(put(api, {"refused_channels": ["sms"], "quiet_hours": None}))["stopped"] is stopped


def test_it_is_the_same_for_every_client(api: ClientApi, now: dt.datetime) -> None:
    put(api, ALL)
    assert body(ClientApi(ClientFactory.create(), now=now).get(ADDRESS)) == ALL


@pytest.mark.parametrize("written", ["%2B34600000000", "0034600000000", "+34 600 00 00 00"])
def test_a_number_may_be_written_in_other_ways(api: ClientApi, written: str) -> None:
    put(api, ALL)
    assert body(api.get(ADDRESS.replace(NUMBER, written))) == ALL


def test_another_number_wants_something_else(api: ClientApi) -> None:
    put(api, ALL)
    assert body(api.get(ADDRESS.replace(NUMBER, "+34600000001"))) == NOTHING


def test_the_time_zone_is_that_of_the_number(api: ClientApi) -> None:
    put(api, ALL)
    put(api, ALL, address=ADDRESS.replace(NUMBER, "+12125550100"))
    assert list(Recipient.objects.order_by("id").values_list("time_zone", flat=True)) == [
        "Europe/Madrid",
        "America/New_York",
    ]


def test_a_change_leaves_an_event_for_the_fleet_that_does_not_tell_the_number(api: ClientApi, now: dt.datetime) -> None:
    put(api, ALL)
    event = Event.objects.get()
    quiet = {**NIGHT, "time_zone": "Europe/Madrid"}
    assert (event.type, event.at, event.client_id) == ("recipient.changed", now, None)
    assert event.data == {"by": f"client {api.client.pk}", "old": NOTHING, "new": {**ALL, "quiet_hours": quiet}}


def test_events_of_one_number_have_one_subject_and_of_two_numbers_two(api: ClientApi) -> None:
    for number, wanted in ((NUMBER, ALL), (NUMBER, NOTHING), ("+34600000001", ALL)):
        put(api, wanted, address=ADDRESS.replace(NUMBER, number))
    first, second, other = Event.objects.order_by("id").values_list("subject_uuid", flat=True)
    assert first == second != other


def test_what_changes_nothing_leaves_no_event(api: ClientApi) -> None:
    put(api, NOTHING)
    assert not Event.objects.exists()


def test_the_time_of_stop_is_that_of_the_first(api: ClientApi, now: dt.datetime, monkeypatch: Any) -> None:
    put(api, ALL)
    monkeypatch.setattr("otp_service.messages.recipient_api.utc_now", lambda: now + dt.timedelta(hours=1))
    put(api, {**ALL, "refused_channels": []})
    assert Recipient.objects.values_list("stopped_at", "changed_at").get() == (now, now + dt.timedelta(hours=1))


def test_a_row_is_found_after_another_key_became_the_first(api: ClientApi, settings: Any) -> None:
    put(api, ALL)
    with hash_keys({"newer": b"n" * 32, **settings.HASH_KEYS}):
        assert bytes(Recipient.objects.get().recipient_hash) != recipient_hash(NUMBER)
        assert body(api.get(ADDRESS)) == ALL
        put(api, NOTHING)
    assert (Recipient.objects.count(), body(api.get(ADDRESS))) == (1, NOTHING)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param({}, {"refused_channels": "required", "quiet_hours": "required"}, id="nothing"),
        pytest.param([], {"": "invalid"}, id="a list"),
        pytest.param({**NOTHING, "lane": "promo"}, {"lane": "unknown_field"}, id="an unknown field"),
        pytest.param({**NOTHING, "refused_channels": "sms"}, {"refused_channels": "not_a_list"}, id="one channel"),
        pytest.param({**NOTHING, "refused_channels": None}, {"refused_channels": "null"}, id="null for channels"),
        pytest.param(
            {**NOTHING, "refused_channels": ["sms", "fax"]}, {"refused_channels.1": "invalid_choice"}, id="fax"
        ),
        pytest.param(
            {**NOTHING, "refused_channels": ["sms", "sms"]}, {"refused_channels": "repeated"}, id="a channel twice"
        ),
        pytest.param({**NOTHING, "quiet_hours": "22-8"}, {"quiet_hours": "invalid"}, id="a text for hours"),
        pytest.param({**NOTHING, "quiet_hours": {"from": "22:00"}}, {"quiet_hours.to": "required"}, id="half of them"),
        pytest.param(
            {**NOTHING, "quiet_hours": {"from": "24:00", "to": "8:00"}},
            {"quiet_hours.from": "invalid", "quiet_hours.to": "invalid"},
            id="no such times",
        ),
        pytest.param({**NOTHING, "quiet_hours": {**NIGHT, "to": 8}}, {"quiet_hours.to": "invalid"}, id="a number"),
        pytest.param(
            {**NOTHING, "quiet_hours": {**NIGHT, "to": "08:00\n"}}, {"quiet_hours.to": "invalid"}, id="a line"
        ),
        pytest.param(
            {**NOTHING, "quiet_hours": {**NIGHT, "to": "\u0660\u0668:00"}}, {"quiet_hours.to": "invalid"}, id="digits"
        ),
        pytest.param(
            {**NOTHING, "quiet_hours": {"from": "08:00", "to": "08:00"}}, {"quiet_hours.to": "invalid"}, id="no hours"
        ),
        pytest.param(
            {**NOTHING, "quiet_hours": {**NIGHT, "time_zone": "UTC"}},
            {"quiet_hours.time_zone": "unknown_field"},
            id="a time zone",
        ),
        pytest.param({**NOTHING, "stopped": "true"}, {"stopped": "invalid"}, id="a text for true"),
        pytest.param({**NOTHING, "stopped": 1}, {"stopped": "invalid"}, id="1 for true"),
        pytest.param({**NOTHING, "stopped": None}, {"stopped": "null"}, id="null for false"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(api: ClientApi, wanted: Any, expected: dict[str, str]) -> None:
    put(api, ALL)
    answer = put(api, wanted)
    assert (answer.status_code, fields(answer)) == (400, expected)
    assert body(api.get(ADDRESS)) == ALL


def test_what_must_be_given_is_said_with_the_word_for_none(api: ClientApi) -> None:
    assert {row["field"]: row["detail"] for row in body(put(api, {}))["errors"]} == {
        "refused_channels": "Name the channels that nothing is sent over, [] for none.",
        "quiet_hours": "Say when promo messages wait, null for never.",
    }


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("600000009", "not_international"),
        ("+34000000000", "not_valid"),
        ("+3460", "not_possible"),
        ("x%00", "not_international"),
    ],
)
def test_a_number_that_cannot_be_is_refused_and_not_repeated(
    api: ClientApi, method: str, written: str, expected: str
) -> None:
    answer = api.call(method, ADDRESS.replace(NUMBER, written), json.dumps(ALL))
    assert (answer.status_code, fields(answer)) == (400, {"the number in the address": expected})
    assert written not in answer.content.decode()
    assert not Recipient.objects.exists()


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_nobody_without_a_key_or_its_scope_gets_anything(api: ClientApi, method: str, now: dt.datetime) -> None:
    _, without_scope = api_keys.create(api.client, [], now)
    for key, status, expected in ((without_scope, 403, "scope_missing"), ("otp_none", 401, "key_not_valid")):
        api.key = key
        answer = api.call(method, ADDRESS, json.dumps(ALL))
        assert (answer.status_code, code(answer)) == (status, expected)
    assert not Recipient.objects.exists()


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_other_methods_are_not_offered(api: ClientApi, method: str) -> None:
    assert api.call(method, ADDRESS, json.dumps(ALL)).status_code == 405


def test_a_number_is_not_written_into_the_log_when_the_database_is_away(
    api: ClientApi, caplog: pytest.LogCaptureFixture
) -> None:
    def break_off(*_: Any) -> Any:
        raise OperationalError("the connection is lost")

    with connection.execute_wrapper(break_off):
        assert put(api, ALL, address=ADDRESS.replace("+", "%2B")).status_code == 503
    assert "/api/v1/recipients/***/preferences/" in caplog.text
    assert NUMBER[1:] not in caplog.text
