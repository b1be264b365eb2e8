"""An SMSC from another project (npm's `smpp`), as a process of its own that takes orders and says what it got."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

HERE = Path(__file__).resolve().parent
PACKAGE = HERE / "package.json"
CACHE = HERE.parents[3] / "var" / "smpp-peer"
PASSWORD = "opensesame"
PATIENCE_S = 15
_INSTALL = ("install", "--omit=dev", "--no-audit", "--no-fund", "--no-package-lock")


def installed() -> Path:
    """The folder with the peer's package, installed on the first call. Skips the test, or fails it under CI."""
    folder = CACHE / hashlib.sha256(PACKAGE.read_bytes()).hexdigest()[:16]
    if folder.exists():
        return folder
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        _without("no Node: apt-get install nodejs npm")
    CACHE.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=CACHE, prefix="new-"))
    shutil.copy(PACKAGE, fresh)
    done = subprocess.run([npm, *_INSTALL], cwd=fresh, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        shutil.rmtree(fresh)
        _without(f"npm could not install the peer: {done.stderr[-300:]}")
    try:
        fresh.rename(folder)
    except OSError:  # another process of this run was faster
        shutil.rmtree(fresh)
    return folder


def _without(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"CI needs the SMPP peer: {reason}")
    pytest.skip(reason)


class Peer:
    """One process. `said` is all that it printed, `got` by kind."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.port = 0
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def start(self) -> None:
        """Listen: on the port of before, if there was one."""
        self._process = await asyncio.create_subprocess_exec(
            "node",
            str(HERE / "server.js"),
            str(installed()),
            str(self.port),
            PASSWORD,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        before = len(self.got("listening"))
        self._reading = asyncio.create_task(self._read(self._process))
        await self.until(lambda: len(self.got("listening")) > before)
        self.port = self.got("listening")[-1]["port"]

    async def die(self) -> None:
        """At once: what it has not answered it never will."""
        if self._process is None or self._reading is None:
            return
        self._process.kill()
        await self._process.wait()
        await self._reading
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process = None

    def got(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.said if line.get("got") == kind]

    async def order(self, do: str, **more: Any) -> None:
        """Make it do something; returns when it has."""
        assert self._process is not None
        assert self._process.stdin is not None
        before = self.said.count({"done": do})
        self._process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
        await self.until(lambda: self.said.count({"done": do}) > before)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what it says. Fails the test when that does not come."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def until_got(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        await self.until(lambda: len(self.got(kind)) >= count)
        return self.got(kind)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.said.append(json.loads(line))
            self._news.set()
