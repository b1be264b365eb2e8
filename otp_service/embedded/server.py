"""What PostgreSQL and Valkey have in common as children: start, readiness, an orderly stop."""

from __future__ import annotations

import os
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from signal import Signals
from typing import ClassVar

from otp_service.embedded import processes
from otp_service.embedded.errors import EmbeddedServerError, StartCancelledError
from otp_service.embedded.places import Places
from otp_service.embedded.processes import OwnedProcess, ProcessRecord

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
        self._process: OwnedProcess | None = None

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

    def start(self) -> None:
        """Start it and wait until it answers. Raises EmbeddedServerError with the end of its log."""
        give_up_at = time.monotonic() + _RETRY_FOR_S
        while not self._start_once():
            if time.monotonic() > give_up_at:
                raise EmbeddedServerError(f"The embedded {self.name} does not start. Its log ends:\n{self._log_tail()}")
            processes.pause(_RETRY_EVERY_S)

    def poll(self) -> int | None:
        """The exit code once it has ended (negative: a signal), None while it runs."""
        return self._process.poll() if self._process else None

    @property
    def pid(self) -> int | None:
        """Its process id, once started."""
        return self._process.pid if self._process else None

    def stop(self, *, hurried: Callable[[], bool] = lambda: False) -> None:
        """End it in an orderly way and wait for its end; the last step of the ladder alone when `hurried`."""
        if self._process is None:
            return
        for number, patience_s in self.stop_ladder[:-1]:
            if hurried():
                break
            self._process.send(number)
            if self._process.ends_within(patience_s, unless=hurried):
                break
        last_number, last_patience_s = self.stop_ladder[-1]
        self._process.send(last_number)
        self._process.ends_within(last_patience_s)
        self._process.kill()
        self._process = None

    def run_tool(self, argv: list[str]) -> None:
        """Run one of the server's own tools to its end, as the server's account. Raises EmbeddedServerError."""
        done = subprocess.run(  # noqa: S603 - our own tools, no shell
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
        self.stop(hurried=lambda: True)
        with self.log_path.open("ab") as log:
            self._process = OwnedProcess(
                self.name,
                self._dying_with_parent(self.argv),
                record=self._record,
                cwd=self.places.home,
                env=self._environment(),
                stdout=log,
            )
        return self._becomes_ready(self._process)

    def _becomes_ready(self, process: OwnedProcess) -> bool:
        give_up_at = time.monotonic() + _READY_WITHIN_S
        while process.poll() is None:
            self._refuse_if_cancelled()
            if self.is_ready():
                return True
            if time.monotonic() > give_up_at:
                raise EmbeddedServerError(
                    f"The embedded {self.name} runs but does not answer. Its log ends:\n{self._log_tail()}"
                )
            processes.pause(_POLL_S)
        return False

    def _refuse_if_cancelled(self) -> None:
        if self._cancelled():
            raise StartCancelledError(f"The start of the embedded {self.name} was stopped.")

    def _dying_with_parent(self, argv: list[str]) -> list[str]:
        # In this order: the kernel forgets the death signal when a process changes its user.
        return self._as_account(processes.dying_with_parent(argv, self.death_signal))

    def _as_account(self, argv: list[str]) -> list[str]:
        account = self.places.account
        if account is None:
            return argv
        ids = [f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups"]
        return [str(processes.setpriv_path()), *ids, *argv]

    def _environment(self) -> dict[str, str]:
        """Nothing of ours: a PGDATA or a foreign locale must not reach the server."""
        path = os.environ.get("PATH", os.defpath)
        return {"PATH": path, "LC_ALL": "C", "TZ": "UTC", "OTP_STATE_DIR": str(self.places.state_dir)}

    def _log_tail(self) -> str:
        return self.log_path.read_text(errors="replace")[-_LOG_TAIL_CHARS:].strip() or "(nothing)"
