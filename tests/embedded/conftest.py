"""Real servers, each test with a state directory of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import psycopg
import pytest

from otp_service.embedded import EmbeddedServers, temporary_servers


class MakeServers(Protocol):
    """`EmbeddedServers`, with what fits a test as defaults."""

    def __call__(
        self,
        state_dir: Path = ...,
        *,
        durable: bool = ...,
        environ: Mapping[str, str] = ...,
        report: Callable[[str], None] = ...,
        cancelled: Callable[[], bool] = ...,
    ) -> EmbeddedServers: ...


#: Nothing is started for these: what is tested around the servers needs none.
BOTH_GIVEN = {"DATABASE_URL": "postgresql://somewhere/else", "REDIS_URL": "redis://somewhere/0"}
#: Valkey alone, which starts much faster than PostgreSQL.
DATABASE_GIVEN = {"DATABASE_URL": "postgresql://somewhere/else"}


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Does not exist yet."""
    return tmp_path / "var"


@pytest.fixture
def make_servers(state_dir: Path) -> Iterator[MakeServers]:
    """Make servers that are stopped and removed after the test."""
    made: list[EmbeddedServers] = []

    def make(
        state_dir: Path = state_dir,
        *,
        durable: bool = False,
        environ: Mapping[str, str] = MappingProxyType({}),
        report: Callable[[str], None] = lambda _line: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> EmbeddedServers:
        servers = EmbeddedServers(state_dir, durable=durable, environ=environ, report=report, cancelled=cancelled)
        made.append(servers)
        return servers

    yield make
    for servers in made:
        servers.stop()
    for servers in made:
        servers.remove()


def query(url: str, statement: str) -> object:
    """The first value that `statement` gives, or None."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
    return None if row is None else row[0]


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[EmbeddedServers]:
    """Servers for tests that only look."""
    with temporary_servers({}) as servers:
        yield servers
