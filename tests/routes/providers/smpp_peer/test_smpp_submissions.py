"""Submissions over real binds, to an SMSC of another project."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid

import pytest
from structlog.testing import capture_logs

from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult
from otp_service.messages.rules import Channel
from otp_service.routes.providers.base import NotGenuine, Posted, Question
from otp_service.routes.providers.smpp import Smpp
from otp_service.routes.route_rules import RouteKind, RouteSpec
from tests.conftest import NOON
from tests.routes.providers.smpp_peer.peer import PASSWORD, Peer
from tests.routes.providers.smpp_peer.steps import (
    LATER,
    NO_SESSION,
    NO_TIME,
    UNKNOWN,
    bare,
    bound,
    claimed,
    is_up,
    route,
    submit,
    until,
)


async def test_hands_a_code_over_with_its_sender_its_life_and_the_wish_for_a_receipt(peer: Peer, smpp: Smpp) -> None:
    result = await submit(smpp, await bound(smpp, route(peer)))
    assert bare(result) == SubmitResult(Submission.ACCEPTED, provider_message_id=str(0xA1))
    assert peer.got("submit") == [
        {
            "got": "submit",
            "to": "34600000000",
            "to_ton": 1,
            "from": "ACME",
            "from_ton": 5,
            "text": "Your code is 123456",
            "as_payload": False,
            "data_coding": 0,
            "registered_delivery": 1,
            "valid_until": "2026-09-01T12:05:00.000Z",
        }
    ]


@pytest.mark.parametrize(
    ("text", "coding", "as_payload"),
    [
        pytest.param("Ñandù €5 [x]" * 3, 0, False, id="the SMS alphabet"),
        pytest.param("Ваш код 123456", 8, False, id="another alphabet"),
        pytest.param("Code 😀 " * 20, 8, True, id="a long one in another alphabet"),
        pytest.param("abcde" * 33, 0, True, id="a long one in the SMS alphabet"),
    ],
)
async def test_the_smsc_reads_the_text_as_it_was_written(
    peer: Peer, smpp: Smpp, text: str, coding: int, as_payload: bool
) -> None:
    result = await submit(smpp, await bound(smpp, route(peer)), text)
    (got,) = peer.got("submit")
    assert result.submission is Submission.ACCEPTED
    assert (got["text"], got["data_coding"], got["as_payload"]) == (text, coding, as_payload)


async def test_a_refusal_is_one_and_the_bind_stays(peer: Peer, smpp: Smpp) -> None:
    spec = await bound(smpp, route(peer))
    await peer.order("refuse", status=0x0B)
    assert bare(await submit(smpp, spec)) == SubmitResult(
        Submission.REFUSED, error_class=ErrorClass.RECIPIENT_INVALID, error_code=0x0B
    )
    assert (await submit(smpp, spec)).submission is Submission.ACCEPTED
    assert len(peer.got("bind")) == 1


async def test_a_status_that_nobody_knows_is_logged_without_the_message(peer: Peer, smpp: Smpp) -> None:
    spec = await bound(smpp, route(peer))
    await peer.order("refuse", status=0x409)
    with capture_logs() as logs:
        result = await submit(smpp, spec)
    assert (result.submission, result.error_class) == (Submission.REFUSED, ErrorClass.TEMPORARY)
    assert [(line["event"], line["status"]) for line in logs] == [("smpp_status_unknown", "command_status 0x00000409")]
    assert not any(secret in repr((logs, result, spec, smpp)) for secret in ("34600000000", "123456", PASSWORD))


async def test_no_response_in_time_is_one_unknown_and_nothing_is_sent_again(peer: Peer, smpp: Smpp) -> None:
    spec = await bound(smpp, route(peer, response_timeout_ms=NO_TIME))
    await peer.order("swallow", times=1)
    assert bare(await submit(smpp, spec, "first")) == UNKNOWN
    assert (await submit(smpp, spec, "second")).submission is Submission.ACCEPTED
    assert [line["text"] for line in peer.got("submit")] == ["first", "second"]


async def test_a_full_window_writes_nothing(peer: Peer, smpp: Smpp) -> None:
    spec = await bound(smpp, route(peer, window=1))
    await peer.order("swallow", times=1)
    first = asyncio.create_task(submit(smpp, spec, "first"))
    await peer.until_got("submit")
    second = await submit(smpp, spec, "second")
    assert bare(second) == SubmitResult(Submission.NOT_CONNECTED, error_class=ErrorClass.THROTTLED)
    await peer.order("answer_swallowed")
    assert (await first).submission is Submission.ACCEPTED
    assert [line["text"] for line in peer.got("submit")] == ["first"]


async def test_an_smsc_that_dies_with_submissions_in_flight_loses_none_silently_and_sees_none_twice(
    peer: Peer, smpp: Smpp
) -> None:
    spec = await bound(smpp, route(peer, binds=2))
    results = {"before": await submit(smpp, spec, "before")}
    in_flight = [f"in flight {number}" for number in range(8)]
    await peer.order("swallow", times=len(in_flight))
    calls = [asyncio.create_task(submit(smpp, spec, text)) for text in in_flight]
    await peer.until_got("submit", 1 + len(in_flight))
    await peer.die()
    results |= dict(zip(in_flight, await asyncio.gather(*calls), strict=True))
    results |= {text: await submit(smpp, spec, text) for text in ("while away 1", "while away 2")}
    await peer.start()
    await until(lambda: is_up(smpp, spec))
    results["after"] = await submit(smpp, spec, "after")

    assert {text: result.submission for text, result in results.items()} == {
        "before": Submission.ACCEPTED,
        **dict.fromkeys(in_flight, Submission.UNKNOWN),
        **dict.fromkeys(("while away 1", "while away 2"), Submission.NOT_CONNECTED),
        "after": Submission.ACCEPTED,
    }
    assert sorted(line["text"] for line in peer.got("submit")) == sorted(["before", *in_flight, "after"])


@pytest.mark.parametrize(
    ("submit_by", "expires_at"),
    [pytest.param(NOON, LATER, id="for its lease"), pytest.param(LATER, NOON, id="for its message")],
)
async def test_what_comes_too_late_is_not_written(
    peer: Peer, smpp: Smpp, submit_by: dt.datetime, expires_at: dt.datetime
) -> None:
    spec, in_time = await bound(smpp, route(peer)), NOON + dt.timedelta(microseconds=1)
    too_late = claimed(spec, submit_by=submit_by, expires_at=expires_at)
    assert await smpp.submit(NO_SESSION, too_late) == SubmitResult(
        Submission.NOT_CONNECTED, error_class=ErrorClass.EXPIRED
    )
    last = claimed(spec, submit_by=max(submit_by, in_time), expires_at=max(expires_at, in_time))
    assert (await smpp.submit(NO_SESSION, last)).submission is Submission.ACCEPTED
    assert len(peer.got("submit")) == 1


async def test_nothing_is_asked_and_nothing_posted(smpp: Smpp) -> None:
    spec = RouteSpec("sms:one", Channel.SMS, RouteKind.SMPP)
    assert await smpp.query(NO_SESSION, Question(spec, uuid.UUID(int=1), "161", "+34600000000", NOON)) is None
    with pytest.raises(NotGenuine):
        smpp.receipts(spec, Posted("POST", "https://otp.example/webhooks/providers/sms:one/", {}, b"{}"))
