"""Processes that one supervisor started: remembered on disk, found with their descendants, ended by id."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import IO

import psutil

#: A start time is worked out from the time of boot, which moves a little when the clock is set.
_SAME_START_S = 1.0
#: How long what a dead supervisor left may take to end by itself.
_LEFTOVER_GRACE_S = 5.0
_POLL_S = 0.05
_SIGNAL_NAMES = {member.value: member.name for member in signal.Signals}


def pause(seconds: float) -> None:
    """Wait for another process; nothing here runs inside a worker."""
    time.sleep(seconds)  # noqa: TID251 - a supervisor that waits holds no slot


def exit_reason(returncode: int) -> str:
    """`exit code 3` or `signal SIGKILL`, from what `Popen` reports."""
    if returncode >= 0:
        return f"exit code {returncode}"
    return f"signal {_SIGNAL_NAMES.get(-returncode, -returncode)}"


@cache
def setpriv_path() -> str | None:
    """Util-linux's setpriv; None where there is none (macOS) or one that cannot set a death signal (busybox)."""
    path = shutil.which("setpriv")
    if path is None:
        return None
    probe = subprocess.run([path, "--pdeathsig", "keep", "true"], capture_output=True, check=False)  # noqa: S603 - fixed
    return path if probe.returncode == 0 else None


def dying_with_parent(argv: Sequence[str], death_signal: str) -> list[str]:
    """`argv`, sent `death_signal` by the kernel when the thread that starts it ends; as it is where that is unknown.

    So processes are started from the main thread only.
    """
    setpriv = setpriv_path()
    return list(argv) if setpriv is None else [setpriv, "--pdeathsig", death_signal, *argv]


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


def lives(process: psutil.Process) -> bool:
    """Whether it runs; one that ended and was not waited for (by a careless process 1, say) does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def still_alive_after(seconds: float, processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those of `processes` that have not ended within `seconds`; returns as soon as all have."""
    give_up_at = time.monotonic() + seconds
    while (alive := [process for process in processes if lives(process)]) and time.monotonic() < give_up_at:
        pause(_POLL_S)
    return alive


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
        if abs(started - self.started) > _SAME_START_S:
            return []
        return [process for process in family(self.pid) if lives(process)]


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
        kill(still_alive_after(_LEFTOVER_GRACE_S, processes))
        still_alive_after(_LEFTOVER_GRACE_S, processes)
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


class OwnedProcess:
    """A process that leads a session of its own; whatever it started ends with it at the latest."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        record: ProcessRecord,
        cwd: Path,
        env: Mapping[str, str],
        stdout: int | IO[bytes],
    ) -> None:
        self._record = record
        self._returncode: int | None = None
        self._popen = subprocess.Popen(  # noqa: S603 - our own commands, no shell
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        record.add(name, self.pid)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def output(self) -> IO[bytes] | None:
        """What it writes, if `stdout` was a pipe."""
        return self._popen.stdout

    def poll(self) -> int | None:
        """The exit code once it has ended (negative: a signal), None while it runs."""
        returncode = self._popen.poll()
        if returncode is not None and self._returncode is None:
            # At once: as long as one of the session is left, its id is given to no other process.
            kill(_session_members(self.pid))
            self._record.remove(self.pid)
            self._returncode = returncode
        return returncode

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            self._popen.send_signal(number)

    def ends_within(self, seconds: float, *, unless: Callable[[], bool] = lambda: False) -> bool:
        """Wait for its end; False when the time is up, or as soon as `unless` holds."""
        give_up_at = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() >= give_up_at or unless():
                return False
            pause(_POLL_S)
        return True

    def family(self) -> list[psutil.Process]:
        """It and everything that it started; nothing once it has ended."""
        return family(self.pid) if self.poll() is None else []

    def kill(self, known_family: Iterable[psutil.Process] = ()) -> None:
        """End it and its descendants now; `known_family` adds those that it has lost sight of."""
        kill([*self.family(), *known_family])
        self._popen.wait()
        self.poll()
