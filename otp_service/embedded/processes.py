"""Processes that one supervisor started: remembered on disk, found with their descendants, ended by id."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import psutil

#: A start time is worked out from the time of boot, which moves a little when the clock is set.
_SAME_START_S = 1.0
#: How long what a dead supervisor left may take to end by itself.
_LEFTOVER_GRACE_S = 5.0
_ESTABLISHED_NAMES = {member.value: member.name for member in signal.Signals}


def pause(seconds: float) -> None:
    """Wait for another process; nothing here runs inside a worker."""
    time.sleep(seconds)  # noqa: TID251 - a supervisor that waits holds no slot


def exit_reason(returncode: int) -> str:
    """`exit code 3` or `signal SIGKILL`, from what `Popen` reports."""
    if returncode >= 0:
        return f"exit code {returncode}"
    return f"signal {_ESTABLISHED_NAMES.get(-returncode, -returncode)}"


@cache
def setpriv_path() -> str | None:
    """Util-linux's setpriv; None where there is none (macOS) or one that cannot set a death signal (busybox)."""
    path = shutil.which("setpriv")
    if path is None:
        return None
    probe = subprocess.run([path, "--pdeathsig", "keep", "true"], capture_output=True, check=False)
    return path if probe.returncode == 0 else None


def dying_with_parent(argv: list[str], death_signal: str) -> list[str]:
    """`argv`, sent `death_signal` by the kernel when the thread that starts it ends; as it is where that is unknown.

    So processes are started from the main thread only.
    """
    setpriv = setpriv_path()
    return argv if setpriv is None else [setpriv, "--pdeathsig", death_signal, *argv]


def family(pid: int) -> list[psutil.Process]:
    """The process, its descendants, and whoever is left in the session that it leads, also after its own end."""
    members = {member.pid: member for member in _session_members(pid)}
    with contextlib.suppress(psutil.NoSuchProcess):
        leader = psutil.Process(pid)
        members.update((process.pid, process) for process in [leader, *leader.children(recursive=True)])
    return list(members.values())


def kill(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL to each that still lives; psutil checks that the id was not given to another process meanwhile."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _session_members(session_id: int) -> Iterator[psutil.Process]:
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if os.getsid(pid) == session_id:
                yield psutil.Process(pid)


@dataclass(frozen=True, slots=True)
class Remembered:
    """One process by what cannot be mistaken: its id and when it started (seconds since 1970)."""

    name: str
    pid: int
    started: float

    def survivors(self, state_dir: Path) -> list[psutil.Process]:
        """What is left of it, without strangers to whom the id was given since."""
        try:
            leader = psutil.Process(self.pid)
            started = leader.create_time()
        except psutil.NoSuchProcess:
            return [process for process in _session_members(self.pid) if _serves(process, state_dir)]
        return family(self.pid) if abs(started - self.started) <= _SAME_START_S else []


def _serves(process: psutil.Process, state_dir: Path) -> bool:
    try:
        return process.environ().get("OTP_STATE_DIR") == str(state_dir)
    except psutil.Error:
        return False


class ProcessRecord:
    """The file that tells the next start what a supervisor that was killed may have left running."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._path = state_dir / "processes.json"
        self._processes: dict[int, Remembered] = {}

    def add(self, name: str, pid: int) -> None:
        """Remember a process that was just started and not yet waited for."""
        self._processes[pid] = Remembered(name, pid, psutil.Process(pid).create_time())
        self._write()

    def remove(self, pid: int) -> None:
        """Forget a process that has ended."""
        if self._processes.pop(pid, None):
            self._write()

    def end_leftovers(self) -> list[str]:
        """End what an earlier supervisor of this state directory left, and return the names of what was found."""
        survivors = {known.name: known.survivors(self._state_dir) for known in self._read()}
        processes = [process for group in survivors.values() for process in group]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        _, alive = psutil.wait_procs(processes, timeout=_LEFTOVER_GRACE_S)
        kill(alive)
        psutil.wait_procs(alive, timeout=_LEFTOVER_GRACE_S)
        self._path.unlink(missing_ok=True)
        return [name for name, group in survivors.items() if group]

    def _read(self) -> list[Remembered]:
        try:
            stored = json.loads(self._path.read_text())
            # A copied state directory must not end what the original one runs.
            if stored["state_dir"] != str(self._state_dir):
                return []
            return [Remembered(**entry) for entry in stored["processes"]]
        except (OSError, ValueError, TypeError, KeyError):
            return []

    def _write(self) -> None:
        entries = [asdict(process) for process in self._processes.values()]
        partial = self._path.with_suffix(".part")
        partial.write_text(json.dumps({"state_dir": str(self._state_dir), "processes": entries}))
        partial.replace(self._path)
