"""The drill in real time: every failure once, and an end from outside."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from scheduler.drill.failures import FAILURES
from scheduler.drill.lane import PREFIX
from tests.deadline import eventually, runs
from tests.flows.processes import PROJECT

#: How many seconds otp waited depends on what else the machine does: the command judges it, on a quiet one.
BY_THE_CLOCK = frozenset({"otp"})


def test_every_failure_keeps_its_promises(tmp_path: Path) -> None:
    """One test: each of them would have to run the whole drill."""
    file = tmp_path / "journals.json"
    with suppress(CommandError):  # where a condition did not hold: the journals say which
        call_command("drill_routes", "--json", str(file), stdout=io.StringIO())
    journals = {journal["name"]: journal for journal in json.loads(file.read_text())["failures"]}

    broken = {
        name: journal["still_open"]
        + [
            verdict["words"]
            for verdict in journal["verdicts"]
            if not verdict["holds"] and verdict["condition"] not in BY_THE_CLOCK
        ]
        for name, journal in journals.items()
    }
    assert broken == {name: [] for name in FAILURES}
    assert {name: journal["without_end"] for name, journal in journals.items()} == dict.fromkeys(FAILURES, 0)
    assert {name: journal["over_budget"] for name, journal in journals.items()} == dict.fromkeys(FAILURES, 0)
    assert min(sum(journal["accepted"].values()) for journal in journals.values()) > 30
    assert journals["postgres-away"]["turned_away"] > 0
    unclear = journals["slow-answer"]
    assert 0 < unclear["confirmed_duplicates"] <= unclear["possible_duplicates"] <= unclear["unknown_ever"]
    assert unclear["most_copies"] == 2


def children(drill: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(drill.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def serves(process: psutil.Process) -> bool:
    try:
        return "otp_service.serve" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def database_of(process: psutil.Process) -> str:
    """Of the drill's own; "" as long as it has not been told."""
    try:
        name = urlsplit(process.environ().get("DATABASE_URL", "")).path.removeprefix("/")
    except psutil.NoSuchProcess:
        return ""
    return name if name.startswith(PREFIX) else ""


def exist(databases: set[str]) -> bool:
    with psycopg.connect(settings.DATABASE_URL) as server:
        return bool(server.execute("SELECT 1 FROM pg_database WHERE datname = ANY(%s)", [list(databases)]).fetchall())


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=lambda ending: ending.name)
def test_ends_cleanly(ending: signal.Signals, tmp_path: Path) -> None:
    """By Ctrl-C while it prepares, by SIGTERM while a failure is run."""
    log = tmp_path / "said.txt"
    command = [sys.executable, "manage.py", "drill_routes", "--only", "recovery"]
    with log.open("w") as said:
        drill = subprocess.Popen(command, cwd=PROJECT, stdout=said, stderr=subprocess.STDOUT, text=True)
    try:
        eventually(lambda: [*filter(database_of, children(drill))], within_s=60)
        if ending is signal.SIGTERM:
            eventually(lambda: [*filter(serves, children(drill))], within_s=120)
        started = children(drill)
        databases = {*filter(None, map(database_of, started))}
        assert exist(databases)
        drill.send_signal(ending)
        drill.wait(60)
    finally:
        drill.kill()
        drill.wait()
    assert drill.returncode == 130
    assert log.read_text().splitlines()[-1] == "CommandError: stopped; the drill's databases are dropped"
    assert [process.pid for process in started if runs(process.pid)] == []
    assert not exist(databases)
