"""What a start gives, and what a stop leaves."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import psutil
import pytest
import redis

from otp_service.embedded import EmbeddedServers, StartCancelledError, temporary_servers
from tests.deadline import eventually
from tests.embedded.conftest import BOTH_GIVEN, DATABASE_GIVEN, MakeServers, query


def _pids(servers: EmbeddedServers) -> list[int]:
    pids = [server.pid for server in servers.servers]
    children = [child.pid for pid in pids if pid for child in psutil.Process(pid).children(recursive=True)]
    return [pid for pid in pids if pid] + children


def test_valkey_keeps_nothing_and_evicts_nothing(shared_servers: EmbeddedServers) -> None:
    with redis.Redis.from_url(shared_servers.urls["REDIS_URL"]) as client:
        assert client.ping()
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("save") == {"save": ""}
        assert client.config_get("appendonly") == {"appendonly": "no"}
        assert client.config_get("port") == {"port": "0"}


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("TimeZone", "UTC"),
        ("server_encoding", "UTF8"),
        ("listen_addresses", ""),
        ("max_connections", "200"),
        ("fsync", "off"),
        ("unix_socket_permissions", "0700"),
    ],
)
def test_postgres_is_configured(shared_servers: EmbeddedServers, setting: str, value: str) -> None:
    assert query(shared_servers.urls["DATABASE_URL"], f"SELECT current_setting('{setting}')") == value


def test_texts_are_sorted_by_code_point_whatever_the_machine_speaks(shared_servers: EmbeddedServers) -> None:
    collation = query(
        shared_servers.urls["DATABASE_URL"], "SELECT string_agg(t, '' ORDER BY t) FROM unnest('{b,A,ä,a}'::text[]) t"
    )
    assert collation == "Aabä"


def test_durable_servers_sync_to_disk_and_keep_their_data(make_servers: MakeServers) -> None:
    with make_servers(durable=True) as servers:
        url = servers.urls["DATABASE_URL"]
        settings = [query(url, f"SHOW {name}") for name in ("fsync", "synchronous_commit", "full_page_writes")]
        query(url, "CREATE TABLE kept AS SELECT 7 AS seven")
    assert settings == ["on", "on", "on"]
    with make_servers(durable=True) as servers:
        assert query(servers.urls["DATABASE_URL"], "SELECT seven FROM kept") == 7


def test_stop_leaves_no_process_and_no_folder() -> None:
    with temporary_servers({}) as servers:
        pids = _pids(servers)
        places = servers.servers[0].places
        folders = {servers.state_dir, places.home, places.run_dir}
        assert all(folder.is_dir() for folder in folders)
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    assert not any(folder.exists() for folder in folders)


def test_addresses_are_handed_out_in_a_private_file_while_it_runs(make_servers: MakeServers, state_dir: Path) -> None:
    handed_out = state_dir / "embedded.json"
    with make_servers(environ=DATABASE_GIVEN) as servers:
        # Without the address that was given: a password in it is not written to disk.
        assert json.loads(handed_out.read_text()) == {"REDIS_URL": servers.urls["REDIS_URL"], "pid": os.getpid()}
        assert stat.S_IMODE(handed_out.stat().st_mode) == 0o600
    assert not handed_out.exists()


def test_a_server_whose_address_is_given_is_not_started(make_servers: MakeServers) -> None:
    with make_servers(environ=DATABASE_GIVEN) as servers:
        assert [server.name for server in servers.servers] == ["valkey"]
        assert servers.env["DATABASE_URL"] == DATABASE_GIVEN["DATABASE_URL"]


def test_nothing_is_started_when_both_addresses_are_given(make_servers: MakeServers) -> None:
    with make_servers(environ=BOTH_GIVEN) as servers:
        assert servers.servers == []
        assert servers.urls == BOTH_GIVEN
        assert servers.env["DJANGO_SECRET_KEY"]


def test_a_start_that_is_cancelled_stops_what_it_started(make_servers: MakeServers, state_dir: Path) -> None:
    with pytest.raises(StartCancelledError):
        make_servers(environ=DATABASE_GIVEN, cancelled=lambda: True).start()
    assert json.loads((state_dir / "processes.json").read_text())["processes"] == []
    make_servers(environ=DATABASE_GIVEN).start()  # and the lock is free


def test_remove_keeps_the_files_of_others(make_servers: MakeServers, state_dir: Path) -> None:
    with make_servers(environ=DATABASE_GIVEN):
        (state_dir / "notes.txt").touch()
    make_servers().remove()
    assert [path.name for path in state_dir.iterdir()] == ["notes.txt"]
