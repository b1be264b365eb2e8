"""STOP and START that people write over a bind: committed before they are acknowledged."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import smpp34
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection
from structlog.testing import capture_logs

from otp_service.messages import recipients
from otp_service.messages.recipient_models import Recipient
from otp_service.messages.recipients import Preferences, preferences
from otp_service.messages.rules import Channel, Lane
from otp_service.routes.providers.smpp_routes import SmppRoutes
from otp_service.routes.providers.smpp_rules import RX_T_APPN
from otp_service.routes.route_rules import RouteKind, RouteSpec
from tests.factories import AttemptFactory
from tests.routes.providers import own_smsc
from tests.routes.providers.own_smsc import Smsc, wrote

pytestmark = pytest.mark.django_db(transaction=True)

NUMBER, OTHER = "+34600000017", "+34600000018"
ROUTE = "sms:one"
OK = 0


async def in_thread(work: Callable[[], Any]) -> Any:
    def closing() -> Any:
        try:
            return work()
        finally:
            connection.close()

    return await sync_to_async(closing, thread_sensitive=False)()


async def stopped(number: str = NUMBER) -> bool:
    known: Preferences = await in_thread(lambda: preferences(number))
    return known.stopped is True


@asynccontextmanager
async def bound() -> AsyncIterator[Smsc]:
    """An SMSC, and a dispatcher's binds to it."""
    async with own_smsc.running() as smsc:
        settings = {"host": "127.0.0.1", "port": smsc.port, "system_id": "acme"}
        spec = RouteSpec(ROUTE, Channel.SMS, RouteKind.SMPP, settings=settings, credentials={"password": "opensesame"})
        routes = SmppRoutes(uuid.uuid4(), list(Lane))
        await routes.provider.hold([spec])
        try:
            yield smsc
        finally:
            await routes.close()


async def test_stop_and_start_are_committed_when_they_are_acknowledged() -> None:
    async with bound() as smsc:
        assert await smsc.answer_to(wrote(b"Stop!")) == OK
        assert await stopped()
        assert await smsc.answer_to(wrote(b"START", sender=NUMBER)) == OK
        assert not await stopped()
        assert await smsc.answer_to(wrote("stop".encode("utf-16-be"), coding=8, ton=0)) == OK
        assert await stopped()


async def test_what_is_no_such_word_is_acknowledged_and_leaves_nothing() -> None:
    hostile = [
        wrote(b"who is this?"),
        wrote(b"", payload=b"STOP " * 12_000),
        wrote(b"\xff\xd8\x00", coding=8),
        wrote(b"\x05\x00\x03\x07\x02\x01STOP", esm_class=0x40),
        wrote(b"STOP", sender=""),
        wrote(b"STOP", sender="ACME", ton=5),
        wrote(b"STOP", sender="12345"),
        wrote(b"STOP", sender="9" * 20),
    ]
    async with bound() as smsc:
        assert [await smsc.answer_to(pdu) for pdu in hostile] == [OK] * len(hostile)
        frame = wrote(b"STOP", sender="3460000001?").encode().replace(b"1?", b"\xff\xfe")
        await smsc.deliver(frame)
        assert await smsc.answer() == OK
        assert await smsc.answer_to(wrote(b"STOP", sender=OTHER)) == OK
    assert await in_thread(Recipient.objects.count) == 1
    assert await stopped(OTHER)


async def test_one_that_cannot_be_written_is_left_to_the_smsc_and_shown_to_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    whole = recipients.note_stop

    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise OperationalError(f"{NUMBER} wrote unsubscribe")

    with capture_logs() as logs:
        async with bound() as smsc:
            monkeypatch.setattr(recipients, "note_stop", refuse)
            assert await smsc.answer_to(wrote(b"unsubscribe")) == RX_T_APPN
            assert await smsc.answer_to(wrote(b"my secret question")) == OK
            assert not await stopped()
            monkeypatch.setattr(recipients, "note_stop", whole)
            assert await smsc.answer_to(wrote(b"unsubscribe")) == OK
            assert await stopped()
    said = f"{logs} {caplog.text}".lower()
    assert "smpp_receipts_not_taken" in said
    for secret in ("unsubscribe", "secret", "346000000"):
        assert secret not in said


async def test_it_is_not_acknowledged_while_it_is_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, began, go_on = recipients.note_answers, asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait(*args: Any, **kwargs: Any) -> None:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(own_smsc.PATIENCE_S)
        whole(*args, **kwargs)

    monkeypatch.setattr(recipients, "note_answers", wait)
    async with bound() as smsc:
        await smsc.deliver(wrote().encode())
        async with asyncio.timeout(own_smsc.PATIENCE_S):
            await began.wait()
        assert smsc.answered.empty()
        assert not await stopped()
        go_on.set()
        assert await smsc.answer() == OK
        assert await stopped()


async def test_a_receipt_beside_it_is_applied_too() -> None:
    attempt = await in_thread(
        lambda: AttemptFactory.create(server=None, route=ROUTE, provider_message_id="161", state="accepted")
    )
    receipt = smpp34.DeliverSm("34600000018", "12345", b"id:161 stat:DELIVRD err:000 text:STOP", esm_class=0x04)
    async with bound() as smsc:
        await smsc.deliver(receipt.encode() + wrote().encode())
        assert [await smsc.answer(), await smsc.answer()] == [OK, OK]
    await in_thread(attempt.refresh_from_db)
    assert attempt.state == "delivered"
    assert (await stopped(), await stopped(OTHER)) == (True, False)
