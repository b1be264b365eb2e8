"""The contract towards hosts and networks that fail: what never left, what may have been read, what is no answer."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from dataclasses import replace

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from otp_service.core.clock import utc_now
from otp_service.core.http import RESPONSE_LIMIT, RETRY_AFTER_LIMIT, Timeouts
from otp_service.core.outcomes import (
    RAW_REPLY_LIMIT,
    ErrorClass,
    ReportedState,
    Submission,
)
from servers.relay.base import HostAddress
from tests.servers.relay import peers
from tests.servers.relay.contract_base import (
    HASTY,
    NEAR,
    PATIENT,
    ContractBase,
    Refused,
    a_send,
)


class _Resolver(AbstractResolver):
    """A name server that fails, or does not answer."""

    def __init__(self, *, answers: bool) -> None:
        self._answers = answers

    async def resolve(self, host: str, port: int = 0, family: object = 0) -> list[ResolveResult]:
        if not self._answers:
            await asyncio.Event().wait()
        raise OSError(-2, "Name or service not known")

    async def close(self) -> None:
        """Nothing is open."""


class FaultsContract(ContractBase):
    """Needs no host that works."""

    async def test_a_refusal_is_understood(self, session: aiohttp.ClientSession, refused: Refused) -> None:
        result = await self.submit_to(refused.reply, session)

        assert result.submission is refused.submission
        assert result.error_class is refused.error_class
        assert result.error_code == refused.error_code
        assert result.provider_message_id == ""
        if refused.retry_after is None:
            assert result.retry_after is None
            return
        assert result.retry_after is not None
        assert abs(result.retry_after - refused.retry_after) <= refused.tolerance
        assert result.retry_after <= RETRY_AFTER_LIMIT

    # The request never left.

    async def test_nothing_leaves_after_submit_by(self, session: aiohttp.ClientSession) -> None:
        late = replace(a_send(), submit_by=utc_now())
        async with peers.peer(peers.stays_silent) as peer:
            result = await self.adapter_with(PATIENT).submit(session, self.address_of(peer.base_url), late)

            assert peer.connections == 0
        assert (result.submission, result.error_class) == (Submission.NOT_CONNECTED, ErrorClass.EXPIRED)

    @pytest.mark.parametrize(
        "base_url",
        [
            "http://127.0.0.1:{free_port}",
            "http://",
            "ftp://127.0.0.1",
            "http://[::1",
            "http://127.0.0.1:99999",
            "http://a..b",
            "",
        ],
    )
    async def test_an_address_where_nobody_listens_was_not_reached(
        self, session: aiohttp.ClientSession, base_url: str
    ) -> None:
        await self.assert_not_reached(session, self.address_of(base_url.replace("{free_port}", str(peers.free_port()))))

    @pytest.mark.parametrize("answers", [True, False], ids=["fails", "is silent"])
    async def test_a_host_whose_name_does_not_resolve_was_not_reached(self, answers: bool) -> None:
        connector = aiohttp.TCPConnector(resolver=_Resolver(answers=answers))
        async with aiohttp.ClientSession(connector=connector) as session:
            await self.assert_not_reached(session, self.address_of("http://relay.test"))

    async def test_a_host_that_does_not_speak_tls_was_not_reached(self, session: aiohttp.ClientSession) -> None:
        async with peers.peer(peers.stays_silent) as peer:
            address = self.address_of(peer.base_url.replace("http:", "https:"))
            result = await self.adapter_with(NEAR).submit(session, address, a_send())

            assert peer.requests == []
        assert result.submission is Submission.NOT_CONNECTED

    async def test_a_connection_that_is_not_made_before_submit_by_is_given_up(self) -> None:
        calm = Timeouts(connect=dt.timedelta(minutes=1), total=dt.timedelta(minutes=2))
        soon = replace(a_send(), submit_by=utc_now() + dt.timedelta(seconds=0.2))
        started = asyncio.get_running_loop().time()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=_Resolver(answers=False))) as session:
            result = await self.adapter_with(calm).submit(session, self.address_of("http://relay.test"), soon)

        assert result.submission is Submission.NOT_CONNECTED
        assert asyncio.get_running_loop().time() - started < 10

    async def test_an_unusable_secret_of_ours_sends_nothing(self, session: aiohttp.ClientSession) -> None:
        async with peers.peer(peers.stays_silent) as peer:
            broken = replace(self.address_of(peer.base_url), secrets=self.UNUSABLE_SECRETS)
            adapter = self.adapter_with(PATIENT)
            result = await adapter.submit(session, broken, a_send())
            report = await self.ask(session, broken, uuid.uuid4())

            assert peer.connections == 0
        assert (result.submission, result.error_class) == (Submission.NOT_CONNECTED, ErrorClass.ROUTE_REJECTED)
        assert not report.answered

    # The request may have been read.

    @pytest.mark.parametrize(
        "reply",
        [
            peers.stays_silent,
            peers.resets,
            peers.says(b""),
            peers.drips,
            peers.floods,
            peers.says(b"\x00\xff\xfe"),
            peers.says(b"HTTP/1.1 202 Accepted\r\nContent-Length: 50\r\n\r\n{"),
            peers.says(b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
            peers.says(b"HTTP/1.1 202 Accepted\r\nContent-Length: -5\r\n\r\n"),
            peers.says(b"HTTP/1.1 202 Accepted\r\n" + b"X-A: " + b"a" * 100_000 + b"\r\n\r\n"),
            peers.says(b"HTTP/1.1 202 Accepted\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd"),
            peers.says(b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"),
            peers.answers(500),
            peers.answers(502),
            peers.answers(504),
            peers.answers(204),
        ],
        ids=[
            "no answer",
            "a reset",
            "a close",
            "a slow drip",
            "a flood",
            "no HTTP",
            "a cut body",
            "bad chunks",
            "a negative length",
            "a huge header",
            "bad gzip",
            "a status that does not exist",
            "500",
            "502",
            "504",
            "204",
        ],
    )
    async def test_without_a_clear_answer_the_outcome_is_unknown(
        self, session: aiohttp.ClientSession, reply: peers.Reply
    ) -> None:
        result = await self.submit_to(reply, session, HASTY)

        assert (result.submission, result.error_class) == (Submission.UNKNOWN, ErrorClass.TIMEOUT_AFTER_SUBMIT)
        assert result.error_code is None

    async def test_an_acceptance_that_makes_no_sense_is_unknown(
        self, session: aiohttp.ClientSession, nonsense: bytes
    ) -> None:
        result = await self.submit_to(peers.answers(self.ACCEPTING_STATUS, nonsense), session)

        assert (result.submission, result.error_class) == (Submission.UNKNOWN, ErrorClass.TIMEOUT_AFTER_SUBMIT)

    async def test_an_answer_over_the_limit_is_unknown_and_cut(self, session: aiohttp.ClientSession) -> None:
        result = await self.submit_to(peers.answers(self.ACCEPTING_STATUS, b"{" + b" " * RESPONSE_LIMIT), session)

        assert result.submission is Submission.UNKNOWN
        assert len(result.raw.encode()) <= RAW_REPLY_LIMIT

    async def test_the_reply_is_kept_without_what_a_database_cannot_hold(self, session: aiohttp.ClientSession) -> None:
        result = await self.submit_to(peers.answers(500, b"a\x00\xff" + "é".encode() * 2000), session)

        assert "\x00" not in result.raw
        assert "500" in result.raw
        assert RAW_REPLY_LIMIT - 4 <= len(result.raw.encode()) <= RAW_REPLY_LIMIT

    async def test_a_silent_host_costs_no_more_than_the_time_limit(self, session: aiohttp.ClientSession) -> None:
        started = asyncio.get_running_loop().time()

        await self.submit_to(peers.stays_silent, session, HASTY)

        assert HASTY.total.total_seconds() <= asyncio.get_running_loop().time() - started < 5

    async def test_cancelling_passes_through(self, session: aiohttp.ClientSession) -> None:
        async with peers.peer(peers.stays_silent) as peer:
            call = asyncio.create_task(
                self.adapter_with(PATIENT).submit(session, self.address_of(peer.base_url), a_send())
            )
            await asyncio.wait_for(peer.was_asked.wait(), 5)
            call.cancel()

            with pytest.raises(asyncio.CancelledError):
                await call

    async def test_redirects_are_not_followed(self, session: aiohttp.ClientSession) -> None:
        async with peers.peer(peers.stays_silent) as elsewhere:
            for status in (301, 302, 307, 308):
                result = await self.submit_to(peers.answers(status, Location=elsewhere.base_url), session)
                assert (result.submission, result.error_class) == (Submission.REFUSED, ErrorClass.ROUTE_REJECTED)
            result = await self.submit_to(peers.answers(303, Location=elsewhere.base_url), session)
            assert result.submission is Submission.UNKNOWN

            assert elsewhere.connections == 0

    @pytest.mark.parametrize(
        "reply",
        [
            peers.stays_silent,
            peers.resets,
            peers.floods,
            peers.answers(200, b"nonsense"),
            peers.answers(200, b'{"state": "teleported"}'),
            peers.answers(200, b'{"state": ["sent"]}'),
            peers.answers(404, b"<h1>Not Found</h1>"),
            peers.answers(401, b'{"code": "unauthorized"}'),
            peers.answers(500),
        ],
        ids=[
            "silence",
            "a reset",
            "a flood",
            "nonsense",
            "an unknown state",
            "a list",
            "a stranger's 404",
            "401",
            "500",
        ],
    )
    async def test_a_question_without_a_proper_answer_proves_nothing(
        self, session: aiohttp.ClientSession, reply: peers.Reply
    ) -> None:
        adapter = self.adapter_with(HASTY)
        async with peers.peer(reply) as peer:
            address = self.address_of(peer.base_url)
            asked = await self.ask(session, address, uuid.uuid4(), HASTY)
            buried = await adapter.tombstone(session, address, uuid.uuid4())
            health = await adapter.check(session, address)

        assert (asked.answered, asked.state) == (False, ReportedState.UNKNOWN)
        assert (buried.answered, buried.state) == (False, ReportedState.UNKNOWN)
        assert health is None

    async def assert_not_reached(self, session: aiohttp.ClientSession, address: HostAddress) -> None:
        adapter = self.adapter_with(NEAR)

        result = await adapter.submit(session, address, a_send())
        report = await self.ask(session, address, uuid.uuid4(), NEAR)

        assert (result.submission, result.error_class) == (Submission.NOT_CONNECTED, ErrorClass.CONNECTION_REFUSED)
        assert not report.answered
        assert await adapter.check(session, address) is None
