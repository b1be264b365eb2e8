"""The embedded servers of one state directory, as one thing to start and to stop."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from otp_service.embedded.errors import EmbeddedServerError
from otp_service.embedded.places import Places, default_state_dir, made_folders, prepare_places
from otp_service.embedded.postgres import Postgres
from otp_service.embedded.processes import ProcessRecord
from otp_service.embedded.secret_keys import read_or_make_secrets, write_private_json
from otp_service.embedded.server import EmbeddedServer
from otp_service.embedded.supervisor_lock import SupervisorLock
from otp_service.embedded.valkey import Valkey

_HANDED_OUT = "embedded.json"
_SECRETS = "secrets.json"
#: Everything that a run leaves in the state directory, beside the folders.
_STATE_FILES = (
    *(_HANDED_OUT, _SECRETS, "demo.json", "identity.json", "processes.json", "lock"),
    *("postgres.log", "valkey.log", "smoke.log"),
)


class EmbeddedServers:
    """PostgreSQL and Valkey for a machine with nothing installed; a context manager.

    A server whose URL is in `environ` is not started. `durable=False` trades safety against a crash of the
    machine for speed, and `remove()` then takes the data away. `report` is told what a person should know;
    `cancelled` is asked while a start waits. Start from the main thread: see `processes.dying_with_parent`.
    """

    def __init__(
        self,
        state_dir: Path | None = None,
        *,
        durable: bool = True,
        environ: Mapping[str, str] = os.environ,
        report: Callable[[str], None] = lambda _line: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self.state_dir = (state_dir or default_state_dir(environ)).absolute()
        self.record = ProcessRecord(self.state_dir)
        self.servers: list[EmbeddedServer] = []
        self.urls: dict[str, str] = {}
        self._durable = durable
        self._environ = environ
        self._report = report
        self._cancelled = cancelled
        self._lock = SupervisorLock(self.state_dir)
        self._secrets: dict[str, str] = {}
        self._places: Places | None = None

    @property
    def env(self) -> dict[str, str]:
        """What children need in their environment; what the environment already says, wins."""
        made = {"OTP_EMBEDDED": "1", **self._secrets, **self.urls}
        chosen = {name: self._environ.get(name) or value for name, value in made.items()}
        return {**chosen, "OTP_STATE_DIR": str(self.state_dir)}

    def claim(self) -> None:
        """Become the one supervisor of the state directory, and end what an earlier one left.

        Part of `start`; by itself for those who need what the earlier one held, such as ports, before that.
        Raises EmbeddedServerError.
        """
        if self._lock.is_held:
            return
        try:
            self.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.take()
        except OSError as error:
            raise EmbeddedServerError(f"The state directory cannot be used: {error}. Set OTP_STATE_DIR.") from error
        for name in self.record.end_leftovers():
            self._report(f"ended {name}, which an earlier run had left behind")

    def start(self) -> None:
        """Start what the environment does not name. Raises EmbeddedServerError, with everything stopped again."""
        self.claim()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self, *, hurried: Callable[[], bool] = lambda: False) -> None:
        """Stop what was started, and nothing else; without patience as soon as `hurried`. May be called twice."""
        for server in reversed(self.servers):
            server.stop(hurried=hurried)
        if self._places is not None:
            (self.state_dir / _HANDED_OUT).unlink(missing_ok=True)
            shutil.rmtree(self._places.run_dir, ignore_errors=True)
        self.servers, self._places = [], None
        self._lock.release()

    def remove(self) -> None:
        """Remove all data, and the state directory unless somebody else's files are in it.

        Raises EmbeddedServerError while a supervisor runs on it.
        """
        if not self.state_dir.is_dir():
            return
        self._lock.take()
        try:
            self.record.end_leftovers()
            for folder in made_folders(self.state_dir, durable=self._durable):
                shutil.rmtree(folder, ignore_errors=True)
            for name in _STATE_FILES:
                (self.state_dir / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.state_dir.rmdir()
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        self._secrets = read_or_make_secrets(self.state_dir / _SECRETS)
        wanted = [name for name in ("DATABASE_URL", "REDIS_URL") if not self._environ.get(name)]
        self.urls = {name: url for name in ("DATABASE_URL", "REDIS_URL") if (url := self._environ.get(name))}
        if not wanted:
            return
        self._places = prepare_places(self.state_dir, durable=self._durable)
        _empty(self._places.run_dir)
        for name in wanted:
            self._start_server(name, self._places)
        embedded_urls = {name: self.urls[name] for name in wanted}
        write_private_json(self.state_dir / _HANDED_OUT, {**embedded_urls, "pid": os.getpid()})

    def _start_server(self, name: str, places: Places) -> None:
        server = self._make_server(name, places)
        server.log_path.write_bytes(b"")
        self.servers.append(server)
        server.start()
        self.urls[name] = server.url

    def _make_server(self, name: str, places: Places) -> EmbeddedServer:
        if name == "REDIS_URL":
            return Valkey(places, self.record, cancelled=self._cancelled)
        return Postgres(places, self.record, durable=self._durable, cancelled=self._cancelled)


@contextmanager
def temporary_servers(environ: Mapping[str, str] = os.environ) -> Iterator[EmbeddedServers]:
    """Servers for one run of tests or checks: quick, and without a trace afterwards."""
    # Not a TemporaryDirectory: that removes itself when the interpreter ends, before its user has stopped the servers.
    state_dir = Path(tempfile.mkdtemp(prefix="otp-state-"))
    servers = EmbeddedServers(state_dir, durable=False, environ=environ)
    try:
        with servers:
            yield servers
    finally:
        servers.remove()
        shutil.rmtree(state_dir, ignore_errors=True)


def celery_broker_url(redis_url: str) -> str:
    """The same server as `redis_url`, in the spelling that Celery reads: it has its own for Unix sockets."""
    parts = urlsplit(redis_url)
    if parts.scheme != "unix":
        return redis_url
    database = dict(pair.partition("=")[::2] for pair in parts.query.split("&")).get("db", "0")
    return f"redis+socket://{quote(unquote(parts.path))}?virtual_host={database}"


def _empty(folder: Path) -> None:
    """Remove the sockets of servers that are gone."""
    for path in folder.iterdir():
        path.unlink()
