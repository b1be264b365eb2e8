"""What the dispatcher refuses to start with, and what wakes it."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest
from django.db import connection

from otp_service.messages import queue
from scheduler import dispatcher

OPTIONS = dispatcher.DispatcherOptions(floor=1, shared=2, reserve=0)


def test_refuses_a_lease_that_a_call_may_outlast(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "_run", _not_reached)
    settings.LEASE = dt.timedelta(seconds=12)
    with pytest.raises(SystemExit, match=r"LEASE_S is 12: it must be over 12"):
        dispatcher.run(OPTIONS)


async def _not_reached(_options: dispatcher.DispatcherOptions) -> None:
    raise AssertionError


@pytest.mark.django_db(transaction=True)
async def test_a_commit_wakes_who_listens() -> None:
    woken = asyncio.Event()
    listening = asyncio.create_task(dispatcher.listen(on_otp=woken.set))
    try:
        async with asyncio.timeout(10):
            while not woken.is_set():  # the first ones may come before it listens
                await asyncio.to_thread(_wake)
                await asyncio.sleep(0.02)
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


def _wake() -> None:
    queue.wake()
    connection.close()
