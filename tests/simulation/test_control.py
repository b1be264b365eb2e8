"""The control API: behaviours change while it plays, and the ledger can be asked."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import ReportedState, Submission
from otp_service.simulation.behaviours import BEHAVIOURS, behaviour_document, behaviour_from
from otp_service.simulation.ledger import Ledger, LedgerEntry, text_digest
from tests.simulation.play import HOST, NUMBER, OTHER_UNIT, TEXT, UNIT, Play, a_send
from tests.simulation.sink import Sink

OTHER_NUMBER = "+34600000018"


async def test_the_ledger_has_what_left_and_no_text(play: Play) -> None:
    send, _result = await play.submit()
    await play.until_left(send)

    status, answer = await play.request("GET", "/control/ledger")

    (entry,) = answer["sends"]
    assert status == 200
    assert datetime.fromisoformat(entry.pop("at")).tzinfo is not None
    assert entry == {
        "to": NUMBER,
        "attempt_id": str(send.attempt_uuid),
        "unit": UNIT,
        "host": HOST,
        "service": "imessage",
        "text_sha256": text_digest(TEXT),
    }


@pytest.mark.parametrize("query", [f"to={NUMBER}", "to=%2B34600000017", "attempt_id={attempt}", ""])
async def test_the_ledger_can_be_asked_by_recipient_and_by_attempt(play: Play, query: str) -> None:
    mine, _result = await play.submit()
    other, _result = await play.submit(a_send(to=OTHER_NUMBER))
    await play.until_left(mine)
    await play.until_left(other)

    _status, answer = await play.request("GET", f"/control/ledger?{query.format(attempt=mine.attempt_uuid)}")

    found = [entry["attempt_id"] for entry in answer["sends"]]
    assert str(mine.attempt_uuid) in found
    assert (str(other.attempt_uuid) in found) is (query == "")


async def test_the_ledger_finds_nothing_for_a_stranger(play: Play) -> None:
    send, _result = await play.submit()
    await play.until_left(send)

    assert (await play.request("GET", f"/control/ledger?attempt_id={uuid.uuid4()}"))[1] == {"sends": []}
    assert (await play.request("GET", f"/control/ledger?to={OTHER_NUMBER}"))[1] == {"sends": []}


async def test_lists_units_with_their_behaviours(play: Play) -> None:
    status, changed = await play.request("PUT", f"/control/units/{HOST}/{UNIT}", json={"behaviour": "flaky", "p": 0.25})
    _status, listed = await play.request("GET", "/control/units")

    flaky = {"host": HOST, "unit": UNIT, "sent": 0, "behaviour": "flaky", "p": 0.25}
    assert (status, changed) == (200, flaky)
    assert listed == {"units": [flaky, {"host": HOST, "unit": OTHER_UNIT, "sent": 0, "behaviour": "healthy"}]}


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "JSON object"),
        (b"[]", "JSON object"),
        (b"[" * 50_000, "JSON object"),
        (b"\xff", "JSON object"),
        (b"{}", "`behaviour`"),
        (b'{"behaviour": "moody"}', "healthy"),
        (b'{"behaviour": ["flaky"]}', "`behaviour`"),
        (b'{"behaviour": "flaky", "q": 1}', "takes p"),
        (b'{"behaviour": "healthy", "p": 1}', "no parameters"),
        (b'{"behaviour": "flaky", "p": 1.5}', "between 0 and 1"),
        (b'{"behaviour": "flaky", "p": NaN}', "between 0 and 1"),
        (b'{"behaviour": "flaky", "p": "0.5"}', "number"),
        (b'{"behaviour": "flaky", "p": true}', "number"),
        (b'{"behaviour": "flaky", "p": null}', "number"),
        (b'{"behaviour": "dying_after", "n": 1.5}', "whole number"),
        (b'{"behaviour": "dying_after", "n": -1}', "between"),
        (b'{"behaviour": "slow", "seconds": 1e9}', "between"),
        (b'{"behaviour": "accepts_and_never_reports", "sends": 1}', "true or false"),
    ],
    ids=lambda value: value[:40] if isinstance(value, bytes) else "",
)
async def test_bad_input_is_refused_with_a_sentence(play: Play, body: bytes, word: str) -> None:
    status, answer = await play.request("PUT", f"/control/units/{HOST}/{UNIT}", data=body)

    assert status == 400
    assert word in answer["detail"]
    assert answer["detail"].endswith(".")
    assert (await play.request("GET", "/control/units"))[1]["units"][0]["behaviour"] == "healthy"


@pytest.mark.parametrize("path", [f"{HOST}/999", f"999/{UNIT}"])
async def test_a_unit_that_is_not_played_is_not_found(play: Play, path: str) -> None:
    status, answer = await play.request("PUT", f"/control/units/{path}", json={"behaviour": "dead"})

    assert status == 404
    assert answer["detail"].endswith(".")


async def test_an_attempt_that_is_no_uuid_is_refused(play: Play) -> None:
    assert (await play.request("GET", "/control/ledger?attempt_id=7"))[0] == 400


async def test_a_reset_forgets_attempts_tombstones_ledger_and_behaviours(play: Play, sink: Sink) -> None:
    send, _result = await play.submit()
    await sink.wait_for(2)
    buried = a_send()
    await play.tombstone(buried)
    await play.behave("dead")

    status, _answer = await play.request("POST", "/control/reset")

    assert status == 200
    assert (await play.request("GET", "/control/ledger"))[1] == {"sends": []}
    assert (await play.query(send)).state is ReportedState.NOT_FOUND
    assert (await play.submit(buried))[1].submission is Submission.ACCEPTED
    await play.until_left(buried)
    assert (await play.request("GET", "/control/units"))[1]["units"][0]["sent"] == 1


async def test_a_reset_drops_what_was_under_way(play: Play) -> None:
    await play.behave("slow", seconds=0.2)
    send = a_send()
    before = play.simulator.hosts[HOST]
    call = asyncio.create_task(play.submit(send))
    await play.until_state(send, ReportedState.QUEUED)
    task = before.sendings[send.attempt_uuid].task
    await play.request("POST", "/control/reset")
    await call

    assert task is not None
    assert task.cancelled()
    assert play.left(send) == []


def test_a_ledger_with_a_file_appends_a_line_for_each_message(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    entry = LedgerEntry(NUMBER, uuid.uuid4(), UNIT, HOST, utc_now(), "imessage", text_digest(TEXT))
    ledger = Ledger(path)
    ledger.add(entry)
    ledger.add(entry)
    ledger.clear()

    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [entry.document(), entry.document(), {"kind": "reset"}]
    assert len(ledger) == 0
    assert NUMBER not in repr(entry)


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_behaviour_can_be_written_down_and_read_again(name: str) -> None:
    behaviour = behaviour_from({"behaviour": name})

    assert behaviour_from(behaviour_document(behaviour)) == behaviour
