"""What PostgreSQL and Valkey have in common as children: start, readiness, an orderly stop."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from signal import Signals
from typing import ClassVar

from otp_service.embedded import processes
from otp_service.embedded.errors import EmbeddedServerError, StartCancelled
from otp_service.embedded.places import Places
from otp_service.embedded.processes import ProcessRecord

#: After an unclean stop the first starts may fail, until what was left of the old server has ended.
_RETRY_FOR_S = 10.0
_RETRY_EVERY_S = 0.5
#: Replaying the journal of a busy database takes a while; a server that lives is given this long.
_READY_WITHIN_S = 60.0
_POLL_S = 0.02
_LOG_TAIL_CHARS = 1200


class EmbeddedServer(ABC):
    """One server process, in a session of its own, that dies with us where the kernel can do that."""

    name: ClassVar[str]
    #: What the kernel sends it when we are killed: an orderly and quick stop.
    death_signal: ClassVar[str]
    #: Signals of an orderly stop, each with the seconds it is given before the next.
    stop_ladder: ClassVar[tuple[tuple[Signals, float], ...]]

    def __init__(self, places: Places, record: ProcessRecord, *, cancelled: Callable[[], bool]) -> None:
        self.places = places
        self._record = record
        self._cancelled = cancelled
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_path(self) -> Path:
        """Everything that the server writes."""
        return self.places.state_dir / f"{self.name}.log"

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients find it."""

    @property
    @abstractmethod
    def argv(self) -> list[str]:
        """The command in the foreground."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it answers now."""

    def prepare(self) -> None:
        """What must be done before each start."""

    def start(self) -> None:
        """Start it and wait until it answers. Raises EmbeddedServerError with the end of its log."""
        self.prepare()
        give_up_at = time.monotonic() + _RETRY_FOR_S
        while not self._start_once():
            if time.monotonic() > give_up_at:
                raise EmbeddedServerError(f"The embedded {self.name} does not start. Its log ends:\n{self._log_tail()}")
            self._wait(_RETRY_EVERY_S)

    def poll(self) -> int | None:
        """The exit code once it has ended (negative: a signal), None while it runs."""
        return self._process.poll() if self._process else None

    @property
    def pid(self) -> int | None:
        """Its process id, once started."""
        return self._process.pid if self._process else None

    def stop(self, *, at_once: bool = False) -> None:
        """End it in an orderly way, or at once, and wait for its end."""
        if self._process is None:
            return
        for number, patience_s in self.stop_ladder[-1:] if at_once else self.stop_ladder:
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
                break
        processes.kill(processes.family(self._process.pid))
        self._process.wait()
        self._record.remove(self._process.pid)
        self._process = None

    def run_tool(self, argv: list[str]) -> None:
        """Run one of the server's own tools to its end, as the server's account. Raises EmbeddedServerError."""
        done = subprocess.run(
            self._as_account(argv),
            cwd=self.places.home,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            start_new_session=True,
            check=False,
        )
        if done.returncode:
            raise EmbeddedServerError(f"{Path(argv[0]).name} failed:\n{done.stderr[-_LOG_TAIL_CHARS:]}")

    def _start_once(self) -> bool:
        self.stop(at_once=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                processes.dying_with_parent(self._as_account(self.argv), self.death_signal)
                if self.places.account is None
                else self._as_account(self.argv),
                cwd=self.places.home,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._record.add(self.name, self._process.pid)
        return self._becomes_ready(self._process)

    def _becomes_ready(self, process: subprocess.Popen[bytes]) -> bool:
        give_up_at = time.monotonic() + _READY_WITHIN_S
        while process.poll() is None:
            if self.is_ready():
                return True
            if time.monotonic() > give_up_at:
                raise EmbeddedServerError(
                    f"The embedded {self.name} runs but does not answer. Its log ends:\n{self._log_tail()}"
                )
            self._wait(_POLL_S)
        return False

    def _wait(self, seconds: float) -> None:
        if self._cancelled():
            raise StartCancelled(f"The start of the embedded {self.name} was stopped.")
        processes.pause(seconds)

    def _as_account(self, argv: list[str]) -> list[str]:
        account = self.places.account
        if account is None:
            return argv
        # The death signal is forgotten when a process changes its user; setpriv sets it after that.
        ids = [f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups"]
        return [str(processes.setpriv_path()), *ids, "--pdeathsig", self.death_signal, *argv]

    def _environment(self) -> dict[str, str]:
        """Nothing of ours: a PGDATA or a foreign locale must not reach the server."""
        path = os.environ.get("PATH", os.defpath)
        return {"PATH": path, "LC_ALL": "C", "TZ": "UTC", "OTP_STATE_DIR": str(self.places.state_dir)}

    def _log_tail(self) -> str:
        return self.log_path.read_text(errors="replace")[-_LOG_TAIL_CHARS:].strip() or "(nothing)"
