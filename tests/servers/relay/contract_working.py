"""The contract towards a host that works: what is accepted and found, and what only some protocols promise."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import replace

import aiohttp
import pytest

from otp_service.core.outcomes import (
    ErrorClass,
    ReportedState,
    Submission,
)
from tests.servers.relay.contract_base import (
    HASTY,
    NUMBER,
    OTHER_SECRET,
    PATIENT,
    ContractBase,
    WorkingHost,
    a_send,
)


class WorkingHostContract(ContractBase):
    """Needs the fixture `host`."""

    async def test_a_submission_is_accepted_and_leaves_once(
        self, session: aiohttp.ClientSession, host: WorkingHost
    ) -> None:
        send = a_send(host.unit)

        result = await self.adapter_with(PATIENT).submit(session, host.address, send)

        assert result.submission is Submission.ACCEPTED
        assert result.error_class is None
        await self.until_state(session, host, send.attempt_uuid, ReportedState.DELIVERED)
        assert host.sent(send.attempt_uuid) == 1

    async def test_a_query_tells_state_guid_and_service(
        self, session: aiohttp.ClientSession, host: WorkingHost
    ) -> None:
        send = a_send(host.unit)
        await self.adapter_with(PATIENT).submit(session, host.address, send)
        await self.until_state(session, host, send.attempt_uuid, ReportedState.DELIVERED)

        report = await self.ask(session, host.address, send.attempt_uuid)

        assert report.answered
        assert report.provider_message_id
        assert report.service == "imessage"
        assert report.error_code is None

    async def test_a_wrong_secret_is_the_routes_and_nothing_leaves(
        self, session: aiohttp.ClientSession, host: WorkingHost
    ) -> None:
        send = a_send(host.unit)
        stranger = replace(host.address, secrets=(OTHER_SECRET,))
        adapter = self.adapter_with(PATIENT)

        result = await adapter.submit(session, stranger, send)

        assert (result.submission, result.error_class) == (Submission.REFUSED, ErrorClass.ROUTE_REJECTED)
        assert host.sent(send.attempt_uuid) == 0
        for report in (
            await self.ask(session, stranger, send.attempt_uuid),
            await adapter.tombstone(session, stranger, send.attempt_uuid),
        ):
            assert (report.answered, report.state) == (False, ReportedState.UNKNOWN)
        assert await adapter.check(session, stranger) is None

    async def test_a_query_for_an_attempt_that_the_host_never_saw_finds_nothing(
        self, session: aiohttp.ClientSession, host: WorkingHost
    ) -> None:
        report = await self.ask(session, host.address, uuid.uuid4())

        assert (report.answered, report.state) == (True, ReportedState.NOT_FOUND)

    async def test_neither_text_nor_number_nor_secret_is_logged_or_shown(
        self, session: aiohttp.ClientSession, host: WorkingHost, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        send = a_send(host.unit)

        result = await self.adapter_with(PATIENT).submit(session, host.address, send)

        shown = f"{caplog.text} {result!r} {send!r} {host.address!r} {self.adapter_with(PATIENT)!r}"
        for secret in ("483920", NUMBER, *host.address.secrets):
            assert secret not in shown

    async def until_state(
        self, session: aiohttp.ClientSession, host: WorkingHost, attempt_uuid: uuid.UUID, state: ReportedState
    ) -> None:
        async with asyncio.timeout(5):
            while True:
                report = await self.ask(session, host.address, attempt_uuid)
                if report.state is state:
                    return
                await asyncio.sleep(0.01)


class RepetitionsContract(WorkingHostContract):
    """Of protocols whose hosts know each attempt for good."""

    async def test_a_repeated_submission_is_accepted_with_the_guid_and_leaves_once(
        self, session: aiohttp.ClientSession, host: WorkingHost
    ) -> None:
        send = a_send(host.unit)
        adapter = self.adapter_with(PATIENT)
        await adapter.submit(session, host.address, send)
        await self.until_state(session, host, send.attempt_uuid, ReportedState.DELIVERED)

        again = await adapter.submit(session, host.address, send)

        assert again.submission is Submission.ACCEPTED
        assert again.provider_message_id
        assert host.sent(send.attempt_uuid) == 1

    async def test_parallel_submissions_of_one_attempt_leave_once(
        self, session: aiohttp.ClientSession, host: WorkingHost
    ) -> None:
        send = a_send(host.unit)
        adapter = self.adapter_with(PATIENT)

        results = await asyncio.gather(*(adapter.submit(session, host.address, send) for _copy in range(5)))

        assert {result.submission for result in results} == {Submission.ACCEPTED}
        await self.until_state(session, host, send.attempt_uuid, ReportedState.DELIVERED)
        assert host.sent(send.attempt_uuid) == 1


class RefusalsContract(WorkingHostContract):
    """Of protocols whose hosts know many units, and refuse what they cannot send before they accept it."""

    @pytest.mark.parametrize("kind", ["signed_out_unit", "unknown_unit"])
    async def test_a_unit_that_cannot_send_is_the_senders_fault(
        self, session: aiohttp.ClientSession, host: WorkingHost, kind: str
    ) -> None:
        send = a_send(getattr(host, kind))

        result = await self.adapter_with(PATIENT).submit(session, host.address, send)

        assert (result.submission, result.error_class) == (Submission.REFUSED, ErrorClass.SENDER_FAULT)
        assert result.error_code == 130
        assert host.sent(send.attempt_uuid) == 0

    async def test_an_invalid_number_is_the_recipients(self, session: aiohttp.ClientSession, host: WorkingHost) -> None:
        send = replace(a_send(host.unit), to="+0")

        result = await self.adapter_with(PATIENT).submit(session, host.address, send)

        assert (result.submission, result.error_class) == (Submission.REFUSED, ErrorClass.RECIPIENT_INVALID)

    async def test_the_check_lists_units_and_whether_they_are_signed_in(
        self, session: aiohttp.ClientSession, host: WorkingHost
    ) -> None:
        health = await self.adapter_with(PATIENT).check(session, host.address)

        assert health is not None
        assert health.units[host.unit] is True
        assert health.units[host.signed_out_unit] is False
        assert host.unknown_unit not in health.units
        assert health.queue >= 0


class TombstonesContract(WorkingHostContract):
    """Of protocols whose hosts can promise never to send an attempt."""

    async def test_an_attempt_with_a_tombstone_never_leaves(
        self, session: aiohttp.ClientSession, host: WorkingHost
    ) -> None:
        send = a_send(host.unit)
        adapter = self.adapter_with(PATIENT)

        report = await adapter.tombstone(session, host.address, send.attempt_uuid)
        late = await adapter.submit(session, host.address, send)

        assert (report.answered, report.state) == (True, ReportedState.NEVER)
        assert (late.submission, late.error_class) == (Submission.REFUSED, ErrorClass.EXPIRED)
        assert host.sent(send.attempt_uuid) == 0

    async def test_a_tombstone_cancels_what_is_queued(self, session: aiohttp.ClientSession, host: WorkingHost) -> None:
        send = a_send(host.slow_unit)
        adapter = self.adapter_with(HASTY)
        await adapter.submit(session, host.address, send)

        report = await adapter.tombstone(session, host.address, send.attempt_uuid)
        again = await adapter.tombstone(session, host.address, send.attempt_uuid)
        found = await self.ask(session, host.address, send.attempt_uuid)

        assert report.state is again.state is found.state is ReportedState.NEVER
        assert host.sent(send.attempt_uuid) == 0

    async def test_a_tombstone_that_comes_too_late_tells_the_state(
        self, session: aiohttp.ClientSession, host: WorkingHost
    ) -> None:
        send = a_send(host.unit)
        adapter = self.adapter_with(PATIENT)
        await adapter.submit(session, host.address, send)
        await self.until_state(session, host, send.attempt_uuid, ReportedState.DELIVERED)

        report = await adapter.tombstone(session, host.address, send.attempt_uuid)

        assert (report.answered, report.state) == (True, ReportedState.DELIVERED)
        assert report.provider_message_id
