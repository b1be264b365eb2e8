"""What the native adapter writes on the wire, checked by code that is not ours, and how it reads answers."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import replace

import aiohttp
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from otp_service.core.http import CONNECT_TIMEOUT, RETRY_AFTER_LIMIT, TOTAL_TIMEOUT, retry_after
from otp_service.core.outcomes import ErrorClass, ReportedState, StatusReport, Submission
from servers.relay.base import HostAddress, HostHealth
from servers.relay.native import NativeRelay
from tests.servers.relay.contract_base import NUMBER, OTHER_SECRET, SECRET, TEXT, a_send
from tests.servers.relay.peers import Peer, answers, peer

ATTEMPT = uuid.UUID("0b8f7d0e-3c7a-4a2e-9a55-6f1d2c3b4a59")
NOW = dt.datetime(2026, 9, 1, 12, 0, tzinfo=dt.UTC)


def address_of(peer: Peer, path: str = "/hosts/7") -> HostAddress:
    return HostAddress(host_id=1, number=7, base_url=peer.base_url + path, secrets=(SECRET,))


async def test_posts_the_attempt_as_the_protocol_says(session: aiohttp.ClientSession) -> None:
    send = a_send()
    async with peer(answers(503)) as host:
        await NativeRelay().submit(session, address_of(host), send)
    (request,) = host.requests

    assert (request.method, request.path) == ("POST", "/hosts/7/v1/sends")
    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.body) == {
        "attempt_id": str(send.attempt_uuid),
        "unit": 228,
        "to": NUMBER,
        "text": TEXT,
        "service": "imessage",
        "expires_at": send.expires_at.isoformat(),
        "submit_by": send.submit_by.isoformat(),
    }


async def test_the_signature_on_a_submission_is_verified_by_the_library(session: aiohttp.ClientSession) -> None:
    async with peer(answers(503)) as host:
        await NativeRelay().submit(session, address_of(host), a_send())
    (request,) = host.requests

    Webhook(SECRET).verify(request.body, request.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER_SECRET).verify(request.body, request.headers)


async def test_a_host_that_gets_a_new_secret_may_know_either_of_the_two(session: aiohttp.ClientSession) -> None:
    async with peer(answers(503)) as host:
        rotated = replace(address_of(host), secrets=(OTHER_SECRET, SECRET))
        await NativeRelay().submit(session, rotated, a_send())
    (request,) = host.requests

    for known in (SECRET, OTHER_SECRET):
        Webhook(known).verify(request.body, request.headers)


async def test_the_id_in_the_signature_names_the_operation(session: aiohttp.ClientSession) -> None:
    relay, send = NativeRelay(), a_send()
    async with peer(answers(503)) as host:
        address = address_of(host)
        await relay.submit(session, address, send)
        await relay.query(session, address, ATTEMPT)
        await relay.tombstone(session, address, ATTEMPT)
        await relay.check(session, address)

    asked = [(request.method, request.path, request.headers["webhook-id"]) for request in host.requests]
    assert asked == [
        ("POST", "/hosts/7/v1/sends", f"send_{send.attempt_uuid}"),
        ("GET", f"/hosts/7/v1/sends/{ATTEMPT}", f"query_{ATTEMPT}"),
        ("DELETE", f"/hosts/7/v1/sends/{ATTEMPT}", f"tombstone_{ATTEMPT}"),
        ("GET", "/hosts/7/v1/health", "health_7"),
    ]
    for request in host.requests:
        Webhook(SECRET).verify(request.body, request.headers, json_parse=False)


async def test_a_slash_at_the_end_of_the_address_changes_nothing(session: aiohttp.ClientSession) -> None:
    async with peer(answers(503)) as host:
        await NativeRelay().check(session, address_of(host, "/hosts/7/"))

    assert host.requests[0].path == "/hosts/7/v1/health"


@pytest.mark.parametrize(
    ("body", "guid"),
    [
        (b'{"state": "queued"}', ""),
        (b'{"state": "sent", "guid": "G-1"}', "G-1"),
        (b'{"state": "failed", "guid": null, "error_code": 120}', ""),
        (b'{"state": "unknown", "guid": ""}', ""),
        (b'{"state": "delivered", "guid": 17}', ""),
        (b'{"state": "delivered", "guid": "' + b"g" * 201 + b'"}', ""),
        (b'{"state": "delivered", "guid": "a\\u0000"}', ""),
    ],
)
async def test_a_repetition_is_accepted_in_any_state(session: aiohttp.ClientSession, body: bytes, guid: str) -> None:
    async with peer(answers(200, body)) as host:
        result = await NativeRelay().submit(session, address_of(host), a_send())

    assert result.submission is Submission.ACCEPTED
    assert result.provider_message_id == guid


@pytest.mark.parametrize("body", [b'{"state": "never"}', b'{"state": "not_found"}', b'{"guid": "G-1"}', b"{}"])
async def test_a_200_that_names_no_state_of_an_accepted_attempt_accepts_nothing(
    session: aiohttp.ClientSession, body: bytes
) -> None:
    async with peer(answers(200, body)) as host:
        result = await NativeRelay().submit(session, address_of(host), a_send())

    assert (result.submission, result.error_class) == (Submission.UNKNOWN, ErrorClass.TIMEOUT_AFTER_SUBMIT)


FAILED = b'{"state": "failed", "guid": null, "service": "iMessage", "error_code": 4711}'
UNANSWERED = StatusReport(ReportedState.UNKNOWN, answered=False)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, FAILED, StatusReport(ReportedState.FAILED, service="imessage", error_code=4711)),
        (200, b'{"state": "sent", "error_code": true, "service": 7}', StatusReport(ReportedState.SENT)),
        (200, b'{"state": "sent", "error_code": 99999999999}', StatusReport(ReportedState.SENT)),
        (200, b'{"state": "unknown"}', StatusReport(ReportedState.UNKNOWN)),
        (200, b'{"state": "never"}', StatusReport(ReportedState.NEVER)),
        (404, b'{"code": "attempt_unknown"}', StatusReport(ReportedState.NOT_FOUND)),
        (404, b"{}", UNANSWERED),
        (200, b'{"state": "not_found"}', UNANSWERED),
        (409, b'{"state": "sent"}', UNANSWERED),
    ],
)
async def test_reads_the_answer_to_a_query(
    session: aiohttp.ClientSession, status: int, body: bytes, expected: StatusReport
) -> None:
    async with peer(answers(status, body)) as host:
        assert await NativeRelay().query(session, address_of(host), ATTEMPT) == expected


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b'{"state": "never"}', StatusReport(ReportedState.NEVER)),
        (200, b'{"state": "sent"}', UNANSWERED),
        (200, b"{}", UNANSWERED),
        (409, b'{"state": "sent", "guid": "G"}', StatusReport(ReportedState.SENT, provider_message_id="G")),
        (409, b'{"state": "unknown"}', StatusReport(ReportedState.UNKNOWN)),
        (409, b'{"state": "never"}', UNANSWERED),
        (404, b'{"code": "attempt_unknown"}', StatusReport(ReportedState.NOT_FOUND)),
        (405, b'{"code": "no_such_method"}', UNANSWERED),
        (204, b"", UNANSWERED),
    ],
)
async def test_only_a_clear_promise_is_a_tombstone(
    session: aiohttp.ClientSession, status: int, body: bytes, expected: StatusReport
) -> None:
    async with peer(answers(status, body)) as host:
        assert await NativeRelay().tombstone(session, address_of(host), ATTEMPT) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"units": [], "queue": 0}', HostHealth({}, 0)),
        (b'{"units": [{"unit": 1, "signed_in": true}, {"unit": 2}], "queue": 5}', HostHealth({1: True, 2: False}, 5)),
        (b'{"units": [7, {"unit": "x"}, {"unit": true}], "queue": 5}', HostHealth({}, 5)),
        (b'{"units": {}, "queue": 0}', None),
        (b'{"units": []}', None),
        (b'{"queue": 0}', None),
        (b"[]", None),
    ],
)
async def test_reads_the_health(session: aiohttp.ClientSession, body: bytes, expected: HostHealth | None) -> None:
    async with peer(answers(200, body)) as host:
        assert await NativeRelay().check(session, address_of(host)) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", None),
        ("0", dt.timedelta(0)),
        (" 5 ", dt.timedelta(seconds=5)),
        ("1.5", None),
        ("²", None),
        ("Tue, 01 Sep 2026 12:00:30 GMT", dt.timedelta(seconds=30)),
        ("Tue, 01 Sep 2026 12:00:30 -0000", dt.timedelta(seconds=30)),
        ("Tuesday, 01-Sep-26 12:00:30 GMT", dt.timedelta(seconds=30)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", RETRY_AFTER_LIMIT),
        ("Tue, 99 Sep 2026 12:00:30 GMT", None),
        ("Tue, 01 Sep 2026 12:00:30 +9999999999", None),
    ],
)
def test_reads_retry_after(header: str, expected: dt.timedelta | None) -> None:
    assert retry_after(header, now=NOW) == expected


def test_a_connection_must_be_made_well_before_the_call_must_end() -> None:
    assert CONNECT_TIMEOUT < TOTAL_TIMEOUT
