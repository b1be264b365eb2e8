"""A simulator that is started again knows what it sent and what it promised never to send."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from django.core.management import CommandError, call_command

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import ReportedState, Submission
from otp_service.core.signing import new_secret, signature_headers
from otp_service.simulation import ledger as ledgers
from otp_service.simulation.fleet import SimulatedHost, SimulatedUnit
from otp_service.simulation.ledger import Ledger, LedgerEntry, text_digest
from otp_service.simulation.relay import RelaySimulator
from scheduler.local_stack import Options, children
from tests.relay_fixture import FAST
from tests.simulation.play import HOST, NUMBER, TEXT, UNIT, Play, a_send

OTHER_HOST = HOST + 1
Started = Callable[[], AbstractAsyncContextManager[Play]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def started(path: Path) -> Started:
    """Starts a simulator on the same ledger each time."""
    secret = new_secret()

    @asynccontextmanager
    async def start() -> AsyncIterator[Play]:
        async with (
            aiohttp.ClientSession() as session,
            RelaySimulator(webhook_base="http://127.0.0.1:9", timings=FAST, ledger_path=path) as simulator,
        ):
            simulator.play([SimulatedHost(HOST, secret, (SimulatedUnit(UNIT),))])
            yield Play(simulator, session, secret)

    return start


def an_entry(host: int = HOST) -> LedgerEntry:
    return LedgerEntry(NUMBER, uuid.uuid4(), UNIT, host, utc_now(), "imessage", text_digest(TEXT))


async def test_what_was_sent_is_sent_whoever_asks_after_a_restart(started: Started) -> None:
    async with started() as before:
        send, _result = await before.submit()
        await before.until_left(send)
    async with started() as after:
        query, tombstone = await after.query(send), await after.tombstone(send)
        again = (await after.submit(send))[1]

        assert (query.state, tombstone.state) == (ReportedState.SENT, ReportedState.SENT)
        assert query.provider_message_id == after.simulator.hosts[HOST].guid(send.attempt_uuid)
        assert again.submission is Submission.ACCEPTED
        assert len(after.left(send)) == 1


@pytest.mark.parametrize(
    ("method", "operation", "status"), [("GET", "query", 200), ("DELETE", "tombstone", 409)], ids=["query", "tombstone"]
)
async def test_the_answers_have_the_status_of_the_protocol(
    started: Started, path: Path, method: str, operation: str, status: int
) -> None:
    entry = an_entry()
    Ledger(path).add(entry)
    async with started() as play:
        url = f"{play.address.base_url}/v1/sends/{entry.attempt_id}"
        headers = signature_headers(
            [play.secret], message_id=f"{operation}_{entry.attempt_id}", now=utc_now(), body=b""
        )
        async with play.session.request(method, url, headers=headers) as answer:
            assert (answer.status, (await answer.json())["state"]) == (status, "sent")


async def test_a_repeated_submission_is_answered_200_sent_and_sends_nothing(started: Started, path: Path) -> None:
    entry, later = an_entry(), utc_now().replace(year=2090).isoformat()
    Ledger(path).add(entry)
    sent = {
        "attempt_id": str(entry.attempt_id),
        "unit": UNIT,
        "to": NUMBER,
        "text": TEXT,
        "service": "imessage",
        "expires_at": later,
        "submit_by": later,
    }
    async with started() as play:
        body = json.dumps(sent).encode()
        message_id = f"send_{entry.attempt_id}"
        headers = signature_headers([play.secret], message_id=message_id, now=utc_now(), body=body)
        async with play.session.post(f"{play.address.base_url}/v1/sends", data=body, headers=headers) as answer:
            assert (answer.status, (await answer.json())["state"]) == (200, "sent")
        assert play.simulator.hosts[HOST].sendings == {}
        assert len(play.simulator.ledger) == 1


async def test_a_promise_holds_after_a_restart(started: Started) -> None:
    send = a_send()
    async with started() as before:
        assert (await before.tombstone(send)).state is ReportedState.NEVER
    async with started() as after:
        assert (await after.query(send)).state is ReportedState.NEVER
        assert (await after.submit(send))[1].submission is not Submission.ACCEPTED
        assert after.left(send) == []


async def test_another_hosts_sending_is_not_answered_for(started: Started, path: Path) -> None:
    entry = an_entry(OTHER_HOST)
    Ledger(path).add(entry)
    async with started() as play:
        send = a_send()
        play.simulator.ledger.promise(OTHER_HOST, send.attempt_uuid)

        assert (await play.query(send)).state is ReportedState.NOT_FOUND
        assert play.simulator.ledger.sent(HOST, entry.attempt_id) is None


@pytest.mark.parametrize("torn", [b'{"to": "+346', b"\xff\xfe", b"[]", b'{"kind": "never"}', b"7", b'{"host": 1e999}'])
def test_a_torn_last_line_costs_nothing_but_itself(path: Path, torn: bytes) -> None:
    first, second = an_entry(), an_entry()
    Ledger(path).add(first)
    with path.open("ab") as file:
        file.write(torn)

    Ledger(path).add(second)

    assert list(Ledger(path)) == [first, second]


def test_only_the_end_of_a_long_file_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [an_entry() for _nth in range(5)]
    ledger = Ledger(path)
    for entry in entries:
        ledger.add(entry)
    monkeypatch.setattr(ledgers, "READ_BACK_LIMIT", path.stat().st_size // 2)

    assert list(Ledger(path)) == entries[-2:]


def test_the_oldest_are_forgotten_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "ENTRIES_LIMIT", 1)
    first, second, ledger = an_entry(), an_entry(), Ledger()
    for entry in (first, second):
        ledger.add(entry)
        ledger.promise(HOST, entry.attempt_id)

    assert list(ledger) == [second]
    assert (ledger.sent(HOST, first.attempt_id), ledger.sent(HOST, second.attempt_id)) == (None, second)
    assert not ledger.is_promised(HOST, first.attempt_id)
    assert ledger.is_promised(HOST, second.attempt_id)


def test_a_reset_is_not_undone_by_a_restart(path: Path) -> None:
    ledger, entry = Ledger(path), an_entry()
    ledger.add(entry)
    ledger.promise(HOST, uuid.UUID(int=1))
    ledger.clear()

    restarted = Ledger(path)

    assert list(restarted) == []
    assert restarted.sent(HOST, entry.attempt_id) is None
    assert not restarted.is_promised(HOST, uuid.UUID(int=1))


def test_the_file_is_for_its_owner_alone(path: Path) -> None:
    Ledger(path)

    assert path.stat().st_mode & 0o077 == 0


def test_a_ledger_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="ledger"):
        call_command("simulate_relay", "--port", "9123", "--ledger", str(tmp_path / "missing" / "ledger.jsonl"))


def test_the_local_service_keeps_the_ledger_in_its_state_folder(tmp_path: Path) -> None:
    parts = children(Options(port=8000, simulator_port=8900, demo_data=True), {}, tmp_path)
    [simulator] = [part for part in parts if part.name == "simulator"]

    arguments = list(simulator.argv)

    assert arguments[0] == sys.executable
    assert arguments[arguments.index("--ledger") + 1] == str(tmp_path / "simulator_ledger.jsonl")
