"""One run of one cell of the lab: a scheme under a scenario, by the product's own dispatcher, in real time.

It takes a process of its own and an empty, migrated database; two cells may run at the same time.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Self

import aiohttp
from django.conf import settings
from django.db import connection

from otp_service.core.clock import utc_now
from otp_service.messages.models import Attempt, Message
from scheduler.dispatcher import DispatcherOptions, make_lane, prepare_connections, work
from scheduler.lab import load
from scheduler.lab.databases import PREFIX
from scheduler.lab.figures import CellRun
from scheduler.lab.load import Kind
from scheduler.lab.scenarios import FULL, SMALL, Scale, Scenario, Timing
from scheduler.lab.schemes import Scheme, dispatchers

_PER_THREAD = 40  # otp a second that one thread and connection accept without falling behind
_FIRST_CALL_WITHIN_S = 60  # a dispatcher that claims nothing at all is broken, not slow


@dataclass(frozen=True, slots=True)
class Cell:
    """What is run."""

    scheme: Scheme
    scenario: Scenario
    full: bool
    seconds: float

    @property
    def scale(self) -> Scale:
        """How many slots there are, and how much is sent."""
        return FULL if self.full else SMALL

    def written(self) -> str:
        """For the command line of its process."""
        return json.dumps([self.scheme, self.scenario, self.full, self.seconds])

    @classmethod
    def read(cls, text: str) -> Self:
        """What `written` wrote."""
        scheme, scenario, full, seconds = json.loads(text)
        return cls(Scheme(scheme), Scenario(scenario), full, seconds)


def run_cell(cell: Cell) -> CellRun:
    """Fill the database, dispatch for the cell's seconds, and read what became of it.

    Raises ValueError on a database that is not the lab's.
    """
    if not connection.settings_dict["NAME"].startswith(PREFIX):
        raise ValueError("A cell is run on a database of the lab's own; `manage.py lanes_lab` makes one.")
    otp, promo = load.kinds(one_queue=cell.scheme.has_one_queue)
    load.fill(promo, cell.scenario, cell.scale)
    prepare_connections()
    ended_at = asyncio.run(_dispatch(cell, otp))
    return _result(ended_at, cell.seconds)


async def _dispatch(cell: Cell, otp: Kind) -> datetime:
    """Returns when it was told to stop; what is in flight then may end a little later."""
    stop, hurry = asyncio.Event(), threading.Event()
    async with asyncio.TaskGroup() as tasks:
        for lanes, sizes in dispatchers(cell.scheme, cell.scale):
            options = DispatcherOptions(sizes=sizes, lanes=lanes, name=f"lab {cell.scheme}")
            tasks.create_task(_work(options, stop, caps=cell.scheme.has_caps))
        try:
            async with asyncio.timeout(_FIRST_CALL_WITHIN_S):
                await asyncio.to_thread(load.first_call, hurry)
            begin = time.monotonic()
            for due_in in _by_thread(cell):
                tasks.create_task(asyncio.to_thread(load.accept_otp, otp, due_in, begin=begin, hurry=hurry))
            await asyncio.sleep(cell.seconds)
        finally:
            hurry.set()
        ended_at = utc_now()
        stop.set()
    return ended_at


def _by_thread(cell: Cell) -> list[list[float]]:
    """When otp are due, for each of the threads that accept them in turn."""
    threads = math.ceil(cell.scale.otp_per_s / _PER_THREAD)
    due = Timing(cell.seconds).otp_due(cell.scale.otp_per_s)
    return [due[place::threads] for place in range(threads)]


async def _work(options: DispatcherOptions, stop: asyncio.Event, *, caps: bool) -> None:
    async with aiohttp.ClientSession() as session:
        lane = make_lane(options, session, adaptive=caps)
        try:
            await work(lane, options, stop)
        finally:
            await lane.close()


_OTP = f"""
SELECT m.created_at, a.lease_until - %s * interval '1 s' FROM {Message._meta.db_table} m
LEFT JOIN {Attempt._meta.db_table} a ON a.message_id = m.id AND a.number = 1
WHERE m.reference = %s
"""  # noqa: S608 - the tables' own names


def _result(ended_at: datetime, seconds: float) -> CellRun:
    with connection.cursor() as cursor:
        cursor.execute(_OTP, [settings.LEASE.total_seconds(), load.OTP_REFERENCE])
        otp = cursor.fetchall()
    # A lease is given when the attempt is written, after the claim's look: the wait until then is the whole of it.
    started = [(started_at - created_at).total_seconds() for created_at, started_at in otp if started_at]
    unstarted = [(ended_at - created_at).total_seconds() for created_at, started_at in otp if not started_at]
    promo = Attempt.objects.filter(number=1, message__reference="").count()
    return CellRun(tuple(started), tuple(unstarted), promo, seconds)
