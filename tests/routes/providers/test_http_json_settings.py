"""Which settings the templated provider takes, and that the examples are among them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from otp_service.core.outcomes import ErrorClass, ReportedState, Submission
from otp_service.messages.rules import Channel
from otp_service.routes import providers
from otp_service.routes.providers.base import Posted
from otp_service.routes.providers.http_json import CREDENTIALS, SETTINGS, HttpJson, read_settings
from otp_service.routes.providers.http_json_settings import find
from otp_service.routes.route_rules import RouteKind, RouteSpec, channel_of
from tests.routes.providers.contract_base import NUMBER, PATIENT, RECEIPTS_URL, TEXT, a_claim
from tests.routes.providers.test_http_json_contract import API_KEY, RECEIPT_TOKEN, settings_of
from tests.servers.relay.peers import answers, peer

EXAMPLES = sorted((Path(providers.__file__).parent / "examples").glob("*.json"))
KEYS = {"api_key": API_KEY, "receipt_token": RECEIPT_TOKEN}


def changed(path: str, value: object) -> dict[str, Any]:
    """The settings of the tests with one thing changed; a value of None takes it away."""
    settings = copy.deepcopy(settings_of("https://sms.example.com"))
    *outer, last = path.split(".")
    inner = settings
    for name in outer:
        inner = inner.setdefault(name, {})
    inner[last] = value
    if value is None:
        del inner[last]
    return settings


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("requests", {}, "requests"),
        ("request", None, "request.url"),
        ("request", [], "request"),
        ("request.url", None, "request.url"),
        ("request.url", 7, "request.url"),
        ("request.url", "sms.example.com", "request.url"),
        ("request.url", "ftp://sms.example.com", "request.url"),
        ("request.url", "https://{to}.example.com", "request.url"),
        ("request.url", "https://me:word@example.com", "request.url"),
        ("request.url", "https://[::1", "request.url"),
        ("request.url", "https://x:99999", "request.url"),
        ("request.url", "https://x/{number}", "number"),
        ("request.url", "https://x/send/{text}", "text"),
        ("request.url", "https://x/send/{sender}?text={text}", "sender"),
        ("request.uri", "https://x", "request.uri"),
        ("request.method", "DELETE", "request.method"),
        ("request.method", 7, "request.method"),
        ("request.headers", [], "request.headers"),
        ("request.headers", {"X": 7}, "request.headers.X"),
        ("request.headers", {"X Y": "1"}, "request.headers"),
        ("request.headers", {"X": "a\nb"}, "request.headers.X"),
        ("request.headers", {"X": "{text}"}, "text"),
        ("request.headers", {"Content-Length": "1"}, "request.headers"),
        ("request.body", {"a": ["{provider_message_id}"]}, "provider_message_id"),
        ("request.body", {"a": "{credentials.password}"}, "password"),
        ("request.body", {"a": "{}"}, "request"),
        ("answer", None, "answer.id"),
        ("answer", 7, "answer"),
        ("answer.id", 7, "answer.id"),
        ("answer.id", "data..id", "answer.id"),
        ("answer.id", "data.10000.id", "answer.id must have positions in lists of at most 4 digits"),
        ("receipt.id", "9" * 5_000, "receipt.id must have positions in lists of at most 4 digits"),
        ("answer.status", None, "answer.status"),
        ("answer.accepted", "queued", "answer.accepted"),
        ("answer.accepted", [7], "answer.accepted"),
        ("errors", [], "errors"),
        ("errors", {"E1": "no_such_class"}, "errors"),
        ("errors", {"E1": ["temporary"]}, "errors"),
        ("errors", {"E1": "timeout_after_submit"}, "errors"),
        ("errors", {"E1": "connection_refused"}, "errors"),
        ("states", {"DELIVRD": "arrived"}, "states"),
        ("query.url", "https://x/{text}", "text"),
        ("query.status", None, "query.status"),
        ("receipt.status", None, "receipt.status"),
        ("receipt.signature_header", 7, "receipt.signature_header"),
        ("receipt.signature_header", "X-Signature", "receipt_secret"),
        ("check.url", "https://x/{to}", "to"),
    ],
)
def test_refuses_settings_that_cannot_be(path: str, value: object, named: str) -> None:
    settings = changed(path, value)

    with pytest.raises(ValueError, match=named) as raised:
        read_settings(settings, KEYS)

    assert str(raised.value).endswith(".")
    assert API_KEY not in str(raised.value)


@pytest.mark.parametrize(
    ("credentials", "named"),
    [
        ({"receipt_token": RECEIPT_TOKEN}, "api_key"),
        ({"api_key": API_KEY}, "receipt_token"),
        ({"api_key": f"{API_KEY}\r\nX: y", "receipt_token": RECEIPT_TOKEN}, "api_key"),
        ({"api_key": f"{API_KEY}é", "receipt_token": RECEIPT_TOKEN}, "api_key"),
    ],
    ids=["no key", "no token", "a key of two lines", "a key that is no ASCII"],
)
def test_refuses_credentials_that_do_not_do(credentials: dict[str, str], named: str) -> None:
    with pytest.raises(ValueError, match=named) as raised:
        read_settings(settings_of("https://sms.example.com"), credentials)

    assert API_KEY not in str(raised.value)


def test_takes_what_is_refused_above_when_nothing_is_wrong() -> None:
    described = read_settings(settings_of("https://sms.example.com"), KEYS)

    assert described.errors["E_NUMBER"] is ErrorClass.RECIPIENT_INVALID
    assert described.states["DELIVRD"] is ReportedState.DELIVERED
    assert API_KEY not in repr(described)
    assert set(settings_of("https://x")) == set(SETTINGS)
    assert "receipt_token" in CREDENTIALS


def test_positions_of_four_digits_are_taken() -> None:
    assert read_settings(changed("answer.id", "data.9999.id"), KEYS).answer.id == ("data", "9999", "id")


@pytest.mark.parametrize(
    ("path", "found"), [(("1",), "two"), (("2",), None), (("9" * 5_000,), None)], ids=["there", "too far", "endless"]
)
def test_a_position_stands_for_what_a_list_has_there(path: tuple[str, ...], found: object) -> None:
    assert find(["one", "two"], path) == found


def test_an_answer_may_accept_by_its_word_alone() -> None:
    settings = changed("answer", {"status": "state", "accepted": ["ok"]})

    assert read_settings(settings, KEYS).accepted == {"ok"}


def example(name: str, base_url: str = "") -> RouteSpec:
    """A shipped example as a route; with `base_url`, its provider is there."""
    (path,) = (path for path in EXAMPLES if path.stem == name)
    document = json.loads(path.read_text())
    if base_url:
        host = document["settings"]["request"]["url"].split("/")[2]
        document = json.loads(path.read_text().replace(f"https://{host}", base_url))
    kind = RouteKind.HTTP_JSON
    channel = channel_of(kind, document["name"])
    return RouteSpec(
        document["name"],
        channel,
        kind,
        settings=document["settings"],
        credentials=document["credentials"],
        sender_names=("34600000000",),
        receipts_url=RECEIPTS_URL,
    )


def test_there_is_an_example_of_push_and_one_of_voice() -> None:
    assert {example(path.stem).channel for path in EXAMPLES} == {Channel.PUSH, Channel.VOICE}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.stem))
def test_the_examples_can_be_read(path: Path) -> None:
    spec = example(path.stem)

    assert read_settings(spec.settings, spec.credentials).request.names("text")


@pytest.mark.parametrize(
    ("name", "body", "submission", "error_class"),
    [
        ("push", b'{"id": "b98a", "external_id": null}', Submission.ACCEPTED, None),
        (
            "push",
            b'{"id": "", "errors": ["All included players are not subscribed"]}',
            Submission.REFUSED,
            ErrorClass.RECIPIENT_UNREACHABLE,
        ),
        (
            "voice",
            b'{"messages": [{"messageId": "a", "status": {"groupName": "PENDING"}}]}',
            Submission.ACCEPTED,
            None,
        ),
        (
            "voice",
            b'{"messages": [{"messageId": "a", "status": {"groupName": "REJECTED"}}]}',
            Submission.REFUSED,
            ErrorClass.ROUTE_REJECTED,
        ),
    ],
    ids=["push taken", "push refused", "voice taken", "voice refused"],
)
async def test_the_examples_understand_their_providers(
    session: aiohttp.ClientSession, name: str, body: bytes, submission: Submission, error_class: ErrorClass | None
) -> None:
    async with peer(answers(200, body)) as served:
        result = await HttpJson(PATIENT).submit(session, a_claim(example(name, served.base_url)))

    assert (result.submission, result.error_class) == (submission, error_class)
    sent = json.dumps(json.loads(served.requests[0].body))
    assert TEXT in sent
    assert NUMBER.removeprefix("+") in sent


def test_the_voice_example_reads_its_receipts() -> None:
    spec = example("voice")
    body = b'{"results": [{"messageId": "a1", "status": {"groupName": "DELIVERED", "name": "DELIVERED_TO_HANDSET"}}]}'
    url = f"{RECEIPTS_URL}?t={spec.credentials['receipt_token'].replace(' ', '+')}"

    (receipt,) = HttpJson().receipts(spec, Posted("POST", url, {}, body))

    assert (receipt.state, receipt.provider_message_id) == (ReportedState.DELIVERED, "a1")
