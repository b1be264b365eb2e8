"""Keeps a set of processes running under one terminal: starts, restarts, one tidy log, an orderly end.

Plain Python: it knows nothing of Django, and takes any list of commands.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Protocol, Self, TextIO

import psutil

from otp_service.embedded import processes
from otp_service.embedded.errors import EmbeddedServerError
from otp_service.embedded.processes import OwnedProcess, ProcessRecord

#: Waits before the first, second, … restart in a row; the last one holds from there on.
RESTART_DELAYS = tuple(timedelta(seconds=seconds) for seconds in (1, 2, 4, 8, 16, 30))
#: One that lived so long was well: its next crash is a first one again.
WELL_AFTER = timedelta(seconds=60)
#: Time for the work in hand, before what is left is killed.
STOP_GRACE = timedelta(seconds=10)

_POLL_S = 0.2
_LAST_LINES_S = 1.0  # for what a child that ended has written last
_STOP_REPORT_EVERY_S = 2.0
_COLOURS = (36, 32, 33, 35, 34, 96, 92, 95)  # ANSI, readable on dark and on light


class Log:
    """Lines of many processes on one stream, each behind the aligned name of its process."""

    def __init__(self, stream: TextIO, names: Sequence[str], *, colour: bool) -> None:
        """`names` begins with our own, which stands before what the supervisor itself says."""
        self._own_name = names[0]
        self._stream = stream
        self._width = max(map(len, names))
        self._colours = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(names)} if colour else {}
        self._lock = threading.Lock()

    def line(self, text: str, *, name: str = "") -> None:
        """Write one line. A terminal that went away must not keep anything from being stopped."""
        name = name or self._own_name
        prefix = f"{name:<{self._width}} |"
        if name in self._colours:
            prefix = f"\x1b[{self._colours[name]}m{prefix}\x1b[0m"
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{prefix} {text}\n")
            self._stream.flush()


def wants_colour(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Only on a terminal, and not against NO_COLOR (no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def reader_is_gone(stream: TextIO) -> bool:
    """Whether the terminal or the pipe behind `stream` was closed at its other end.

    A terminal tells only the leader of its session that it closes, and `make` keeps that to itself.
    """
    try:
        poller = select.poll()
        poller.register(stream.fileno(), 0)
        return bool(poller.poll(0))
    except OSError:  # not a file: it cannot be closed from outside
        return False


class StopSignals:
    """Ctrl-C, SIGTERM and SIGHUP, noted for the loop to see; the second of a kind asks for an end at once.

    The handlers only count: an exception out of a handler could lose a child that was just being started.
    """

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    #: A closing terminal sends SIGHUP more than once.
    _HURRY = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self._counts: dict[int, int] = dict.fromkeys(self._NUMBERS, 0)
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
        self._wake_reader, self._wake_writer = -1, -1

    @property
    def requested(self) -> bool:
        """Whether to stop."""
        return any(self._counts.values())

    @property
    def at_once(self) -> bool:
        """Whether to stop without waiting for anybody."""
        return any(self._counts[number] > 1 for number in self._HURRY)

    def pause(self, seconds: float) -> None:
        """Wait; a signal ends the wait early."""
        ready, _, _ = select.select([self._wake_reader], [], [], seconds)
        if ready:
            os.read(self._wake_reader, 1024)

    def __enter__(self) -> Self:
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._note) for number in self._NUMBERS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._counts[number] += 1


@dataclass(frozen=True, slots=True)
class Child:
    """A command to keep running. `wave` orders the stop: all of wave 0 has ended before wave 1 is asked to."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(repr=False)
    wave: int = 0


class Restartable(Protocol):
    """What the supervisor keeps running: a child, or an embedded server."""

    @property
    def name(self) -> str: ...

    def start(self) -> None: ...

    def poll(self) -> int | None: ...


