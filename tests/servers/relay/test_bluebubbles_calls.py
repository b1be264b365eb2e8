"""What the BlueBubbles adapter writes on the wire, and how it finds an attempt among the messages of a Mac."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import pytest

from otp_service.core.outcomes import ReportedState, StatusReport
from servers.relay.base import HostAddress, HostHealth, Known
from servers.relay.bluebubbles import CLOCK_SKEW, PAGE, SEND_WINDOW, BlueBubbles, matching
from tests.servers.relay.contract_base import NUMBER, TEXT, a_send
from tests.servers.relay.peers import Peer, answers, peer

ATTEMPT = uuid.UUID("0b8f7d0e-3c7a-4a2e-9a55-6f1d2c3b4a59")
SUBMITTED = dt.datetime(2026, 9, 1, 12, 0, tzinfo=dt.UTC)
KNOWN = Known(NUMBER, (TEXT,), SUBMITTED)
PASSWORD = "p&ss w=rd/+ü"
UNANSWERED = StatusReport(ReportedState.UNKNOWN, answered=False)
MILLISECOND = dt.timedelta(milliseconds=1)


def address_of(peer: Peer) -> HostAddress:
    return HostAddress(host_id=1, number=228, base_url=peer.base_url + "/", secrets=(PASSWORD,))


def said(status: int, data: object) -> bytes:
    return json.dumps({"status": status, "message": "Success", "data": data}).encode()


def ms(moment: dt.datetime) -> int:
    return round(moment.timestamp() * 1000)


def row(**changes: Any) -> dict[str, Any]:
    """A message that is the attempt's, changed."""
    return {
        "guid": "G-1",
        "text": TEXT,
        "handle": {"address": NUMBER, "service": "iMessage"},
        "chats": [{"guid": f"iMessage;-;{NUMBER}"}],
        "error": 0,
        "dateCreated": ms(SUBMITTED),
        "dateDelivered": None,
        "isFromMe": True,
        **changes,
    }


async def test_posts_the_attempt_as_its_temp_guid(session: aiohttp.ClientSession) -> None:
    send = a_send()
    async with peer(answers(504)) as host:
        await BlueBubbles().submit(session, address_of(host), send)
    (request,) = host.requests

    assert (request.method, urlsplit(request.path).path) == ("POST", "/api/v1/message/text")
    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.body) == {
        "chatGuid": f"iMessage;-;{NUMBER}",
        "tempGuid": str(send.attempt_uuid),
        "message": TEXT,
        "method": "apple-script",
    }


async def test_every_call_carries_the_password_whatever_its_characters(session: aiohttp.ClientSession) -> None:
    relay = BlueBubbles()
    async with peer(answers(504)) as host:
        address = address_of(host)
        await relay.submit(session, address, a_send())
        await relay.query(session, address, ATTEMPT, KNOWN)
        await relay.query(session, address, ATTEMPT, replace(KNOWN, guid="a/b?c"))
        await relay.tombstone(session, address, ATTEMPT)
        await relay.check(session, address)

    urls = [urlsplit(request.path) for request in host.requests]
    assert [url.path for url in urls] == [
        "/api/v1/message/text",
        "/api/v1/message/query",
        "/api/v1/message/a%2Fb%3Fc",
        "/api/v1/ping",
        "/api/v1/server/info",
    ]
    assert [dict(parse_qsl(url.query)).get("password") for url in urls] == [PASSWORD] * 5


async def test_searches_the_chat_whatever_its_prefix_around_the_time_of_the_submission(
    session: aiohttp.ClientSession,
) -> None:
    async with peer(answers(504)) as host:
        await BlueBubbles().query(session, address_of(host), ATTEMPT, KNOWN)

    assert json.loads(host.requests[0].body) == {
        "with": ["chats"],
        "where": [
            {"statement": "chat.guid LIKE :chat", "args": {"chat": f"%;-;{NUMBER}"}},
            {"statement": "message.is_from_me = :me", "args": {"me": 1}},
        ],
        "after": ms(SUBMITTED - CLOCK_SKEW),
        "before": ms(SUBMITTED + SEND_WINDOW),
        "sort": "ASC",
        "limit": PAGE,
    }


async def test_nobody_is_asked_about_an_attempt_of_which_nothing_is_known(session: aiohttp.ClientSession) -> None:
    async with peer(answers(200, said(200, [row(tempGuid=str(ATTEMPT))]))) as host:
        report = await BlueBubbles().query(session, address_of(host), ATTEMPT)

        assert host.connections == 0
    assert report == UNANSWERED


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"text": f"\ufffc {TEXT}\n"},
        {"chats": [{"guid": f"any;-;{NUMBER}"}]},
        {"chats": [{"guid": f"SMS;-;{NUMBER}"}]},
        {"dateCreated": ms(SUBMITTED - CLOCK_SKEW)},
        {"dateCreated": ms(SUBMITTED + SEND_WINDOW)},
    ],
    ids=["itself", "spaces and a mark", "any chat", "SMS chat", "first moment", "last moment"],
)
def test_what_looks_like_the_attempt_is_it(changes: dict[str, Any]) -> None:
    assert matching([row(**changes)], ATTEMPT, KNOWN) == [row(**changes)]


