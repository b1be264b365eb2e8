"""What an SMSC reports, over real binds."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from structlog.testing import capture_logs

from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, Submission
from otp_service.routes.providers.smpp import Smpp
from tests.routes.providers.smpp_peer.peer import Peer
from tests.routes.providers.smpp_peer.steps import (
    NO_SESSION,
    NO_TIME,
    UNKNOWN,
    Told,
    bare,
    bound,
    claimed,
    route,
    submit,
)

TEXT_FORM = {
    "esm_class": 4,
    "short_message": "id:161 sub:001 dlvrd:001 submit date:2609011200 done date:2609011201 stat:DELIVRD err:000 text:",
}


async def test_a_receipt_is_told_and_then_acknowledged(peer: Peer, smpp: Smpp, told: Told) -> None:
    spec = await bound(smpp, route(peer))
    result = await submit(smpp, spec)
    await peer.order("deliver", fields=TEXT_FORM)
    assert await told.first() == Receipt(ReportedState.DELIVERED, provider_message_id=result.provider_message_id)
    assert told.routes == {"sms:one"}
    assert await peer.until_got("deliver_answer") == [{"got": "deliver_answer", "status": 0}]


async def test_a_receipt_in_parameters_is_told(peer: Peer, smpp: Smpp, told: Told) -> None:
    await bound(smpp, route(peer))
    await peer.order("deliver", fields={"esm_class": 4, "receipted_message_id": "00A1", "message_state": 5})
    assert await told.first() == Receipt(
        ReportedState.FAILED, provider_message_id=str(0xA1), error_class=ErrorClass.RECIPIENT_UNREACHABLE
    )


async def test_a_receipt_is_not_acknowledged_before_it_is_taken_and_holds_up_no_submission(
    peer: Peer, smpp: Smpp, told: Told
) -> None:
    spec = await bound(smpp, route(peer))
    told.free.clear()
    await peer.order("deliver", fields=TEXT_FORM)
    await told.asked.wait()
    assert (await submit(smpp, spec)).submission is Submission.ACCEPTED
    assert peer.got("deliver_answer") == []
    told.free.set()
    assert await peer.until_got("deliver_answer") == [{"got": "deliver_answer", "status": 0}]


async def test_a_receipt_that_could_not_be_taken_is_left_to_the_smsc(peer: Peer, smpp: Smpp, told: Told) -> None:
    await bound(smpp, route(peer))
    told.fault = RuntimeError("the database is away: 161")
    with capture_logs() as logs:
        await peer.order("deliver", fields=TEXT_FORM)
        assert await peer.until_got("deliver_answer") == [{"got": "deliver_answer", "status": 0x64}]
    assert [line["error"] for line in logs if line["event"] == "smpp_receipts_not_taken"] == ["RuntimeError"]
    told.fault = None
    await peer.order("deliver", fields=TEXT_FORM)
    assert (await told.first()).state is ReportedState.DELIVERED


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"short_message": "Who is this?"}, id="somebody writes to us"),
        pytest.param({"esm_class": 4, "short_message": "stat:DELIVRD"}, id="a receipt for nothing"),
    ],
)
async def test_what_reports_on_nothing_is_acknowledged_and_not_told(
    peer: Peer, smpp: Smpp, told: Told, fields: dict[str, Any]
) -> None:
    await bound(smpp, route(peer))
    await peer.order("deliver", fields=fields)
    assert await peer.until_got("deliver_answer") == [{"got": "deliver_answer", "status": 0}]
    assert not told.asked.is_set()


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        pytest.param(
            {"do": "answer_swallowed"}, Receipt(ReportedState.QUEUED, provider_message_id=str(0xA1)), id="it has it"
        ),
        pytest.param(
            {"do": "refuse_swallowed", "status": 0x58},
            Receipt(ReportedState.NEVER, error_class=ErrorClass.THROTTLED, error_code=0x58),
            id="it refuses it",
        ),
    ],
)
async def test_a_response_after_its_time_is_told_as_a_receipt(
    peer: Peer, smpp: Smpp, told: Told, order: dict[str, Any], expected: Receipt
) -> None:
    spec = await bound(smpp, route(peer, response_timeout_ms=NO_TIME))
    await peer.order("swallow", times=1)
    attempt = claimed(spec)
    assert bare(await smpp.submit(NO_SESSION, attempt)) == UNKNOWN
    await peer.order(**order)
    assert await told.first() == dataclasses.replace(expected, attempt_uuid=attempt.send.attempt_uuid)
