"""The adapter of BlueBubbles against the simulated host and against hosts that misbehave, over real HTTP.

Its hosts promise neither tombstones nor to know an attempt for good, and refuse nothing before they accept it.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import aiohttp
import pytest

from otp_service.core.clock import utc_now
from otp_service.core.http import Timeouts
from otp_service.core.outcomes import ErrorClass, ReportedState, StatusReport, Submission
from otp_service.simulation.bluebubbles_host import BlueBubblesHost, Quirks
from servers.relay.base import HostAddress, HostHealth, Known
from servers.relay.bluebubbles import BlueBubbles
from tests.relay_fixture import FAST
from tests.servers.relay.contract import BasicRelayContract
from tests.servers.relay.contract_base import (
    NUMBER,
    OTHER_SECRET,
    PATIENT,
    SECRET,
    TEXT,
    Refused,
    WorkingHost,
    a_send,
)
from tests.servers.relay.peers import Reply, answers

UNIT = 228
ROUTE, SENDER = ErrorClass.ROUTE_REJECTED, ErrorClass.SENDER_FAULT


def envelope(status: int, data: object = None, error: str = "") -> bytes:
    document = {"status": status, "message": "Said", "error": {"type": "Error", "message": error}, "data": data}
    return json.dumps(document).encode()


def no(status: int, data: object = None, error: str = "", **headers: str) -> Reply:
    return answers(status, envelope(status, data, error), **headers)


def unclear(name: str, reply: Reply) -> Refused:
    """A reply after which the text may have left."""
    return Refused(name, reply, ErrorClass.TIMEOUT_AFTER_SUBMIT, submission=Submission.UNKNOWN)


QUEUED = "Message is already queued to be sent! (Temp GUID: x)"


class TestBlueBubbles(BasicRelayContract):
    ACCEPTING_STATUS = 200
    UNUSABLE_SECRETS = ()
    NONSENSE = (
        b"",
        b"OK",
        b"null",
        b"[]",
        b"{}",
        b"<html></html>",
        envelope(200),
        envelope(200, []),
        envelope(200, {"error": 0}),
        envelope(200, {"guid": 7, "error": 0}),
        envelope(200, {"guid": "G", "error": "0"}),
        envelope(200, {"guid": "G", "error": 0, "tempGuid": "00000000-0000-4000-8000-000000000000"}),
        envelope(201, {"guid": "G", "error": 0}),
        b'{"data": {"guid": "G", "error": 0}}',
        b"[" * 60_000,
        b"\xff",
    )
    REFUSALS = (
        Refused("400 of validation", no(400, error="A 'message' is required when sending via AppleScript"), ROUTE),
        Refused("400 of a stranger", answers(400), ROUTE),
        unclear("400 already queued", no(400, error=QUEUED)),
        Refused("401", no(401), ROUTE),
        Refused("403", no(403), ROUTE),
        Refused("404", answers(404, b"<h1>Not Found</h1>"), ROUTE),
        Refused("413", answers(413), ROUTE),
        unclear("408", answers(408)),
        Refused("429", answers(429), ErrorClass.THROTTLED),
        Refused("429 with seconds", answers(429, Retry_After="7"), ErrorClass.THROTTLED, None, timedelta(seconds=7)),
        unclear("503 of a tunnel", answers(503)),
        Refused("500 with a code", no(500, {"guid": "G", "error": 4}, "Message failed to send!"), SENDER, 4),
        Refused("500 not registered", no(500, {"error": 22}), ErrorClass.RECIPIENT_UNREACHABLE, 22),
        Refused("200 with a code", no(200, {"guid": "G", "error": 1002}), SENDER, 1002),
        unclear("500 without a message", no(500, None, "Failed to send message!")),
        unclear("500 with a code of another attempt", no(500, {"error": 22, "tempGuid": str(uuid.UUID(int=1))})),
        unclear("500 of AppleScript", no(500, None, "Can't get chat id (-1728)")),
        unclear("500 with a message without error", no(500, {"guid": "G", "error": 0})),
        unclear("500 of a stranger", answers(500, b'{"data": {"error": 22}}')),
        unclear("500 transaction timeout", no(500, None, "Transaction timeout")),
        unclear("504", no(504)),
    )

    def adapter_with(self, timeouts: Timeouts) -> BlueBubbles:
        return BlueBubbles(timeouts)

    def address_of(self, base_url: str) -> HostAddress:
        return replace(super().address_of(base_url), number=UNIT)

    async def ask(
        self,
        session: aiohttp.ClientSession,
        address: HostAddress,
        attempt_uuid: uuid.UUID,
        timeouts: Timeouts = PATIENT,
    ) -> StatusReport:
        known = Known(NUMBER, (TEXT,), submitted_at=utc_now())
        return await self.adapter_with(timeouts).query(session, address, attempt_uuid, known)

    @pytest.fixture
    async def mac(self) -> AsyncIterator[BlueBubblesHost]:
        async with BlueBubblesHost(number=UNIT, password=SECRET, timings=FAST) as mac:
            yield mac

    @pytest.fixture
    async def host(self, mac: BlueBubblesHost) -> WorkingHost:
        def sent(attempt_id: uuid.UUID) -> int:
            return len(mac.ledger.find(attempt_id=attempt_id))

        return WorkingHost(address=self.address_of(mac.base_url), unit=UNIT, sent=sent)

    # What its protocol does instead of what it does not promise.

    async def test_a_unit_that_is_not_the_account_is_refused_and_nothing_leaves(
        self, session: aiohttp.ClientSession, host: WorkingHost
    ) -> None:
        send = a_send(UNIT + 1)

        result = await BlueBubbles().submit(session, host.address, send)

        assert (result.submission, result.error_class, result.error_code) == (Submission.REFUSED, SENDER, 130)
        assert host.sent(send.attempt_uuid) == 0

    async def test_parallel_submissions_of_one_attempt_leave_once_and_the_others_are_unknown(
        self, session: aiohttp.ClientSession, host: WorkingHost
    ) -> None:
        send = a_send(UNIT)

        results = await asyncio.gather(*(BlueBubbles().submit(session, host.address, send) for _copy in range(5)))

        outcomes = sorted(result.submission for result in results)
        assert outcomes == [Submission.ACCEPTED, *[Submission.UNKNOWN] * 4]
        assert host.sent(send.attempt_uuid) == 1

    async def test_a_tombstone_is_answered_and_promises_nothing(
        self, session: aiohttp.ClientSession, host: WorkingHost
    ) -> None:
        send = a_send(UNIT)

        report = await BlueBubbles().tombstone(session, host.address, send.attempt_uuid)
        late = await BlueBubbles().submit(session, host.address, send)

        assert report == StatusReport(ReportedState.UNKNOWN, answered=True)
        assert late.submission is Submission.ACCEPTED

    @pytest.mark.parametrize("signed_out", [False, True])
    async def test_the_check_says_whether_the_one_account_is_signed_in(
        self, session: aiohttp.ClientSession, host: WorkingHost, mac: BlueBubblesHost, *, signed_out: bool
    ) -> None:
        mac.quirks = Quirks(signed_out=signed_out)

        health = await BlueBubbles().check(session, host.address)

        assert health == HostHealth({UNIT: not signed_out}, queue=0)

    @pytest.mark.parametrize("passwords", [(OTHER_SECRET, SECRET), (SECRET, OTHER_SECRET)], ids=["old", "new"])
    async def test_a_host_that_gets_a_new_password_may_know_either_of_the_two(
        self, session: aiohttp.ClientSession, host: WorkingHost, passwords: tuple[str, ...]
    ) -> None:
        send = a_send(UNIT)
        address = replace(host.address, secrets=passwords)

        result = await BlueBubbles().submit(session, address, send)

        assert result.submission is Submission.ACCEPTED
        assert await BlueBubbles().check(session, address) is not None
        assert host.sent(send.attempt_uuid) == 1
