"""The service's real processes, started for one test on the test's own database, and killed by their pids."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.parse import urlsplit, urlunsplit

from django.db import connection

from tests.deadline import eventually
from tests.http import call

PROJECT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """One process in a session of its own, so that killing it takes exactly what it started."""

    def __init__(self, name: str, argv: Sequence[str], env: dict[str, str], log: Path, works_when_it_says: str) -> None:
        self.name = name
        self.works_when_it_says = works_when_it_says
        self._argv = list(argv)
        self._env = env
        self._log = log
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, its output into the log."""
        with self._log.open("ab") as output:
            self._running = self._popen(output)

    def _popen(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._argv, cwd=PROJECT, env=self._env, stdout=output, stderr=output, start_new_session=True
        )

    def works(self) -> bool:
        """Whether it has said that it is ready."""
        return self.works_when_it_says in self._log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to what it started."""
        assert self._running is not None
        os.killpg(self._running.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.signal(signal.SIGKILL)
        self._wait()

    def end(self) -> int:
        """SIGTERM, and its exit code."""
        assert self._running is not None
        self._running.terminate()
        return self._wait()

    def close(self) -> None:
        """Leave nothing behind."""
        if self._running is not None and self._running.poll() is None:
            self.kill()

    def _wait(self) -> int:
        assert self._running is not None
        return self._running.wait(30)


class Processes:
    """Web, dispatcher and worker, with the settings of one test; a second dispatcher and beat for those that name them.

    PostgreSQL knows each by its name here: it is the `application_name` of its connections.
    """

    def __init__(self, log_dir: Path, **env: str) -> None:
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self._log_dir = log_dir
        self.redis_url = env.get("REDIS_URL") or _own_redis_url()
        self._env = {**os.environ, "DATABASE_URL": _test_database_url(), **env, "REDIS_URL": self.redis_url}
        python = sys.executable
        self.web = self._process(
            "web", [python, "-m", "otp_service.serve", "--listen", f"127.0.0.1:{self.port}"], "Serving on"
        )
        dispatch = [python, "manage.py", "dispatch", "--shared", "100", "--reserve", "30"]
        self.dispatcher = self._process("dispatcher", dispatch, "dispatcher_started")
        self.second_dispatcher = self._process("second dispatcher", dispatch, "dispatcher_started")
        celery = [python, "-m", "celery", "-A", "otp_service"]
        self.worker = self._process("worker", [*celery, "worker", "--pool", "solo", "--loglevel", "INFO"], " ready.")
        self.beat = self._process("beat", [*celery, "beat", "--loglevel", "INFO"], "beat: Starting")
        self.all = (self.web, self.dispatcher, self.worker)

    def _process(self, name: str, argv: Sequence[str], works_when_it_says: str) -> Process:
        return Process(name, argv, {**self._env, "PGAPPNAME": name}, self._log_dir / f"{name}.log", works_when_it_says)

    def start(self, *wanted: Process) -> None:
        """Start these, or web, dispatcher and worker, and wait until they work."""
        starting = wanted or self.all
        for process in starting:
            process.start()
        eventually(self._answers, within_s=60)
        for process in starting:
            eventually(process.works, within_s=60)

    def _answers(self) -> bool:
        try:
            return call("GET", f"{self.base}/health/ready").status == 200
        except OSError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (self.beat, self.second_dispatcher, *self.all):
            process.close()


def _own_redis_url() -> str:
    """The address that settings were given, with a database of this pytest worker's: tasks reach no other's worker."""
    given = os.environ["REDIS_URL"]
    number = 1 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 15  # 16 databases; not 0
    if given.startswith("unix:"):
        return f"{given.partition('?')[0]}?db={number}"
    return urlunsplit(urlsplit(given)._replace(path=f"/{number}"))


def _test_database_url() -> str:
    """The address that settings were given, with the name of the test's database."""
    given = urlsplit(os.environ["DATABASE_URL"])
    return urlunsplit(given._replace(path=f"/{connection.settings_dict['NAME']}"))
