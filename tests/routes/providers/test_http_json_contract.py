"""The templated provider against peers that misbehave, and its table of outcomes."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import aiohttp
import pytest

from otp_service.core.http import Timeouts
from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState
from otp_service.messages.rules import Channel
from otp_service.routes.providers.base import NotGenuine, OutsideProvider, Posted
from otp_service.routes.providers.http_json import HttpJson
from otp_service.routes.route_rules import RouteKind, RouteSpec
from tests.routes.providers.contract import ProviderContract
from tests.routes.providers.contract_base import (
    ATTEMPT,
    PATIENT,
    RECEIPTS_URL,
    Refused,
    Reported,
    a_question,
    payload,
)
from tests.routes.providers.contract_receipts import ReceiptsContract
from tests.servers.relay.peers import Reply, answers, peer

ID = "774411"
RECEIPT_TOKEN = "a-token-of-receipts"
RECEIPT_SECRET = "a-secret-of-receipts"
API_KEY = "a-key-of-the-api"


def settings_of(base_url: str) -> dict[str, Any]:
    return {
        "request": {
            "url": f"{base_url}/v1/messages",
            "headers": {"Authorization": "Bearer {credentials.api_key}", "X-Request-Id": "{attempt_id}"},
            "body": {
                "messages": [{"to": "{to}", "text": "{text}", "from": "{sender}"}],
                "reference": "{attempt_id}",
                "ttl": "{ttl_s}",
                "callback": "{receipts_url}",
            },
        },
        "answer": {
            "id": "data.messages.0.id",
            "status": "data.messages.0.state",
            "accepted": ["queued"],
            "code": "error.code",
        },
        "errors": {
            "E_NUMBER": "recipient_invalid",
            "E_OPTOUT": "recipient_unreachable",
            "E_BUSY": "temporary",
            "402": "route_rejected",
        },
        "states": {"ENROUTE": "sent", "DELIVRD": "delivered", "UNDELIV": "failed"},
        "query": {
            "url": f"{base_url}/v1/messages/{{provider_message_id}}",
            "headers": {"Authorization": "Bearer {credentials.api_key}"},
            "id": "id",
            "status": "status",
            "code": "err",
        },
        "receipt": {"list": "events", "attempt": "ref", "id": "id", "status": "state", "code": "err"},
        "check": {"url": f"{base_url}/v1/balance", "headers": {"Authorization": "Bearer {credentials.api_key}"}},
    }


def http_json_spec(base_url: str) -> RouteSpec:
    return RouteSpec(
        name="sms:one",
        channel=Channel.SMS,
        kind=RouteKind.HTTP_JSON,
        settings=settings_of(base_url),
        credentials={"api_key": API_KEY, "receipt_token": RECEIPT_TOKEN},
        sender_names=("ACME",),
        receipts_url=RECEIPTS_URL,
    )


def signing_spec(base_url: str) -> RouteSpec:
    spec = http_json_spec(base_url)
    receipt = {**spec.settings["receipt"], "signature_header": "X-Signature"}
    credentials = {"api_key": API_KEY, "receipt_secret": RECEIPT_SECRET}
    return replace(spec, settings={**spec.settings, "receipt": receipt}, credentials=credentials)


def said(status: int, case: str, **headers: str) -> Reply:
    return answers(status, payload("http_json", f"{case}.json"), **headers)


def receipt(
    state: ReportedState,
    error_class: ErrorClass | None = None,
    code: int | None = None,
    *,
    attempt: UUID | None = ATTEMPT,
    provider_id: str = ID,
) -> Receipt:
    return Receipt(state, attempt, provider_id, error_class=error_class, error_code=code)


ROUTE, THROTTLED, TEMPORARY = ErrorClass.ROUTE_REJECTED, ErrorClass.THROTTLED, ErrorClass.TEMPORARY
DELIVERED, FAILED = ReportedState.DELIVERED, ReportedState.FAILED


class TestHttpJson(ProviderContract):
    CAN_BE_ASKED = True
    ACCEPTANCE = (said(200, "accepted"), ID)
    NONSENSE = (
        answers(200),
        answers(200, b"OK"),
        answers(200, b"[]"),
        answers(202, b"{}"),
        answers(200, b'{"data": {"messages": [{"id": null, "state": "queued"}]}}'),
        answers(200, b'{"data": {"messages": [{"id": "", "state": "queued"}]}}'),
        answers(200, b'{"data": {"messages": [{"id": "..", "state": "queued"}]}}'),
        answers(200, b'{"data": {"messages": [{"id": "7", "state": "lost"}]}}'),
        answers(200, b'{"data": {"messages": [{"id": "7"}]}}'),
        answers(200, b'{"data": {"messages": {"0": 7}}}'),
        answers(200, b"[" * 60_000),
        answers(204),
    )
    REFUSALS = (
        Refused("400 without words", answers(400), ROUTE),
        Refused("401", answers(401, b"{}"), ROUTE),
        Refused("403", answers(403, b"<h1>Forbidden</h1>"), ROUTE),
        Refused("no number", said(422, "error_number"), ErrorClass.RECIPIENT_INVALID),
        Refused("no balance", said(402, "error_balance"), ROUTE, 402),
        Refused("a new code", said(400, "error_new"), ROUTE),
        Refused("an error with 200", said(200, "accepted_with_error"), ErrorClass.RECIPIENT_UNREACHABLE),
        Refused("503 in its own words", said(503, "error_busy"), TEMPORARY),
        Refused("429", answers(429), THROTTLED),
        Refused("429 with seconds", answers(429, Retry_After="7"), THROTTLED, None, dt.timedelta(seconds=7)),
        Refused("429 with nonsense", answers(429, Retry_After="soon"), THROTTLED),
    )
    REPORTS = (
        Reported("delivered", payload("http_json", "receipt_delivered.json"), [receipt(DELIVERED)]),
        Reported("failed", payload("http_json", "receipt_failed.json"), [receipt(FAILED, ROUTE, 402)]),
        Reported(
            "failed with a new code", payload("http_json", "receipt_failed_new_code.json"), [receipt(FAILED, TEMPORARY)]
        ),
        Reported(
            "many, of which two are none",
            payload("http_json", "receipt_many.json"),
            [
                receipt(ReportedState.SENT, attempt=None),
                receipt(DELIVERED, attempt=None, provider_id="774412"),
            ],
        ),
        Reported(
            "a new state, and our id in the address",
            payload("http_json", "receipt_new_state.json"),
            [receipt(ReportedState.UNKNOWN)],
        ),
    )
    UNREADABLE = (
        b"",
        b"nonsense",
        b"null",
        b"\xff",
        b"[" * 60_000,
        b'{"events": 7}',
        b'{"events": [' + b"{}," * 1000 + b"{}]}",
        payload("http_json", "receipt_no_status.json"),
    )

    def provider_with(self, timeouts: Timeouts) -> OutsideProvider:
        return HttpJson(timeouts)

    def spec_of(self, base_url: str) -> RouteSpec:
        return http_json_spec(base_url)

    def posted(self, spec: RouteSpec, payload: bytes) -> Posted:
        return Posted("POST", f"{RECEIPTS_URL}?attempt={ATTEMPT}&t={RECEIPT_TOKEN}", {}, payload)

    def forged(self, spec: RouteSpec, payload: bytes) -> Mapping[str, Posted]:
        genuine = self.posted(spec, payload)
        return {
            "without a token": replace(genuine, url=RECEIPTS_URL),
            "with an empty token": replace(genuine, url=f"{RECEIPTS_URL}?t="),
            "with another token": replace(genuine, url=f"{RECEIPTS_URL}?t=another"),
            "with a token that is no ASCII": replace(genuine, url=f"{RECEIPTS_URL}?t=%ff"),
            "with the token elsewhere": replace(genuine, url=f"{RECEIPTS_URL}?token={RECEIPT_TOKEN}"),
            "without an address": replace(genuine, url="http://[::1"),
        }


class TestHttpJsonThatSigns(ReceiptsContract):
    """The same provider, with receipts that are genuine by a header. Ids in the address are not signed."""

    REPORTS = (
        *TestHttpJson.REPORTS[:4],
        Reported(
            "a new state",
            payload("http_json", "receipt_new_state.json"),
            [receipt(ReportedState.UNKNOWN, attempt=None)],
        ),
    )
    UNREADABLE = (*TestHttpJson.UNREADABLE, payload("http_json", "receipt_no_id.json"))

    def provider_with(self, timeouts: Timeouts) -> OutsideProvider:
        return HttpJson(timeouts)

    def spec_of(self, base_url: str) -> RouteSpec:
        return signing_spec(base_url)

    def posted(self, spec: RouteSpec, payload: bytes) -> Posted:
        offered = hmac.digest(RECEIPT_SECRET.encode(), payload, hashlib.sha256).hex()
        return Posted("POST", f"{RECEIPTS_URL}?attempt={ATTEMPT}", {"x-signature": offered}, payload)

    def forged(self, spec: RouteSpec, payload: bytes) -> Mapping[str, Posted]:
        genuine = self.posted(spec, payload)
        other = hmac.digest(b"another", payload, hashlib.sha256).hex()
        return {
            "unsigned": replace(genuine, headers={}),
            "with another secret": replace(genuine, headers={"x-signature": other}),
            "with another body": replace(genuine, body=payload + b" "),
            "with a signature that is no ASCII": replace(genuine, headers={"x-signature": "\udc80é"}),
            "with the token of others": replace(genuine, headers={}, url=f"{RECEIPTS_URL}?t={RECEIPT_TOKEN}"),
        }


@pytest.mark.parametrize("written", ["hex", "HEX", "sha256=hex", "base64"])
def test_a_signature_may_be_written_as_providers_do(written: str) -> None:
    body = payload("http_json", "receipt_delivered.json")
    digest = hmac.digest(RECEIPT_SECRET.encode(), body, hashlib.sha256)
    offered = {
        "hex": digest.hex(),
        "HEX": digest.hex().upper(),
        "sha256=hex": f"sha256={digest.hex()}",
        "base64": base64.b64encode(digest).decode(),
    }[written]

    posted = Posted("POST", RECEIPTS_URL, {"x-signature": offered}, body)

    assert HttpJson().receipts(signing_spec("http://127.0.0.1:9"), posted)


@pytest.mark.parametrize("changes", [{"receipt": {}}, {"receipt": 7}], ids=["none", "unreadable"])
def test_nothing_is_genuine_where_receipts_are_not_described(changes: dict[str, Any]) -> None:
    spec = http_json_spec("http://127.0.0.1:9")
    spec = replace(spec, settings={**spec.settings, **changes})

    with pytest.raises(NotGenuine):
        HttpJson().receipts(spec, Posted("POST", f"{RECEIPTS_URL}?t={RECEIPT_TOKEN}", {}, b"{}"))


@pytest.mark.parametrize(
    ("reply", "answered", "state", "code"),
    [
        (answers(200, b'{"id": 774411, "status": "DELIVRD"}'), True, DELIVERED, None),
        (answers(200, b'{"status": "UNDELIV", "err": "402"}'), True, FAILED, 402),
        (answers(404, b"{}"), True, ReportedState.NOT_FOUND, None),
        (answers(500, b'{"status": "DELIVRD"}'), False, ReportedState.UNKNOWN, None),
    ],
    ids=["delivered", "failed", "not found", "500"],
)
async def test_an_answer_to_a_question_is_understood(
    session: aiohttp.ClientSession, reply: Reply, answered: bool, state: ReportedState, code: int | None
) -> None:
    async with peer(reply) as served:
        report = await HttpJson(PATIENT).query(session, a_question(http_json_spec(served.base_url), ID))

    assert report is not None
    assert (report.answered, report.state, report.error_code) == (answered, state, code)
    if state in {DELIVERED, FAILED}:
        assert report.provider_message_id == ID
    assert served.requests[0].path == f"/v1/messages/{ID}"
    assert served.requests[0].headers["authorization"] == f"Bearer {API_KEY}"


async def test_nobody_is_asked_without_the_id_that_the_question_needs(session: aiohttp.ClientSession) -> None:
    async with peer(answers(200)) as served:
        assert await HttpJson(PATIENT).query(session, a_question(http_json_spec(served.base_url), "")) is None
        assert served.connections == 0


@pytest.mark.parametrize(("status", "ok"), [(200, True), (204, True), (401, False), (302, False), (503, False)])
async def test_the_check_says_whether_it_was_answered_well(
    session: aiohttp.ClientSession, status: int, ok: bool
) -> None:
    async with peer(answers(status)) as served:
        health = await HttpJson(PATIENT).check(session, http_json_spec(served.base_url))

    assert health.ok is ok
    assert health.detail.endswith(".")
