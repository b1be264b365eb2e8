"""One key, one message."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.http import HttpResponse

from otp_service.core.crypto import KeyedHash
from otp_service.messages.models import Flow, IdempotencyKey, Message, Ready
from otp_service.web import fields
from tests.messages.client_api import LEAST, MESSAGES, ClientApi, code
from tests.messages.conftest import stop_the_clock

OTP = {**LEAST, "lane": "otp"}


def is_replay(answer: HttpResponse, first: HttpResponse) -> bool:
    assert (answer.status_code, answer["Idempotent-Replayed"]) == (202, "true")
    assert answer["Location"] == first["Location"]
    return answer.content == first.content and Message.objects.count() == Ready.objects.count() == 1


def test_same_key_and_body_is_answered_as_before(api: ClientApi) -> None:
    first = api.send(OTP, key="k")
    assert not first.has_header("Idempotent-Replayed")
    assert is_replay(api.send(OTP, key="k"), first)


def test_answer_is_repeated_after_the_message_has_moved_on(api: ClientApi, now: dt.datetime) -> None:
    first = api.send(OTP, key="k")
    api.call("POST", f"{first['Location']}cancel/")
    again = api.send(OTP, key="k")
    assert (again.status_code, again.content) == (202, first.content)


@pytest.mark.parametrize(
    "spelling",
    [
        pytest.param(dict(reversed(OTP.items())), id="other order"),
        pytest.param({**OTP, "to": "0034 600 000 000"}, id="number written otherwise"),
        pytest.param(
            {**OTP, "channels": ["imessage", "sms"], "addresses": {}, "reference": "", "metadata": {}},
            id="defaults written out",
        ),
    ],
)
def test_spelling_does_not_make_another_request(api: ClientApi, spelling: dict[str, Any]) -> None:
    first = api.send(OTP, key="k")
    assert is_replay(api.send(spelling, key="k"), first)


@pytest.mark.parametrize(
    "more",
    [
        {"text": "Your code is 654321"},
        {"to": "+34600000001"},
        {"lane": "promo"},
        {"ttl_s": 299},
        {"channels": ["sms", "imessage"]},
        {"region": "es"},
        {"reference": "r"},
        {"metadata": {"a": 1}},
        {"created_at": "2026-09-01T12:00:00Z"},
        {"max_attempts": 4},
        {"max_routes": 3},
        {"on_unknown": "race"},
        {"sender_name": "ACME"},
        {"supersede_key": "login"},
    ],
    ids=lambda more: next(iter(more)),
)
def test_same_key_with_another_body_is_refused(api: ClientApi, more: dict[str, Any]) -> None:
    api.send(OTP, key="k")
    answer = api.send(OTP | more, key="k")
    assert (answer.status_code, code(answer)) == (422, "idempotency_key_reused")
    assert Message.objects.count() == Ready.objects.count() == IdempotencyKey.objects.count() == 1


def test_another_address_is_another_request(api: ClientApi) -> None:
    push = {**OTP, "channels": ["push"], "addresses": {"push": "one"}}
    first = api.send(push, key="k")
    assert is_replay(api.send(push, key="k"), first)
    assert code(api.send({**push, "addresses": {"push": "two"}}, key="k")) == "idempotency_key_reused"


def test_another_key_is_another_message(api: ClientApi) -> None:
    assert api.send(OTP, key="k").content != api.send(OTP, key="K").content
    assert Message.objects.count() == 2


def test_no_key_is_another_message_each_time(api: ClientApi) -> None:
    assert api.send(OTP).content != api.send(OTP).content
    assert not IdempotencyKey.objects.exists()


def test_key_of_every_printable_character_is_kept(api: ClientApi) -> None:
    key = "".join(map(chr, range(0x21, 0x7F)))
    first = api.send(OTP, key=key)
    assert is_replay(api.send(OTP, key=key), first)


def test_refusal_is_not_stored(api: ClientApi) -> None:
    assert api.send({**OTP, "max_attempts": 0}, key="k").status_code == 400
    assert api.send({**OTP, "channels": ["push"]}, key="k").status_code == 400
    assert not IdempotencyKey.objects.exists()
    assert api.send(OTP, key="k").status_code == 202


def test_what_was_accepted_in_time_is_repeated_after_its_end(
    api: ClientApi, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = {**OTP, "expires_at": "2026-09-01T12:01:00Z"}
    first = api.send(ending, key="k")
    stop_the_clock(monkeypatch, now + dt.timedelta(hours=1))
    assert is_replay(api.send(ending, key="k"), first)
    assert code(api.send({**ending, "text": "Another"}, key="k")) == "idempotency_key_reused"
    assert code(api.send(ending, key="another")) == "already_expired"


def test_lane_whose_defaults_have_changed_is_the_same_request(api: ClientApi, settings: Any) -> None:
    first = api.send(OTP, key="k")
    settings.LANE_DEFAULTS = {**settings.LANE_DEFAULTS, "otp": {**settings.LANE_DEFAULTS["otp"], "ttl_s": 240}}
    assert is_replay(api.send(OTP, key="k"), first)


def test_answer_survives_a_rotation_of_the_hash_key(api: ClientApi, monkeypatch: pytest.MonkeyPatch) -> None:
    first = api.send(OTP, key="k")
    new = KeyedHash("new", b"n" * 32)
    known = (new, *fields.keyed_hashes())
    for module in ("otp_service.web.fields", "otp_service.messages.idempotency"):
        monkeypatch.setattr(f"{module}.keyed_hash", lambda: new)
        monkeypatch.setattr(f"{module}.keyed_hashes", lambda: known)
    assert is_replay(api.send(OTP, key="k"), first)
    assert code(api.send({**OTP, "text": "Another"}, key="k")) == "idempotency_key_reused"


def test_nothing_of_the_request_is_readable_in_what_is_kept(api: ClientApi) -> None:
    api.send({**OTP, "text": "Your code is 739184"}, key="k")
    kept = IdempotencyKey.objects.values().get()
    assert len(bytes(kept["fingerprint"])) == 32
    assert "739184" not in str(kept)
    assert "600000000" not in str(kept)


def test_refused_repetition_makes_no_flow(api: ClientApi) -> None:
    api.send(OTP, key="k")
    api.send({**OTP, "lane": "promo"}, key="k")
    assert Flow.objects.get().lane == "otp"
    assert api.get(MESSAGES).status_code == 200
