"""Servers and supervisors that were killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from otp_service.embedded.places import prepare_places
from otp_service.embedded.processes import setpriv_path
from tests.deadline import eventually, runs
from tests.embedded.conftest import BOTH_GIVEN, DATABASE_GIVEN, MakeServers, query

#: Test servers may lose the last commits; what is checked here must have reached the journal.
_COMMIT_FOR_SURE = "SET synchronous_commit = on"
_REPOSITORY = Path(__file__).resolve().parents[2]


@contextmanager
def _supervisor(state_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the servers of `state_dir`."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.embedded.hold_servers", str(state_dir)], cwd=_REPOSITORY
    ) as held:
        try:
            eventually((state_dir / "embedded.json").exists, within_s=30)
            yield held
        finally:
            held.kill()


def _server_pids(state_dir: Path) -> dict[str, int]:
    stored = json.loads((state_dir / "processes.json").read_text())
    return {entry["name"]: entry["pid"] for entry in stored["processes"]}


def test_postgres_that_was_killed_starts_again_with_all_rows(make_servers: MakeServers) -> None:
    with make_servers() as servers:
        postgres = servers.servers[0]
        query(postgres.url, f"{_COMMIT_FOR_SURE}; CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
        assert postgres.pid
        os.kill(postgres.pid, signal.SIGKILL)
        eventually(lambda: postgres.poll() is not None)
        assert postgres.poll() == -signal.SIGKILL
        postgres.start()
        assert query(postgres.url, "SELECT count(*) FROM kept") == 1000


def test_valkey_that_was_killed_starts_again(make_servers: MakeServers) -> None:
    with make_servers(environ=DATABASE_GIVEN) as servers:
        valkey = servers.servers[0]
        assert valkey.pid
        os.kill(valkey.pid, signal.SIGKILL)
        eventually(lambda: valkey.poll() is not None)
        valkey.start()
        assert valkey.is_ready()


@pytest.mark.skipif(
    setpriv_path() is None,
    reason="without util-linux's setpriv (macOS, busybox) none is told of its parent's end; the next start cleans up",
)
def test_servers_end_with_a_supervisor_that_is_killed(make_servers: MakeServers, state_dir: Path) -> None:
    make_servers()  # removes what the other one leaves
    with _supervisor(state_dir) as held:
        pids = _server_pids(state_dir)
        assert pids.keys() == {"postgres", "valkey"}
        held.kill()
        eventually(lambda: not any(runs(pid) for pid in pids.values()))


def test_supervisor_and_postgres_killed_together_are_recovered(make_servers: MakeServers, state_dir: Path) -> None:
    with _supervisor(state_dir) as held:
        url = json.loads((state_dir / "embedded.json").read_text())["DATABASE_URL"]
        query(url, f"{_COMMIT_FOR_SURE}; CREATE TABLE kept AS SELECT 7 AS seven")
        os.kill(_server_pids(state_dir)["postgres"], signal.SIGKILL)
        held.kill()
    with make_servers() as servers:
        assert query(servers.urls["DATABASE_URL"], "SELECT seven FROM kept") == 7


def test_what_a_dead_supervisor_left_is_ended_by_the_next_start(make_servers: MakeServers, state_dir: Path) -> None:
    state_dir.mkdir()
    with _sleeper() as left:
        _write_record(state_dir, made_for=state_dir, pid=left.pid, started=psutil.Process(left.pid).create_time())
        reports: list[str] = []
        make_servers(environ=BOTH_GIVEN, report=reports.append).start()
        assert left.wait(10) == -signal.SIGTERM
    assert reports == ["ended sleeper, which an earlier run had left behind"]


@pytest.mark.parametrize("difference", ["started at another time", "recorded in a copied state directory"])
def test_a_process_that_is_not_surely_ours_is_left_alone(
    make_servers: MakeServers, state_dir: Path, difference: str
) -> None:
    state_dir.mkdir()
    with _sleeper() as stranger:
        started = psutil.Process(stranger.pid).create_time()
        if difference == "started at another time":
            _write_record(state_dir, made_for=state_dir, pid=stranger.pid, started=started - 60)
        else:
            _write_record(state_dir, made_for=state_dir / "copied", pid=stranger.pid, started=started)
        make_servers(environ=BOTH_GIVEN).start()
        assert stranger.poll() is None


def test_a_lock_file_with_the_id_of_another_program_does_not_stop_postgres(make_servers: MakeServers) -> None:
    with make_servers() as servers:
        data_dir = servers.servers[0].places.home / "postgres"
        lock = data_dir / "postmaster.pid"
        content = lock.read_text()
    # After a restart of the machine another program may have the dead server's id.
    lock.write_text(content.replace(content.split()[0], str(os.getpid()), 1))
    with make_servers() as servers:
        assert query(servers.urls["DATABASE_URL"], "SELECT 1") == 1


def test_a_cluster_that_was_made_half_is_made_anew(make_servers: MakeServers, state_dir: Path) -> None:
    state_dir.mkdir()
    half_made = prepare_places(state_dir, durable=False).home / "postgres.part"
    half_made.mkdir(mode=0o700)
    (half_made / "PG_VERSION").touch()
    with make_servers() as servers:
        assert query(servers.urls["DATABASE_URL"], "SELECT 1") == 1
    assert not half_made.exists()


@contextmanager
def _sleeper() -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-c", "import signal; signal.pause()"]
    with subprocess.Popen(argv, start_new_session=True) as sleeper:
        yield sleeper
        sleeper.kill()


def _write_record(state_dir: Path, *, made_for: Path, pid: int, started: float) -> None:
    entry = {"name": "sleeper", "pid": pid, "started": started}
    (state_dir / "processes.json").write_text(json.dumps({"state_dir": str(made_for), "processes": [entry]}))
