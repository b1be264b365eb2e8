"""Signatures by themselves, and against the `standardwebhooks` library, which shares no code with ours."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable

import pytest
import time_machine
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from otp_service.core.signing import (
    ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    TOLERANCE,
    SecretError,
    SignatureError,
    SignatureFault,
    new_secret,
    sign,
    signature_headers,
    verify,
)

NOW = dt.datetime(2026, 9, 1, 12, 0, tzinfo=dt.UTC)
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER_SECRET = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()
BODY = '{"type": "delivered", "text": "код"}'.encode()

#: How long one example takes says how busy the machine is, nothing else.
patiently = settings(deadline=None)

keys = st.binary(min_size=1, max_size=64)
secrets_texts = keys.map(lambda key: "whsec_" + base64.b64encode(key).decode())
ids = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=60)
bodies = st.text(max_size=200).map(lambda text: text.encode(errors="ignore"))
moments = st.integers(10**9, 4 * 10**9).map(lambda second: dt.datetime.fromtimestamp(second, dt.UTC))


def headers_for(body: bytes = BODY, *, secrets: tuple[str, ...] = (SECRET,), now: dt.datetime = NOW) -> dict[str, str]:
    return signature_headers(secrets, message_id="msg_1", now=now, body=body)


@patiently
@given(secret=secrets_texts, message_id=ids, body=bodies, now=moments)
def test_the_library_verifies_what_we_sign(secret: str, message_id: str, body: bytes, now: dt.datetime) -> None:
    headers = signature_headers([secret], message_id=message_id, now=now, body=body)

    with time_machine.travel(now, tick=False):
        Webhook(secret).verify(body, headers, json_parse=False)


@patiently
@given(secret=secrets_texts, message_id=ids, body=bodies, now=moments)
def test_we_verify_what_the_library_signs(secret: str, message_id: str, body: bytes, now: dt.datetime) -> None:
    signature = Webhook(secret).sign(message_id, now, body.decode())
    headers = {
        "Webhook-Id": message_id,
        "Webhook-Timestamp": str(int(now.timestamp())),
        "Webhook-Signature": signature,
    }

    verify([secret], headers, body, now=now)


@patiently
@given(secret=secrets_texts, other=secrets_texts, body=bodies)
def test_the_library_and_we_refuse_another_secret(secret: str, other: str, body: bytes) -> None:
    if Webhook(secret)._whsecret.rstrip(b"\x00") == Webhook(other)._whsecret.rstrip(b"\x00"):
        return  # HMAC pads short keys with zeros: these two are one key
    headers = headers_for(body, secrets=(other,))

    with pytest.raises(SignatureError):
        verify([secret], headers, body, now=NOW)
    with time_machine.travel(NOW, tick=False), pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body, headers, json_parse=False)


def test_signs_the_published_example_of_standard_webhooks() -> None:
    signature = sign(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )

    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_signs_with_every_secret_during_a_rotation() -> None:
    headers = headers_for(secrets=(SECRET, OTHER_SECRET))

    assert headers[SIGNATURE_HEADER].count("v1,") == 2
    verify([SECRET], headers, BODY, now=NOW)
    verify([OTHER_SECRET], headers, BODY, now=NOW)


@pytest.mark.parametrize("signer", [SECRET, OTHER_SECRET], ids=["old", "new"])
def test_accepts_either_secret_during_a_rotation(signer: str) -> None:
    verify([SECRET, OTHER_SECRET], headers_for(secrets=(signer,)), BODY, now=NOW)


def test_ignores_signatures_of_other_versions_beside_a_good_one() -> None:
    headers = headers_for()
    headers[SIGNATURE_HEADER] = f"v1a,bm8= nonsense v1 v1,%% {headers[SIGNATURE_HEADER]}"

    verify([SECRET], headers, BODY, now=NOW)


@pytest.mark.parametrize(
    "offset",
    [dt.timedelta(0), TOLERANCE, -TOLERANCE],
    ids=["now", "exactly 5 minutes old", "exactly 5 minutes ahead"],
)
def test_accepts_a_timestamp_within_the_tolerance(offset: dt.timedelta) -> None:
    verify([SECRET], headers_for(now=NOW - offset), BODY, now=NOW)


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        (TOLERANCE + dt.timedelta(seconds=1), SignatureFault.TOO_OLD),
        (-TOLERANCE - dt.timedelta(seconds=1), SignatureFault.TOO_NEW),
    ],
    ids=["old", "ahead"],
)
def test_refuses_a_timestamp_a_second_outside_the_tolerance(offset: dt.timedelta, reason: SignatureFault) -> None:
    with pytest.raises(SignatureError) as refusal:
        verify([SECRET], headers_for(now=NOW - offset), BODY, now=NOW)

    assert refusal.value.reason is reason


def changed(name: str, value: str) -> Callable[[dict[str, str]], dict[str, str]]:
    return lambda headers: {**headers, name: value}


def without(name: str) -> Callable[[dict[str, str]], dict[str, str]]:
    return lambda headers: {key: value for key, value in headers.items() if key != name}


MISSING, MALFORMED, NO_MATCH = SignatureFault.MISSING_HEADER, SignatureFault.MALFORMED_HEADER, SignatureFault.NO_MATCH


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without(ID_HEADER), MISSING),
        (without(TIMESTAMP_HEADER), MISSING),
        (without(SIGNATURE_HEADER), MISSING),
        (changed(SIGNATURE_HEADER, ""), MISSING),
        (changed(ID_HEADER, "msg_2"), NO_MATCH),
        (changed(ID_HEADER, "m\ud800"), MALFORMED),
        (changed(ID_HEADER, "a" * 257), MALFORMED),
        (changed(ID_HEADER, "a\nb"), MALFORMED),
        (changed(TIMESTAMP_HEADER, "soon"), MALFORMED),
        (changed(TIMESTAMP_HEADER, "-1"), MALFORMED),
        (changed(TIMESTAMP_HEADER, "1e9"), MALFORMED),
        (changed(TIMESTAMP_HEADER, "nan"), MALFORMED),
        (changed(TIMESTAMP_HEADER, "²"), MALFORMED),
        (changed(TIMESTAMP_HEADER, "9" * 5000), MALFORMED),
        (changed(TIMESTAMP_HEADER, str(int(NOW.timestamp()) + 1)), NO_MATCH),
        (changed(SIGNATURE_HEADER, "v1"), NO_MATCH),
        (changed(SIGNATURE_HEADER, "v1,"), NO_MATCH),
        (changed(SIGNATURE_HEADER, "v1,****"), NO_MATCH),
        (changed(SIGNATURE_HEADER, "v1,код"), NO_MATCH),
        (changed(SIGNATURE_HEADER, "v1,YWJj"), NO_MATCH),
        (changed(SIGNATURE_HEADER, " ".join(["v1,YWJj"] * 17)), MALFORMED),
    ],
)
def test_refuses_headers_that_are_not_right(
    change: Callable[[dict[str, str]], dict[str, str]], reason: SignatureFault
) -> None:
    with pytest.raises(SignatureError) as refusal:
        verify([SECRET], change(headers_for()), BODY, now=NOW)

    assert refusal.value.reason is reason
    assert refusal.value.status == 401


def test_refuses_a_body_that_differs_in_one_space() -> None:
    with pytest.raises(SignatureError):
        verify([SECRET], headers_for(), BODY + b" ", now=NOW)


@patiently
@given(headers=st.dictionaries(st.sampled_from([ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER]), st.text()))
def test_whatever_the_headers_are_nothing_but_a_refusal_comes_out(headers: dict[str, str]) -> None:
    with pytest.raises(SignatureError):
        verify([SECRET], headers, BODY, now=NOW)


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_", "whsec_***", "whsec_abcde", "whsec_ключ", f"{SECRET}\n", "whsec_===="],
)
def test_an_unusable_secret_of_ours_is_our_own_error_and_is_not_shown(secret: str) -> None:
    with pytest.raises(SecretError) as error:
        verify([secret], headers_for(), BODY, now=NOW)

    assert str(error.value) in {"A signing secret is empty.", "A signing secret is not whsec_<base64>."}
    assert error.value.__cause__ is None
    assert error.value.status == 503


@pytest.mark.parametrize("secrets", [[], SECRET], ids=["none", "a text in place of a list"])
def test_a_missing_list_of_secrets_is_our_own_error(secrets: list[str]) -> None:
    with pytest.raises(SecretError):
        verify(secrets, headers_for(), BODY, now=NOW)
    with pytest.raises(SecretError):
        signature_headers(secrets, message_id="msg_1", now=NOW, body=BODY)


def test_a_secret_may_come_without_its_prefix_and_padding() -> None:
    bare = SECRET.removeprefix("whsec_").rstrip("=")

    verify([bare], headers_for(), BODY, now=NOW)


def test_a_new_secret_is_32_fresh_bytes() -> None:
    first, second = new_secret(), new_secret()

    assert first != second
    assert len(base64.b64decode(first.removeprefix("whsec_"), validate=True)) == 32
    verify([first], headers_for(secrets=(first,)), BODY, now=NOW)
