"""What the dispatcher refuses to start with, and what wakes it."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any, cast

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from otp_service.messages import queue
from otp_service.messages.rules import Lane
from otp_service.routes.lane import MessageLane
from scheduler import dispatcher
from scheduler.rules import SlotSizes

OPTIONS = dispatcher.DispatcherOptions(SlotSizes(floor=1, shared=2, reserve=0, promo_floor=0))


def test_refuses_a_lease_that_a_call_may_outlast(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "_run", _not_reached)
    settings.LEASE = dt.timedelta(seconds=12)
    with pytest.raises(SystemExit, match=r"LEASE_S is 12: it must be over 12"):
        dispatcher.run(OPTIONS)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        pytest.param([], SlotSizes(60, 1140, 342, 22), id="30 % for otp to borrow, 2 % for promo"),
        pytest.param(["--shared", "100"], SlotSizes(60, 100, 30, 2), id="shares of what is shared"),
        pytest.param(
            ["--floor", "0", "--shared", "9", "--reserve", "3", "--promo-floor", "1"], SlotSizes(0, 9, 3, 1), id="all"
        ),
    ],
)
def test_the_slots_of_a_dispatcher(options: list[str], sizes: SlotSizes, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[dispatcher.DispatcherOptions] = []
    monkeypatch.setattr("scheduler.management.commands.dispatch.run", runs.append)
    call_command("dispatch", *options)
    (given,) = runs
    assert (given.sizes, given.lanes) == (sizes, tuple(Lane))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(["--reserve", "1140"], "must be below --shared", id="nothing is left to share"),
        pytest.param(["--floor", "-1"], "must be 0 or more", id="below nothing"),
        pytest.param(["--shared", "1000000"], "run more dispatchers", id="more than one process can"),
    ],
)
def test_slots_that_cannot_be(options: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.management.commands.dispatch.run", _not_reached)
    with pytest.raises(CommandError, match=said):
        call_command("dispatch", *options)


async def _not_reached(_options: dispatcher.DispatcherOptions) -> None:
    raise AssertionError


class SlowToCome:
    """A lane whose database answers at the third try."""

    tries = 0

    async def open(self) -> None:
        self.tries += 1
        if self.tries < 3:
            raise OperationalError

    async def beat(self) -> None:
        """Its heart beats."""


async def test_waits_for_a_database_that_does_not_answer_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "_DATABASE_RETRY", dt.timedelta())
    lane = SlowToCome()
    await dispatcher._open(cast("MessageLane", lane), cast("dispatcher._Heart", lane), asyncio.Event())
    assert lane.tries == 3


async def test_does_not_wait_for_the_database_when_it_is_told_to_stop() -> None:
    lane, stop = SlowToCome(), asyncio.Event()
    stop.set()
    await dispatcher._open(cast("MessageLane", lane), cast("dispatcher._Heart", lane), stop)
    assert lane.tries == 0


@pytest.mark.django_db(transaction=True)
async def test_a_commit_wakes_who_listens() -> None:
    woken: list[None] = []
    listening = asyncio.create_task(dispatcher.listen(on_otp=lambda: woken.append(None)))
    try:
        async with asyncio.timeout(10):
            while len(woken) < 2:  # once because it listens; what was told before is not heard
                await asyncio.to_thread(_wake)
                await asyncio.sleep(0.02)
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


def _wake() -> None:
    queue.wake()
    connection.close()