@pytest.mark.parametrize(
    "changes",
    [
        {"text": TEXT.replace("3", "4")},
        {"text": None},
        {"isFromMe": False},
        {"chats": [{"guid": "iMessage;-;+34600000018"}]},
        {"chats": [{"guid": "iMessage;+;chat831"}]},
        {"chats": []},
        {"dateCreated": ms(SUBMITTED - CLOCK_SKEW - MILLISECOND)},
        {"dateCreated": ms(SUBMITTED + SEND_WINDOW + MILLISECOND)},
        {"dateCreated": None},
        {"guid": None},
        {"guid": "G-2"},
    ],
    ids=[
        "another text",
        "no text",
        "not from us",
        "to another number",
        "to a group",
        "no chat",
        "too early",
        "too late",
        "no time",
        "no guid",
        "of another attempt",
    ],
)
def test_what_differs_in_one_thing_is_not_the_attempt(changes: dict[str, Any]) -> None:
    assert matching([row(**changes)], ATTEMPT, replace(KNOWN, others=frozenset({"G-2"}))) == []


def test_a_message_with_the_attempts_temp_guid_is_it_whatever_else_is_found() -> None:
    named = row(guid="G-3", tempGuid=str(ATTEMPT), text="edited")

    assert matching([row(), named, row(guid="G-2"), "nonsense"], ATTEMPT, KNOWN) == [named]


SENT = StatusReport(ReportedState.SENT, provider_message_id="G-1", service="imessage")
OTHERS = [row(guid=f"G-{n}", text="other") for n in range(PAGE)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row()], SENT),
        ([row(dateDelivered=ms(SUBMITTED))], replace(SENT, state=ReportedState.DELIVERED)),
        ([row(isDelivered=True)], replace(SENT, state=ReportedState.DELIVERED)),
        ([row(dateRead=ms(SUBMITTED))], replace(SENT, state=ReportedState.DELIVERED)),
        ([row(error=22)], replace(SENT, state=ReportedState.FAILED, error_code=22)),
        ([row(handle=None, chats=[{"guid": f"SMS;-;{NUMBER}"}])], replace(SENT, service="sms")),
        ([row(handle=None, chats=[{"guid": f"any;-;{NUMBER}"}])], replace(SENT, service="")),
        ([], StatusReport(ReportedState.NOT_FOUND)),
        (OTHERS[1:], StatusReport(ReportedState.NOT_FOUND)),
        (OTHERS, StatusReport(ReportedState.UNKNOWN)),
        ([row(), row(guid="G-2")], StatusReport(ReportedState.UNKNOWN)),
        (None, UNANSWERED),
        ({}, UNANSWERED),
    ],
    ids=[
        "sent",
        "delivered",
        "delivered without a time",
        "read",
        "failed",
        "by SMS",
        "service not said",
        "nothing",
        "others, and all were seen",
        "others, and there may be more",
        "two that may be it",
        "null",
        "no list",
    ],
)
async def test_reads_the_answer_to_a_search(
    session: aiohttp.ClientSession, rows: object, expected: StatusReport
) -> None:
    async with peer(answers(200, said(200, rows))) as host:
        assert await BlueBubbles().query(session, address_of(host), ATTEMPT, KNOWN) == expected


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, said(200, row(text="edited", dateCreated=0)), SENT),
        (200, said(200, row(guid="G-2")), UNANSWERED),
        (200, said(200, None), UNANSWERED),
        (404, said(404, None), StatusReport(ReportedState.NOT_FOUND)),
        (404, said(200, None), UNANSWERED),
        (404, b"<h1>Not Found</h1>", UNANSWERED),
        (500, said(500, row()), UNANSWERED),
    ],
    ids=["itself", "another message", "nothing", "404", "404 that says 200", "404 of a stranger", "500"],
)
async def test_reads_the_answer_about_a_known_guid(
    session: aiohttp.ClientSession, status: int, body: bytes, expected: StatusReport
) -> None:
    async with peer(answers(status, body)) as host:
        known = replace(KNOWN, guid="G-1")
        assert await BlueBubbles().query(session, address_of(host), ATTEMPT, known) == expected


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"detected_imessage": "account@example.com"}, HostHealth({228: True}, 0)),
        ({"detected_imessage": None}, HostHealth({228: False}, 0)),
        ({"detected_imessage": ""}, HostHealth({228: False}, 0)),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
async def test_reads_the_health(session: aiohttp.ClientSession, info: object, expected: HostHealth | None) -> None:
    async with peer(answers(200, said(200, info))) as host:
        assert await BlueBubbles().check(session, address_of(host)) == expected


def test_what_is_known_of_an_attempt_shows_neither_text_nor_number() -> None:
    assert "483920" not in repr(KNOWN)
    assert NUMBER not in repr(KNOWN)
