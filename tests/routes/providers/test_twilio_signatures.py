"""Our check of signatures and that of the official library say the same of genuine and of forged posts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from urllib.parse import parse_qs, parse_qsl, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twilio.request_validator import RequestValidator  # type: ignore[import-untyped]  # it ships no types

from otp_service.routes.providers.base import NotGenuine, Posted, Unreadable
from otp_service.routes.providers.twilio import Twilio, signature
from tests.routes.providers.contract_base import ATTEMPT, payload
from tests.routes.providers.test_twilio_contract import TOKEN, twilio_spec

ADDRESS = f"otp.example.com{{port}}/webhooks/providers/sms:one/?attempt={ATTEMPT}"
BODY = payload("twilio", "receipt_delivered.txt")
FORM = "application/x-www-form-urlencoded"


class _Form(dict[str, list[str]]):
    """A form as the library reads one: a name may stand twice."""

    def getlist(self, name: str) -> list[str]:
        return self[name]


def ours(posted: Posted) -> bool:
    try:
        Twilio().receipts(twilio_spec("https://api.twilio.com"), posted)
    except NotGenuine:
        return False
    except Unreadable:
        return True
    return True


def theirs(posted: Posted) -> bool:
    is_json = posted.headers["content-type"] == "application/json"
    text = posted.body.decode()
    parameters = text if is_json else _Form(parse_qs(text, keep_blank_values=True))
    return bool(RequestValidator(TOKEN).validate(posted.url, parameters, posted.headers["x-twilio-signature"]))


def signed_by_them(url: str, body: bytes) -> Posted:
    parameters = _Form(parse_qs(body.decode(), keep_blank_values=True))
    offered = RequestValidator(TOKEN).compute_signature(url, parameters)
    return Posted("POST", url, {"content-type": FORM, "x-twilio-signature": offered}, body)


@pytest.mark.parametrize(
    ("scheme", "signed_port", "seen_port"),
    [
        ("https", "", ""),
        ("https", ":443", ""),
        ("https", "", ":443"),
        ("http", ":80", ""),
        ("http", "", ":8000"),
        ("http", ":8000", ":8000"),
    ],
)
def test_both_take_an_address_with_and_without_its_port(scheme: str, signed_port: str, seen_port: str) -> None:
    signed_url, seen_url = (f"{scheme}://{ADDRESS.format(port=port)}" for port in (signed_port, seen_port))
    posted = replace(signed_by_them(signed_url, BODY), url=seen_url)

    assert theirs(posted)
    assert ours(posted)


URL = f"https://{ADDRESS.format(port='')}"


@pytest.mark.parametrize(
    "changes",
    [
        {"url": URL.replace("https:", "http:")},
        {"url": URL.replace("sms:one", "sms:two")},
        {"url": URL.replace("6f1c", "7f1c")},
        {"url": URL + "&more=1"},
        {"url": URL.replace("example.com/", "example.com:8443/").replace("otp.", "www.")},
        {"body": BODY.replace(b"delivered", b"failed")},
        {"body": BODY + b"&ErrorCode=30003"},
        {"body": b""},
        {"headers": {"content-type": FORM, "x-twilio-signature": ""}},
        {"headers": {"content-type": FORM, "x-twilio-signature": "AAAA"}},
        {"headers": {"content-type": FORM, "x-twilio-signature": signature("another", URL, [])}},
    ],
    ids=[
        "scheme",
        "route",
        "attempt",
        "longer address",
        "another host",
        "another status",
        "one more value",
        "no body",
        "no signature",
        "a short signature",
        "another token",
    ],
)
def test_both_refuse_what_differs_in_one_thing(changes: dict[str, object]) -> None:
    posted = replace(signed_by_them(URL, BODY), **changes)  # type: ignore[arg-type]  # the values are of many types

    assert not theirs(posted)
    assert not ours(posted)


def _signed_json(body: bytes, digest_of: bytes) -> Posted:
    url = f"{URL}&bodySHA256={hashlib.sha256(digest_of).hexdigest()}"
    offered = RequestValidator(TOKEN).compute_signature(url, {})
    return Posted("POST", url, {"content-type": "application/json", "x-twilio-signature": offered}, body)


def test_both_take_json_with_its_digest_and_refuse_another() -> None:
    body = json.dumps({"MessageSid": "SM1", "MessageStatus": "failed", "ErrorCode": 30005}).encode()
    genuine, forged = _signed_json(body, body), _signed_json(body, b"{}")

    assert theirs(genuine)
    assert not theirs(forged)
    assert not ours(forged)
    (receipt,) = Twilio().receipts(twilio_spec("https://api.twilio.com"), genuine)
    assert (receipt.provider_message_id, receipt.error_code) == ("SM1", 30005)


def test_json_whose_digest_is_not_in_the_address_is_not_genuine() -> None:
    offered = RequestValidator(TOKEN).compute_signature(URL, {})
    headers = {"content-type": "application/json", "x-twilio-signature": offered}

    assert not ours(Posted("POST", URL, headers, b'{"MessageSid": "SM1", "MessageStatus": "failed"}'))


def test_nothing_is_genuine_without_a_token() -> None:
    spec = replace(twilio_spec("https://api.twilio.com"), credentials={})
    headers = {"content-type": FORM, "x-twilio-signature": signature("", URL, [])}

    with pytest.raises(NotGenuine):
        Twilio().receipts(spec, Posted("POST", URL, headers, b""))


_NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@settings(max_examples=40)
@given(st.lists(st.tuples(_NAMES, _NAMES), max_size=6))
def test_both_sign_any_form_alike(pairs: list[tuple[str, str]]) -> None:
    body = urlencode(pairs)
    parameters = parse_qsl(body, keep_blank_values=True)

    assert signature(TOKEN, URL, parameters) == RequestValidator(TOKEN).compute_signature(
        URL, _Form(parse_qs(body, keep_blank_values=True))
    )
