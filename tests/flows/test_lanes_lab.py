"""The lab in real time: a few short cells, and an end by Ctrl-C."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command

from scheduler.lab.databases import PREFIX
from scheduler.lab.scenarios import PUSH_HUNG
from tests.deadline import eventually
from tests.flows.processes import PROJECT


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """What other tests hold for a moment goes by itself."""
    yield
    eventually(lambda: not lab_databases(), within_s=60)


def lab_databases() -> list[Any]:
    with psycopg.connect(settings.DATABASE_URL) as server:
        return server.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [PREFIX]).fetchall()


def test_fifo_starts_no_otp_and_bulkheads_hold_while_push_hangs(tmp_path: Path) -> None:
    figures, chart, out = tmp_path / "lab.json", tmp_path / "lab.svg", io.StringIO()
    chosen = ["--schemes", "FIFO,D", "--scenarios", "push-hangs", "--runs", "1", "--seconds", "5", "--jobs", "2"]
    call_command("lanes_lab", *chosen, "--json", str(figures), "--chart", str(chart), stdout=out)
    fifo, bulkheads = json.loads(figures.read_text())["cells"]
    assert (fifo["scheme"], fifo["started"], fifo["of"]) == ("FIFO", 0, 30)
    assert (bulkheads["scheme"], bulkheads["started"], bulkheads["of"]) == ("D", 30, 30)
    assert bulkheads["p99"]["seconds"] < PUSH_HUNG.total_seconds() / 2
    assert fifo["promo_per_s"] > 0 < bulkheads["promo_per_s"]
    assert chart.read_text().startswith("<svg")
    assert "yes  FIFO starts no otp, push hangs 3 s: 0 of 30" in out.getvalue()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=lambda ending: ending.name)
def test_ends_cleanly(ending: signal.Signals) -> None:
    command = [sys.executable, "manage.py", "lanes_lab", "--seconds", "600"]
    lab = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        eventually(psutil.Process(lab.pid).children, within_s=60)  # other tests' databases say nothing of this lab
        assert lab_databases()
        lab.send_signal(ending)
        _, fault = lab.communicate(timeout=60)
    finally:
        lab.kill()
        lab.wait()
    assert (lab.returncode, fault.strip()) == (130, "CommandError: stopped; the lab's databases are dropped")
