"""The contract towards providers and networks that fail: what never left, and what has no clear answer."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import aiohttp
import pytest
from structlog.testing import capture_logs

from otp_service.core.clock import utc_now
from otp_service.core.http import RESPONSE_LIMIT, RETRY_AFTER_LIMIT
from otp_service.core.outcomes import RAW_REPLY_LIMIT, ErrorClass, ReportedState, Submission, Submittable
from tests.routes.providers.contract_base import (
    HASTY,
    NEAR,
    NUMBER,
    PATIENT,
    ProviderContractBase,
    Refused,
    a_claim,
    a_question,
    a_send,
)
from tests.servers.relay import peers

NOT_REACHED = (Submission.NOT_CONNECTED, ErrorClass.CONNECTION_REFUSED)
UNCLEAR = (Submission.UNKNOWN, ErrorClass.TIMEOUT_AFTER_SUBMIT)


async def takes_it_and_hangs_up(writer: asyncio.StreamWriter) -> None:
    """The whole request was read, as `peers` does, and the answer gets lost."""
    await peers.resets(writer)


class FaultsContract(ProviderContractBase):
    """Needs no provider that works."""

    async def test_an_acceptance_is_understood(self, session: aiohttp.ClientSession) -> None:
        reply, provider_id = self.ACCEPTANCE

        result = await self.submit_to(reply, session)

        assert (result.submission, result.error_class) == (Submission.ACCEPTED, None)
        assert result.provider_message_id == provider_id

    async def test_a_refusal_is_understood(self, session: aiohttp.ClientSession, refused: Refused) -> None:
        result = await self.submit_to(refused.reply, session)

        assert (result.submission, result.error_class) == (refused.submission, refused.error_class)
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
        await self.assert_too_late(session, a_send(submit_by=utc_now()))

    async def test_nothing_leaves_when_the_message_has_expired(self, session: aiohttp.ClientSession) -> None:
        await self.assert_too_late(session, a_send(expires_at=utc_now()))

    async def test_a_provider_where_nobody_listens_was_not_reached(self, session: aiohttp.ClientSession) -> None:
        spec = self.spec_of(f"http://127.0.0.1:{peers.free_port()}")
        provider = self.provider_with(NEAR)

        result = await provider.submit(session, a_claim(spec))

        assert (result.submission, result.error_class) == NOT_REACHED
        asked = await provider.query(session, a_question(spec))
        assert asked is None or not asked.answered

    async def test_a_provider_that_does_not_speak_tls_was_not_reached(self, session: aiohttp.ClientSession) -> None:
        async with peers.peer(peers.stays_silent) as peer:
            spec = self.spec_of(peer.base_url.replace("http:", "https:"))
            result = await self.provider_with(NEAR).submit(session, a_claim(spec))

            assert peer.requests == []
        assert result.submission is Submission.NOT_CONNECTED

    async def test_settings_that_cannot_be_read_send_nothing(self, session: aiohttp.ClientSession) -> None:
        async with peers.peer(peers.stays_silent) as peer:
            broken = replace(self.spec_of(peer.base_url), settings={"no_such_setting": 1}, credentials={})
            provider = self.provider_with(PATIENT)
            result = await provider.submit(session, a_claim(broken))
            asked = await provider.query(session, a_question(broken))
            health = await provider.check(session, broken)

            assert peer.connections == 0
        assert (result.submission, result.error_class) == (Submission.NOT_CONNECTED, ErrorClass.ROUTE_REJECTED)
        assert asked is None or not asked.answered
        assert not health.ok

    # The request may have been read.

    @pytest.mark.parametrize(
        "reply",
        [
            takes_it_and_hangs_up,
            peers.stays_silent,
            peers.says(b""),
            peers.drips,
            peers.floods,
            peers.says(b"\x00\xff\xfe"),
            peers.says(b"HTTP/1.1 202 Accepted\r\nContent-Length: 50\r\n\r\n{"),
            peers.says(b"HTTP/1.1 201 Created\r\nContent-Length: 50\r\n\r\n{"),
            peers.says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
            peers.answers(303, Location="http://127.0.0.1:9/"),
            peers.answers(408),
            peers.answers(500),
            peers.answers(502, b"<h1>Bad Gateway</h1>"),
            peers.answers(504),
        ],
        ids=[
            "answer lost after it was taken",
            "no answer",
            "a close",
            "a slow drip",
            "a flood",
            "no HTTP",
            "a cut body of 202",
            "a cut body of 201",
            "bad chunks",
            "303",
            "408",
            "500",
            "502",
            "504",
        ],
    )
    async def test_without_a_clear_answer_the_outcome_is_unknown(
        self, session: aiohttp.ClientSession, reply: peers.Reply
    ) -> None:
        result = await self.submit_to(reply, session, HASTY)

        assert (result.submission, result.error_class) == UNCLEAR
        assert (result.error_code, result.retry_after) == (None, None)

    async def test_an_acceptance_that_makes_no_sense_is_unknown(
        self, session: aiohttp.ClientSession, nonsense: peers.Reply
    ) -> None:
        result = await self.submit_to(nonsense, session)

        assert (result.submission, result.error_class) == UNCLEAR

    async def test_an_answer_over_the_limit_is_unknown_and_cut(self, session: aiohttp.ClientSession) -> None:
        result = await self.submit_to(peers.answers(200, b"{" + b" " * RESPONSE_LIMIT), session)

        assert (result.submission, result.error_class) == UNCLEAR
        assert len(result.raw.encode()) <= RAW_REPLY_LIMIT

    async def test_the_reply_is_kept_without_what_a_database_cannot_hold(self, session: aiohttp.ClientSession) -> None:
        result = await self.submit_to(peers.answers(500, b"a\x00\xff" + "é".encode() * 2000), session)

        assert "\x00" not in result.raw
        assert "500" in result.raw
        assert RAW_REPLY_LIMIT - 4 <= len(result.raw.encode()) <= RAW_REPLY_LIMIT

    async def test_redirects_are_not_followed(self, session: aiohttp.ClientSession) -> None:
        async with peers.peer(peers.stays_silent) as elsewhere:
            for status in (301, 302, 307, 308):
                result = await self.submit_to(peers.answers(status, Location=elsewhere.base_url), session)
                assert (result.submission, result.error_class) == (Submission.REFUSED, ErrorClass.ROUTE_REJECTED)

            assert elsewhere.connections == 0

    async def test_cancelling_passes_through(self, session: aiohttp.ClientSession) -> None:
        async with peers.peer(peers.stays_silent) as peer:
            call = asyncio.create_task(
                self.provider_with(PATIENT).submit(session, a_claim(self.spec_of(peer.base_url)))
            )
            await asyncio.wait_for(peer.was_asked.wait(), 5)
            call.cancel()

            with pytest.raises(asyncio.CancelledError):
                await call

    @pytest.mark.parametrize(
        "reply",
        [
            peers.stays_silent,
            peers.resets,
            peers.floods,
            peers.answers(200, b"nonsense"),
            peers.answers(200, b'{"status": "teleported"}'),
            peers.answers(200, b'{"status": ["sent"]}'),
            peers.answers(404, b"<h1>Not Found</h1>"),
            peers.answers(401, b"{}"),
            peers.answers(500),
        ],
        ids=["silence", "a reset", "a flood", "nonsense", "a new state", "a list", "a stranger's 404", "401", "500"],
    )
    async def test_a_question_without_a_proper_answer_proves_nothing(
        self, session: aiohttp.ClientSession, reply: peers.Reply
    ) -> None:
        async with peers.peer(reply) as peer:
            asked = await self.provider_with(HASTY).query(session, a_question(self.spec_of(peer.base_url)))

        if not self.CAN_BE_ASKED:
            assert asked is None
            return
        assert asked is not None
        assert (asked.answered, asked.state) == (False, ReportedState.UNKNOWN)

    async def test_neither_text_nor_number_nor_credential_is_logged_or_shown(
        self, session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        shown: list[object] = []
        echo = f"+34600000017 {a_send().text}".encode()
        with capture_logs() as logged:
            for reply in (self.ACCEPTANCE[0], *(row.reply for row in self.REFUSALS[:4]), peers.answers(400, echo)):
                async with peers.peer(reply) as peer:
                    spec, provider = self.spec_of(peer.base_url), self.provider_with(PATIENT)
                    claimed = a_claim(spec)
                    shown += [await provider.submit(session, claimed), await provider.check(session, spec)]
                    shown += [claimed, spec, provider]

        everything = f"{shown!r} {logged!r} {caplog.text}"
        for secret in ("483920", NUMBER, *spec.credentials.values()):
            assert secret not in everything

    async def assert_too_late(self, session: aiohttp.ClientSession, send: Submittable) -> None:
        async with peers.peer(peers.stays_silent) as peer:
            claimed = a_claim(self.spec_of(peer.base_url), send)
            result = await self.provider_with(PATIENT).submit(session, claimed)

            assert peer.connections == 0
        assert (result.submission, result.error_class) == (Submission.NOT_CONNECTED, ErrorClass.EXPIRED)
