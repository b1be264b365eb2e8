"""Runs cells of the lab side by side, each in a process and on a database of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from scheduler.lab.cell import Cell
from scheduler.lab.databases import own_database
from scheduler.lab.figures import CellRun, figures
from scheduler.lab.report import Runs

_MANAGE = Path(__file__).resolve().parents[2] / "manage.py"
#: What a cell's process is told besides its database: calls may hang for 30 s, and nobody waits for their end.
_ENVIRONMENT = {"SIMULATED_ROUTES": "true", "LEASE_S": "60", "SHUTDOWN_GRACE_S": "0.5", "LOG_LEVEL": "WARNING"}
_FAULT_CHARS = 2_000
_END_WITHIN_S = 5.0  # after SIGTERM, before SIGKILL


class CellError(Exception):
    """A process of the lab failed; says how."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where cells are run, how many at once, and who is told of each that ended."""

    server_url: str
    jobs: int
    say: Callable[[str], None]


def run_all(cells: Sequence[Cell], bench: Bench) -> Runs:
    """Run them. Raises CellError or psycopg.Error, and KeyboardInterrupt on Ctrl-C or SIGTERM.

    However it ends, its processes have ended and its databases are dropped.
    """
    try:
        return asyncio.run(_run_all(cells, bench))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _run_all(cells: Sequence[Cell], bench: Bench) -> Runs:
    whole = asyncio.current_task()
    assert whole is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, whole.cancel)
    async with own_database(bench.server_url) as template_url:
        await _manage(["migrate", "--verbosity", "0", "--skip-checks"], template_url)
        return await _side_by_side(cells, bench, template_url)


async def _side_by_side(cells: Sequence[Cell], bench: Bench, template_url: str) -> Runs:
    found: dict[Cell, list[CellRun]] = defaultdict(list)
    turns = asyncio.Semaphore(bench.jobs)

    async def one(cell: Cell) -> None:
        async with turns, own_database(bench.server_url, template_url=template_url) as database_url:
            run = CellRun(**json.loads(await _manage(["lanes_lab", "--cell", cell.written()], database_url)))
        found[cell].append(run)
        bench.say(_progress(sum(map(len, found.values())), len(cells), cell, run))

    await _all_or_none([one(cell) for cell in cells])
    return {(cell.scheme, cell.scenario): found[cell] for cell in cells}


async def _all_or_none(work: Sequence[Coroutine[None, None, None]]) -> None:
    """Where one fails, the others are ended in their own way; the first failure is raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for one in work:
                tasks.create_task(one)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _manage(arguments: Sequence[str], database_url: str) -> bytes:
    """What a `manage.py` command writes. In a session of its own: a terminal's Ctrl-C reaches it through us."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(_MANAGE), *arguments),
        env={**os.environ, **_ENVIRONMENT, "OTP_EMBEDDED": str(settings.EMBEDDED), "DATABASE_URL": database_url},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        said, fault = await process.communicate()
    finally:
        await _end(process)
    if process.returncode:
        raise CellError(f"`manage.py {arguments[0]}` failed:\n{fault.decode(errors='replace')[-_FAULT_CHARS:]}")
    return said


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _END_WITHIN_S)
        return
    process.kill()
    await process.wait()


def _progress(done: int, of: int, cell: Cell, run: CellRun) -> str:
    found = figures([run])
    return (
        f"{done}/{of}  {cell.scheme}, {cell.scenario.words}: {found.started} of {found.of} otp started, "
        f"p99 {found.p99}, {found.promo_per_s:,.1f} promo/s"
    )
