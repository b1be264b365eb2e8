"""The simulated host keeps the protocol's promises: signature, idempotency, submit_by, tombstones."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import ErrorClass, ReportedState, Submission
from otp_service.core.signing import new_secret, signature_headers
from otp_service.simulation import fleet
from otp_service.simulation.fleet import SimulatedHost, SimulatedUnit
from servers.relay.native import NativeRelay
from tests.simulation.play import HOST, NUMBER, OTHER_UNIT, TEXT, UNIT, Play, a_send
from tests.simulation.sink import Sink


def document(**changes: Any) -> dict[str, Any]:
    later = utc_now().replace(year=2090).isoformat()
    return {
        "attempt_id": str(uuid.uuid4()),
        "unit": UNIT,
        "to": NUMBER,
        "text": TEXT,
        "service": "imessage",
        "expires_at": later,
        "submit_by": later,
        **changes,
    }


async def post(play: Play, body: bytes, message_id: str, secret: str = "") -> tuple[int, dict[str, Any]]:
    headers = signature_headers([secret or play.secret], message_id=message_id, now=utc_now(), body=body)
    async with play.session.post(f"{play.address.base_url}/v1/sends", data=body, headers=headers) as response:
        return response.status, await response.json()


async def post_document(play: Play, changed: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return await post(play, json.dumps(changed).encode(), f"send_{changed.get('attempt_id')}")


async def test_takes_a_submission_as_the_protocol_says(play: Play) -> None:
    sent = document()

    status, answer = await post_document(play, sent)

    assert (status, answer) == (202, {"attempt_id": sent["attempt_id"], "state": "queued"})


@pytest.mark.parametrize(
    "changes",
    [
        {"attempt_id": "7"},
        {"unit": None},
        {"unit": "228"},
        {"to": None},
        {"to": 34600000000},
        {"text": ""},
        {"text": None},
        {"text": "\x00"},
        {"service": "sms"},
        {"expires_at": "soon"},
        {"submit_by": None},
        {"submit_by": "2026-09-01T12:00:00"},
    ],
    ids=str,
)
async def test_refuses_a_submission_that_is_not_of_the_shape(play: Play, changes: dict[str, Any]) -> None:
    status, answer = await post_document(play, document(**changes))

    assert (status, answer["code"]) == (400, "invalid")
    assert next(iter(changes)) in answer["detail"]
    assert len(play.simulator.ledger) == 0


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"[]", b"[" * 50_000, b"\xff"], ids=["empty", "no JSON", "a list", "deep", "no UTF-8"]
)
async def test_refuses_a_submission_that_is_no_object(play: Play, body: bytes) -> None:
    status, answer = await post(play, body, "send_x")

    assert (status, answer["code"]) == (400, "invalid")


@pytest.mark.parametrize("to", ["34600000000", "+0", "+3460000000x", "+" + "1" * 16, "someone@example.com"])
async def test_refuses_a_number_that_cannot_be(play: Play, to: str) -> None:
    status, answer = await post_document(play, document(to=to))

    assert (status, answer["code"]) == (422, "number_invalid")


async def test_refuses_a_signature_by_another_secret(play: Play) -> None:
    sent = document()

    status, answer = await post(play, json.dumps(sent).encode(), f"send_{sent['attempt_id']}", secret=new_secret())

    assert (status, answer["code"]) == (401, "unauthorized")


async def test_refuses_a_signature_that_was_made_for_another_operation(play: Play) -> None:
    attempt_id = uuid.uuid4()
    headers = signature_headers([play.secret], message_id=f"query_{attempt_id}", now=utc_now(), body=b"")
    url = f"{play.address.base_url}/v1/sends/{attempt_id}"

    async with play.session.delete(url, headers=headers) as tombstone:
        assert tombstone.status == 401
    async with play.session.get(url, headers=headers) as query:
        assert query.status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/sends"),
        ("GET", f"/v1/sends/{UNIT}"),
        ("GET", f"/v1/sends/{uuid.UUID(int=1)}"),
        ("GET", "/v1/health"),
    ],
)
async def test_tells_nothing_without_a_signature(play: Play, method: str, path: str) -> None:
    async with play.session.request(method, play.address.base_url + path) as response:
        assert response.status in {401, 404}
        assert "state" not in await response.text()


async def test_a_host_that_is_not_played_yet_is_held_against_no_unit(play: Play) -> None:
    stranger = replace(play.address, base_url=play.simulator.base_url(8))

    result = await NativeRelay().submit(play.session, stranger, a_send())

    assert (result.submission, result.error_class) == (Submission.REFUSED, ErrorClass.THROTTLED)
    assert await NativeRelay().check(play.session, stranger) is None


async def test_refuses_what_reaches_it_after_submit_by(play: Play) -> None:
    late = document(submit_by=utc_now().isoformat())

    status, answer = await post_document(play, late)

    assert (status, answer["code"]) == (410, "too_late")
    assert (await post_document(play, {**late, "submit_by": late["expires_at"]}))[0] == 202


async def test_a_repetition_after_submit_by_still_tells_where_the_attempt_stands(play: Play) -> None:
    sent = document()
    await post_document(play, sent)

    status, answer = await post_document(play, {**sent, "submit_by": utc_now().isoformat()})

    assert status == 200
    assert answer["state"] in {"queued", "sent", "delivered"}


async def test_twenty_submissions_of_one_attempt_at_once_leave_once(play: Play) -> None:
    sent = document()

    answers = await asyncio.gather(*(post_document(play, sent) for _copy in range(20)))

    assert sorted(status for status, _answer in answers) == [200] * 19 + [202]
    send = replace(a_send(), attempt_uuid=uuid.UUID(sent["attempt_id"]))
    await play.until_state(send, ReportedState.DELIVERED)
    assert len(play.left(send)) == 1


async def test_a_tombstone_while_a_slow_answer_is_awaited_ends_it_with_a_refusal(play: Play) -> None:
    await play.behave("slow", seconds=30)
    send = a_send()
    call = asyncio.create_task(play.submit(send))
    await play.until_state(send, ReportedState.QUEUED)

    report = await play.tombstone(send)
    _send, result = await call

    assert report.state is ReportedState.NEVER
    assert (result.submission, result.error_class) == (Submission.REFUSED, ErrorClass.EXPIRED)
    assert play.left(send) == []


async def test_what_was_cancelled_does_not_leave_when_its_time_comes(play: Play) -> None:
    await play.behave("slow", seconds=0.2)
    cancelled, later = a_send(), a_send()
    call = asyncio.create_task(play.submit(cancelled))
    await play.until_state(cancelled, ReportedState.QUEUED)
    await play.tombstone(cancelled)
    await call

    await play.submit(later)  # as slow, so that it leaves after the other one would have

    assert len(play.left(later)) == 1
    assert play.left(cancelled) == []
    assert (await play.query(cancelled)).state is ReportedState.NEVER


async def test_a_tombstone_and_a_submission_at_once_agree(play: Play) -> None:
    for _round in range(20):
        send = a_send()
        (_send, submitted), buried = await asyncio.gather(play.submit(send), play.tombstone(send))
        if buried.state is ReportedState.NEVER:
            assert (await play.query(send)).state is ReportedState.NEVER
            assert play.left(send) == []
            continue
        assert submitted.submission is Submission.ACCEPTED
        await play.until_left(send)


async def test_an_attempt_that_failed_keeps_its_code_for_a_late_tombstone(play: Play, sink: Sink) -> None:
    await play.behave("dead")
    send, _result = await play.submit()
    await sink.wait_for(1)

    report = await play.tombstone(send)

    assert (report.answered, report.state, report.error_code) == (True, ReportedState.FAILED, 120)


async def test_the_health_counts_what_is_queued(play: Play) -> None:
    await play.behave("slow", seconds=30)
    send = a_send()
    call = asyncio.create_task(play.submit(send))
    await play.until_state(send, ReportedState.QUEUED)

    health = await NativeRelay().check(play.session, play.address)
    call.cancel()

    assert health is not None
    assert health.queue == 1
    assert health.units == {UNIT: True, OTHER_UNIT: True}


async def test_a_message_to_another_simulated_unit_comes_in_there(play: Play, sink: Sink) -> None:
    await play.submit(a_send(UNIT, to="+34600000002"))

    (inbound,) = await sink.wait_for(1, "inbound")

    assert inbound["unit"] == OTHER_UNIT
    assert (inbound["data"]["from"], inbound["data"]["to"]) == ("+34600000001", "+34600000002")
    assert inbound["data"]["text"] == TEXT


@pytest.mark.parametrize("behaviour", ["signed_out", "dead", "accepts_and_never_reports"])
async def test_nothing_comes_in_at_a_unit_that_receives_nothing(play: Play, sink: Sink, behaviour: str) -> None:
    await play.behave(behaviour, OTHER_UNIT)

    send, _result = await play.submit(a_send(UNIT, to="+34600000002"))
    await sink.wait_for(1, "delivered")
    await sink.until(lambda: len(sink.events("heartbeat")) >= 3)

    assert len(play.left(send)) == 1
    assert sink.events("inbound") == []


async def test_hosts_and_units_may_come_and_go_while_others_keep_their_memory(play: Play) -> None:
    send, _result = await play.submit()
    await play.until_state(send, ReportedState.DELIVERED)
    await play.behave("signed_out", OTHER_UNIT)
    units = (SimulatedUnit(UNIT), SimulatedUnit(OTHER_UNIT), SimulatedUnit(300))

    play.simulator.play([SimulatedHost(HOST, play.secret, units), SimulatedHost(8, play.secret, ())])
    health = await NativeRelay().check(play.session, play.address)

    assert health is not None
    assert health.units == {UNIT: True, OTHER_UNIT: False, 300: True}
    assert (await play.query(send)).state is ReportedState.DELIVERED
    play.simulator.play([])
    assert await NativeRelay().check(play.session, play.address) is None


async def test_a_host_forgets_its_oldest_attempts_when_it_has_too_many(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "MEMORY_LIMIT", 2)
    sends = []
    for _nth in range(3):
        send, _result = await play.submit()
        await play.until_left(send)
        sends.append(send)

    remembered = play.simulator.hosts[HOST].sendings
    assert [send.attempt_uuid in remembered for send in sends] == [False, True, True]
    assert (await play.query(sends[0])).state is ReportedState.SENT  # the ledger still knows
    assert len(play.simulator.ledger) == 3


async def test_a_changed_secret_is_valid_at_once(play: Play) -> None:
    secret = new_secret()
    changed = replace(play.address, secrets=(secret,))
    play.simulator.play([SimulatedHost(HOST, secret, (SimulatedUnit(UNIT),))])

    assert await NativeRelay().check(play.session, play.address) is None
    assert await NativeRelay().check(play.session, changed) is not None


def test_neither_numbers_nor_secrets_show_in_a_repr() -> None:
    shown: Callable[[object], str] = repr
    host = SimulatedHost(HOST, "whsec_c2VjcmV0", (SimulatedUnit(UNIT, "+34600000001"),))

    assert "whsec" not in shown(host)
    assert "346" not in shown(host.units)
