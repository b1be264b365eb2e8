"""What is refused: the field, a stable code, and nothing stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otp_service.messages.models import Flow, IdempotencyKey, Message, Ready
from tests.messages.client_api import LEAST, ClientApi, code, fields

LONG = "x" * 5_000


def nothing_is_stored() -> bool:
    return not any(model.objects.exists() for model in (Message, Ready, Flow, IdempotencyKey))


def nested(levels: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(levels - 1):
        value = [value]
    return {"a": value}


REFUSED = [
    ("to", 34600000000, "invalid", "a number that is no string"),
    ("to", None, "null", "null"),
    ("to", "", "blank", "nothing"),
    ("to", "600000000", "not_international", "a national number"),
    ("to", "34600000000", "not_international", "a number without +"),
    ("to", "+1 800 FLOWERS", "not_international", "letters"),
    ("to", "+34600000000;ext=5", "not_international", "an extension"),
    ("to", "tel:+34600000000", "not_international", "a URI"),
    ("to", "+٣٤600000000", "not_international", "digits of another script"),
    ("to", "++34600000000", "not_international", "two plus signs"),
    ("to", "+34600000000\n", "not_international", "a line break"),
    ("to", "+346000", "not_possible", "too short"),
    ("to", "+346000000000000", "not_possible", "too long"),
    ("to", "+0034600000000", "not_possible", "no such country"),
    ("to", "+34100000000", "not_valid", "a range that is not in use"),
    ("to", "+" + "3" * 40, "not_international", "endless"),
    ("text", 123456, "invalid", "a number"),
    ("text", True, "invalid", "a boolean"),
    ("text", ["code"], "invalid", "a list"),
    ("text", None, "null", "null"),
    ("text", "", "blank", "nothing"),
    ("text", " \t\n\u3000", "blank", "white space"),
    ("text", "\u200b\u2060\ufeff\u00ad", "blank", "invisible characters"),
    ("text", "\u0001\u007f", "blank", "control characters alone"),
    ("text", "\ufe0f\u034f\U000e0041", "blank", "marks and tags on nothing"),
    ("text", "\u3164\u2800", "blank", "letters that are drawn as nothing"),
    ("text", "\u0378\uffff", "blank", "characters that there are none of"),
    ("text", "Your code\u0001 is 1", "control_characters", "a control character"),
    ("text", "Your code is\x1b[31m 1", "control_characters", "an escape"),
    ("text", "Your code\x85 is 1", "control_characters", "a control character beyond ASCII"),
    ("text", "x" * 1_601, "max_length", "too long"),
    ("text", "a\x00b", "null_characters_not_allowed", "U+0000"),
    ("lane", "OTP", "invalid_choice", "another spelling"),
    ("lane", "", "invalid_choice", "nothing"),
    ("lane", None, "null", "null"),
    ("lane", ["otp"], "invalid_choice", "a list"),
    ("lane", True, "invalid_choice", "a boolean"),
    ("channels", [], "empty", "none"),
    ("channels", "imessage", "not_a_list", "a string"),
    ("channels", {"imessage": 1}, "not_a_list", "an object"),
    ("channels.1", ["imessage", "fax"], "invalid_choice", "an unknown one"),
    ("channels.0", [1], "invalid_choice", "a number in the list"),
    ("channels", ["imessage", "sms", "imessage"], "repeated", "one named twice"),
    ("addresses", [], "invalid", "a list"),
    ("addresses", "token", "invalid", "a string"),
    ("addresses", None, "null", "null"),
    ("addresses.sms", {"sms": "+34600000000"}, "unknown_field", "a channel that goes by the number"),
    ("addresses.push", {"push": ""}, "blank", "nothing"),
    ("addresses.push", {"push": " "}, "invalid", "a space"),
    ("addresses.push", {"push": "a\nb"}, "invalid", "a line break"),
    ("addresses.push", {"push": "a\u200bb"}, "invalid", "an invisible character"),
    ("addresses.push", {"push": "x" * 4_097}, "max_length", "too long"),
    ("addresses.push", {"push": 7}, "invalid", "a number for a token"),
    ("addresses.push", {"push": None}, "null", "null for a token"),
    ("addresses", {}, "address_missing", "none for push"),
    ("channels", ["voice", "push"], "address_missing", "push without an address"),
    ("sender_name", "", "blank", "nothing"),
    ("sender_name", " ACME", "invalid", "a space before it"),
    ("sender_name", "ACME ", "invalid", "a space behind it"),
    ("sender_name", "ACME, Inc", "invalid", "a comma"),
    ("sender_name", "ACME\n", "invalid", "a line break"),
    ("sender_name", "ÁCME", "invalid", "a letter beyond ASCII"),
    ("sender_name", "x" * 21, "max_length", "too long"),
    ("sender_name", 12345, "invalid", "a number"),
    ("region", "", "blank", "nothing"),
    ("region", "fr", "invalid_choice", "a pool that is not ours"),
    ("region", "ES", "invalid_choice", "another spelling"),
    ("region", 34, "invalid", "a number"),
    ("ttl_s", 59, "lifetime_out_of_range", "shorter than the lane allows"),
    ("ttl_s", 0, "min_value", "zero"),
    ("ttl_s", -60, "min_value", "negative"),
    ("ttl_s", 604_801, "max_value", "more than a week"),
    ("ttl_s", "300", "invalid", "a string"),
    ("ttl_s", 300.0, "invalid", "a number with a fraction"),
    ("ttl_s", True, "invalid", "a boolean"),
    ("ttl_s", None, "null", "null"),
    ("ttl_s", 10**400, "max_value", "beyond every integer"),
    ("expires_at", "2026-09-01T12:00:00Z", "already_expired", "now"),
    ("expires_at", "2026-09-01T12:00:59Z", "lifetime_out_of_range", "sooner than the lane allows"),
    ("expires_at", "2026-09-08T12:00:01Z", "lifetime_out_of_range", "later than in a week"),
    ("expires_at", "2026-09-01T13:00:00", "invalid", "no offset"),
    ("expires_at", "2026-09-01", "invalid", "a day"),
    ("expires_at", "tomorrow", "invalid", "a word"),
    ("expires_at", 1_788_264_000, "invalid", "a number"),
    ("expires_at", "9999-12-31T23:59:59-12:00", "invalid", "beyond the calendar"),
    ("expires_at", "0001-01-01T00:00:00+12:00", "invalid", "before the calendar"),
    ("created_at", "2026-09-01T12:00:05.000001Z", "in_the_future", "later than clocks differ"),
    ("created_at", "2026-09-01T11:00:00Z", "already_expired", "its whole lifetime ago"),
    ("created_at", "0001-01-01T00:00:00Z", "already_expired", "long ago"),
    ("created_at", "yesterday", "invalid", "a word"),
    ("first_attempt_within_s", 0, "min_value", "zero"),
    ("first_attempt_within_s", 604_801, "max_value", "more than a week"),
    ("first_attempt_within_s", "15", "invalid", "a string"),
    ("on_late_first", "drop", "invalid_choice", "an unknown one"),
    ("max_attempts", 0, "min_value", "none"),
    ("max_attempts", 11, "max_value", "more than ten"),
    ("max_attempts", False, "invalid", "a boolean"),
    ("max_routes", 0, "min_value", "none"),
    ("max_routes", 11, "max_value", "more than ten"),
    ("max_routes", "3", "invalid", "a string"),
    ("on_unknown", "drop", "invalid_choice", "an unknown one"),
    ("on_unknown", None, "null", "null"),
    ("reference", "x" * 256, "max_length", "too long"),
    ("reference", "a\x00b", "null_characters_not_allowed", "U+0000"),
    ("reference", 42, "invalid", "a number"),
    ("supersede_key", "", "blank", "nothing"),
    ("supersede_key", "x" * 256, "max_length", "too long"),
    ("supersede_key", "a\x00b", "null_characters_not_allowed", "U+0000"),
    ("supersede_key", 42, "invalid", "a number"),
    ("metadata", [], "invalid", "a list"),
    ("metadata", "{}", "invalid", "a string"),
    ("metadata", None, "null", "null"),
    ("metadata", {"a": LONG}, "too_large", "more than 4 KiB"),
    ("metadata", nested(6), "too_deep", "six levels"),
    ("metadata", {"a": ["b\x00"]}, "null_characters_not_allowed", "U+0000 in a value"),
    ("metadata", {"a\x00": 1}, "null_characters_not_allowed", "U+0000 in a name"),
]


@pytest.mark.parametrize(
    ("field", "value", "expected"), [pytest.param(f, v, c, id=f"{f}: {what}") for f, v, c, what in REFUSED]
)
def test_names_the_field_that_is_wrong(api: ClientApi, field: str, value: Any, expected: str) -> None:
    given = field.split(".", maxsplit=1)[0]
    answer = api.send(LEAST | ({"channels": ["push"]} if given == "addresses" else {}) | {given: value})
    assert answer.status_code == 400
    assert fields(answer) == {"addresses" if expected == "address_missing" else field: expected}
    assert nothing_is_stored()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"a": "x" * 4_088}, id="4 KiB"),
        pytest.param(nested(5), id="five levels"),
    ],
)
def test_metadata_at_its_bounds_is_accepted(api: ClientApi, value: dict[str, Any]) -> None:
    assert api.send({**LEAST, "metadata": value}).status_code == 202


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"text": "x"}, id="one character"),
        pytest.param({"text": "\u200b."}, id="one visible character"),
        pytest.param({"text": "a\r\n\tb"}, id="line breaks and tabs"),
        pytest.param({"text": "\u2764\ufe0f \U0001f469\u200d\U0001f4bb"}, id="emoji of several characters"),
        pytest.param({"text": "\u0e23\u0e2b\u0e31\u0e2a \u0645\u064f"}, id="letters with marks"),
        pytest.param({"text": "\U0001f511" * 1_600}, id="1,600 characters that are no letters"),
        pytest.param({"ttl_s": 60}, id="the shortest lifetime of its lane"),
        pytest.param({"ttl_s": 604_800}, id="a week"),
        pytest.param({"expires_at": "2026-09-01T12:01:00Z"}, id="the soonest end of its lane"),
        pytest.param({"created_at": "2026-09-01T11:00:00.000001Z"}, id="a moment to live"),
        pytest.param({"max_attempts": 1}, id="one attempt"),
        pytest.param({"reference": "x" * 255}, id="255 characters of reference"),
        pytest.param({"reference": ""}, id="no reference"),
        pytest.param({"channels": ["voice", "sms", "imessage"]}, id="all channels that go by the number"),
        pytest.param({"channels": ["push"], "addresses": {"push": "x"}}, id="push alone, to one character"),
        pytest.param({"channels": ["sms", "push"], "addresses": {"push": "é" * 4_096}}, id="a long token"),
        pytest.param({"addresses": {}}, id="no addresses"),
        pytest.param({"sender_name": "A"}, id="a sender name of one character"),
        pytest.param({"sender_name": "+34 (ACME) & Co - 24"}, id="a sender name of twenty"),
        pytest.param({"max_routes": 1, "on_unknown": "race"}, id="one route"),
        pytest.param({"max_routes": 10, "on_unknown": "hold"}, id="ten routes"),
        pytest.param({"supersede_key": "x" * 255}, id="255 characters of supersede_key"),
        pytest.param({"metadata": {}}, id="no metadata"),
    ],
)
def test_accepts_what_is_just_allowed(api: ClientApi, more: dict[str, Any]) -> None:
    assert api.send(LEAST | more).status_code == 202


def test_shortest_lifetime_is_the_lanes(api: ClientApi) -> None:
    assert api.send({**LEAST, "ttl_s": 30, "lane": "otp"}).status_code == 202
    assert fields(api.send({**LEAST, "ttl_s": 29, "lane": "otp"})) == {"ttl_s": "lifetime_out_of_range"}
    assert fields(api.send({**LEAST, "ttl_s": 299, "lane": "promo"})) == {"ttl_s": "lifetime_out_of_range"}


@pytest.mark.parametrize("missing", ["to", "text"])
def test_names_the_field_that_is_missing(api: ClientApi, missing: str) -> None:
    answer = api.send({name: value for name, value in LEAST.items() if name != missing})
    assert (answer.status_code, fields(answer)) == (400, {missing: "required"})
    assert nothing_is_stored()


def test_names_every_field_that_it_does_not_know_and_every_bad_one(api: ClientApi) -> None:
    answer = api.send({"to": 5, "text": "x", "route": "sms:one", "copies_left": 5})
    assert fields(answer) == {"to": "invalid", "route": "unknown_field", "copies_left": "unknown_field"}
    assert nothing_is_stored()


def test_a_flood_of_unknown_fields_gets_a_bounded_answer(api: ClientApi) -> None:
    answer = api.send(LEAST | {f"{number}{'x' * 100}": 1 for number in range(500)})
    assert answer.status_code == 400
    assert len(answer.content) < 20_000


def test_refuses_an_address_that_is_not_gone_to(api: ClientApi) -> None:
    answer = api.send({**LEAST, "addresses": {"push": "token"}})
    assert (answer.status_code, fields(answer)) == (400, {"channels": "channel_missing"})
    assert nothing_is_stored()


def test_refuses_two_ends_of_one_lifetime(api: ClientApi) -> None:
    answer = api.send({**LEAST, "ttl_s": 300, "expires_at": "2026-09-01T12:05:00Z"})
    assert (answer.status_code, fields(answer)) == (400, {"expires_at": "not_both"})
    assert nothing_is_stored()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"channels": ["push"]}, "address_missing"),
        ({"expires_at": "2026-09-01T11:59:00Z"}, "already_expired"),
        ({"max_attempts": 0}, "invalid"),
    ],
)
def test_problem_has_a_code_for_programs(api: ClientApi, more: dict[str, Any], expected: str) -> None:
    assert code(api.send(LEAST | more)) == expected


@pytest.mark.parametrize("refused", [[], "text", 5, None, True])
def test_body_that_is_no_object_is_refused(api: ClientApi, refused: Any) -> None:
    answer = api.call("POST", "/api/v1/messages/", json.dumps(refused))
    assert (answer.status_code, code(answer)) == (400, "invalid")
    assert nothing_is_stored()


def test_empty_body_lacks_the_fields_that_are_needed(api: ClientApi) -> None:
    assert fields(api.call("POST", "/api/v1/messages/")) == {"to": "required", "text": "required"}


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("", id="nothing"),
        pytest.param("k" * 256, id="too long"),
        pytest.param("k\x7f", id="a control character"),
        pytest.param("clé", id="not ASCII"),
    ],
)
def test_refuses_an_idempotency_key_that_cannot_be_kept(api: ClientApi, key: str) -> None:
    answer = api.call("POST", "/api/v1/messages/", json.dumps(LEAST), headers={"Idempotency-Key": key})
    assert (answer.status_code, fields(answer)) == (400, {"Idempotency-Key": "invalid"})
    assert nothing_is_stored()


def test_no_pool_for_a_number_is_said_to_be_so(api: ClientApi, settings: Any) -> None:
    settings.POOLS_BY_PREFIX = {"+1": ["us"], "+34": []}
    assert fields(api.send()) == {"to": "no_pool"}
    assert nothing_is_stored()
    assert api.send({**LEAST, "region": "us"}).status_code == 202


def test_never_repeats_a_number_or_a_text_in_a_refusal(api: ClientApi) -> None:
    answer = api.send(
        {
            "to": "600123123",
            "text": "\x00 code 739184",
            "lane": "739184",
            "channels": ["739184"],
            "addresses": {"push": "739184\n"},
            "sender_name": "739184,",
        }
    )
    assert answer.status_code == 400
    assert b"600123123" not in answer.content
    assert b"739184" not in answer.content