class ChildProcess:
    """A child in a session of its own, so that the terminal's Ctrl-C reaches the supervisor alone."""

    def __init__(self, child: Child, log: Log, record: ProcessRecord, *, cwd: Path) -> None:
        self.child = child
        self._log = log
        self._record = record
        self._cwd = cwd
        self._reader: threading.Thread | None = None
        self._process: OwnedProcess | None = None

    @property
    def name(self) -> str:
        """As in the log."""
        return self.child.name

    @property
    def pid(self) -> int | None:
        """Its process id, once started."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start it. Raises OSError."""
        self._process = OwnedProcess(
            self.name,
            processes.dying_with_parent(self.child.argv, "TERM"),
            record=self._record,
            cwd=self._cwd,
            env=self.child.env,
            stdout=subprocess.PIPE,
        )
        assert self._process.output is not None
        self._reader = threading.Thread(target=self._copy_lines, args=(self._process.output,), daemon=True)
        self._reader.start()

    def poll(self) -> int | None:
        """The exit code once it has ended (negative: a signal), None while it runs or before its first start."""
        return self._process.poll() if self._process else None

    def terminate(self) -> None:
        """Ask it to finish the work in hand and to end."""
        if self._process is not None:
            self._process.send(signal.SIGTERM)

    def family(self) -> list[psutil.Process]:
        """It and everything that it started."""
        return self._process.family() if self._process else []

    def kill(self, known_family: Iterable[psutil.Process] = ()) -> None:
        """End it and its descendants now; `known_family` adds those that it may have lost sight of since."""
        if self._process is None or self._reader is None:
            return
        self._process.kill(known_family)
        self._reader.join(_LAST_LINES_S)

    def _copy_lines(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._log.line(line.decode(errors="replace").rstrip("\r\n"), name=self.name)


@dataclass(slots=True)
class _Watched:
    part: Restartable
    started_at: float
    crashes: int = 0
    restart_at: float | None = None


def restart_delay(crashes_in_a_row: int) -> timedelta:
    """The wait before the restart that follows so many crashes."""
    return RESTART_DELAYS[min(crashes_in_a_row, len(RESTART_DELAYS)) - 1]


class Supervisor:
    """Watches parts that were started, restarts those that crash, and ends its children."""

    def __init__(self, log: Log, signals: StopSignals, record: ProcessRecord, *, cwd: Path) -> None:
        self._log = log
        self._signals = signals
        self._record = record
        self._cwd = cwd
        self._watched: list[_Watched] = []
        self._children: list[ChildProcess] = []

    def run_to_end(self, child: Child) -> int:
        """Run a command that ends by itself and return its exit code; a request to stop kills it.

        What is watched already is kept running meanwhile.
        """
        process = self._make(child)
        process.start()
        self.run_until(lambda: process.poll() is not None)
        returncode = process.poll()
        process.kill()
        self._children.remove(process)
        return -signal.SIGKILL if returncode is None else returncode

    def start(self, child: Child) -> None:
        """Start a child and keep it running."""
        process = self._make(child)
        process.start()
        self.watch(process)

    def watch(self, part: Restartable) -> None:
        """Keep a part running that has been started already."""
        self._watched.append(_Watched(part, time.monotonic()))

    def run_until(self, condition: Callable[[], bool], *, within: timedelta | None = None) -> bool:
        """Keep all parts running until `condition` holds; False after a request to stop, or when the time is up."""
        give_up_at = None if within is None else time.monotonic() + within.total_seconds()
        while not self._signals.requested:
            self._look_after_all()
            if condition():
                return True
            if give_up_at is not None and time.monotonic() >= give_up_at:
                return False
            self._signals.pause(_POLL_S)
        return False

    def stop(self) -> None:
        """Ask the children to end, wave by wave, and end what is left when the grace is over."""
        self._watched.clear()
        for wave in sorted({process.child.wave for process in self._children}):
            self._stop_wave([process for process in self._children if process.child.wave == wave])
        self._children.clear()

    def _make(self, child: Child) -> ChildProcess:
        process = ChildProcess(child, self._log, self._record, cwd=self._cwd)
        self._children.append(process)
        return process

    def _stop_wave(self, children: Sequence[ChildProcess]) -> None:
        families = {child.name: child.family() for child in children}
        for child in children:
            child.terminate()
        self._wait_for(children)
        for child in children:
            if child.pid is not None and child.poll() is None:
                self._log.line(f"{child.name} did not end in time: killed")
            child.kill(families[child.name])

    def _wait_for(self, children: Sequence[ChildProcess]) -> None:
        give_up_at = time.monotonic() + STOP_GRACE.total_seconds()
        report_at = time.monotonic() + _STOP_REPORT_EVERY_S
        while running := [child.name for child in children if child.pid is not None and child.poll() is None]:
            left_s = give_up_at - time.monotonic()
            if left_s <= 0 or self._signals.at_once:
                return
            if time.monotonic() >= report_at:
                report_at += _STOP_REPORT_EVERY_S
                self._log.line(f"waiting {left_s:.0f} s for {', '.join(running)} (Ctrl-C again: kill now)")
            self._signals.pause(_POLL_S)

    def _look_after_all(self) -> None:
        for watched in self._watched:
            self._look_after(watched, time.monotonic())

    def _look_after(self, watched: _Watched, now: float) -> None:
        if watched.restart_at is not None:
            if now >= watched.restart_at:
                self._restart(watched, now)
            return
        returncode = watched.part.poll()
        if returncode is not None:
            self._plan_restart(watched, f"ended: {processes.exit_reason(returncode)}", now)

    def _plan_restart(self, watched: _Watched, what_happened: str, now: float) -> None:
        well = now - watched.started_at >= WELL_AFTER.total_seconds()
        watched.crashes = 1 if well else watched.crashes + 1
        delay = restart_delay(watched.crashes)
        watched.restart_at = now + delay.total_seconds()
        self._log.line(f"{watched.part.name} {what_happened}; restarting it in {delay.total_seconds():.0f} s")

    def _restart(self, watched: _Watched, now: float) -> None:
        watched.restart_at, watched.started_at = None, now
        try:
            watched.part.start()
        except (EmbeddedServerError, OSError) as error:
            self._plan_restart(watched, f"could not be started: {error}", now)
