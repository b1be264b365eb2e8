"""The processes of one run: web and dispatcher, started for it, ended by their ids."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

from otp_service.embedded.processes import dying_with_parent

PROJECT = Path(__file__).resolve().parents[2]
_FAULT_CHARS = 2_000
_END_WITHIN_S = 5.0  # after SIGTERM, before SIGKILL


class DrillError(Exception):
    """The drill itself does not work; says how."""


class Child:
    """One process in a session of its own: a terminal's Ctrl-C reaches it through us."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: IO[bytes]) -> None:
        self._name = name
        self._process = process
        self._log = log

    def check(self) -> None:
        """Raises DrillError where it has ended by itself."""
        if self._process.returncode is not None:
            raise self.failed("has ended")

    def failed(self, how: str) -> DrillError:
        """What to raise, with the end of what it wrote."""
        self._log.seek(0)
        said = self._log.read().decode(errors="replace")[-_FAULT_CHARS:].strip()
        return DrillError(f"The drill's {self._name} {how}:\n{said}")

    async def line(self, *, within_s: float) -> str:
        """The next line that it writes. Raises DrillError."""
        assert self._process.stdout is not None
        try:
            said = await asyncio.wait_for(self._process.stdout.readline(), within_s)
        except TimeoutError:
            raise self.failed("says nothing") from None
        if not said:
            raise self.failed("has ended")
        return said.decode().strip()

    async def wait(self) -> int:
        """Its exit code."""
        return await self._process.wait()

    async def end(self) -> None:
        """SIGTERM, and SIGKILL where that does not help."""
        if self._process.returncode is not None:
            return
        self._process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _END_WITHIN_S)
            return
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def child(name: str, argv: Sequence[str], env: Mapping[str, str]) -> AsyncIterator[Child]:
    """Start it, and end it however this ends. What it writes as faults is kept for the one that it may die of."""
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *dying_with_parent(argv, "TERM"),
            cwd=PROJECT,
            env={**os.environ, **env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        started = Child(name, process, log)
        try:
            yield started
        finally:
            await started.end()
