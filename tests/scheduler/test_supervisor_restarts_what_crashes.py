"""A part that ends by itself is started again, a little later each time."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import pytest

from otp_service.embedded import EmbeddedServerError
from scheduler import supervisor
from tests.deadline import eventually, runs
from tests.scheduler.conftest import Stage, python_child

_SAYS_ITS_ID = "import os, signal; print('id', os.getpid()); signal.pause()"


@pytest.fixture(autouse=True)
def _quick_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RESTART_DELAYS", (timedelta(0),))


class _Part:
    """Ends at once, and fails to start when told to."""

    name = "postgres"

    def __init__(self, *, fails: bool = False) -> None:
        self.starts = 0
        self.fails = fails

    def start(self) -> None:
        self.starts += 1
        if self.fails:
            raise EmbeddedServerError("no space left")

    def poll(self) -> int:
        return -signal.SIGKILL


def test_a_child_that_was_killed_is_reported_and_started_again(stage: Stage) -> None:
    stage.supervisor.start(python_child(_SAYS_ITS_ID))
    stage.run_until_logged("id ")
    first_id = int(stage.log.split("id ")[1].split()[0])
    os.kill(first_id, signal.SIGKILL)
    stage.run_until_logged("id ", times=2)
    assert "up     | first ended: signal SIGKILL; restarting it in 0 s" in stage.log


def test_the_exit_code_is_reported(stage: Stage) -> None:
    stage.supervisor.start(python_child("raise SystemExit(3)"))
    stage.run_until_logged("first ended: exit code 3")


def test_a_child_that_ends_without_an_error_is_started_again_too(stage: Stage) -> None:
    stage.supervisor.start(python_child("print('hello')"))
    stage.run_until_logged("hello", times=2)
    assert "first ended: exit code 0" in stage.log


def test_what_a_crashed_child_had_started_is_ended(stage: Stage) -> None:
    code = (
        "import subprocess, sys, os\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print('grandchild', p.pid)\n"
        "os._exit(1)\n"
    )
    stage.supervisor.start(python_child(code))
    stage.run_until_logged("first ended: exit code 1")
    grandchild = int(stage.log.split("grandchild ")[1].split()[0])
    eventually(lambda: not runs(grandchild))


def test_an_embedded_server_that_ends_is_started_again(stage: Stage) -> None:
    part = _Part()
    stage.supervisor.watch(part)
    assert stage.supervisor.run_until(lambda: part.starts >= 2, within=timedelta(seconds=20))


def test_a_restart_that_fails_is_reported_and_tried_again(stage: Stage) -> None:
    stage.supervisor.watch(_Part(fails=True))
    stage.run_until_logged("postgres could not be started: no space left; restarting it in 0 s", times=2)


@pytest.mark.parametrize(
    ("crashes_in_a_row", "seconds"),
    [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (7, 30), (1000, 30)],
)
def test_each_crash_in_a_row_waits_longer(monkeypatch: pytest.MonkeyPatch, crashes_in_a_row: int, seconds: int) -> None:
    monkeypatch.undo()
    assert supervisor.restart_delay(crashes_in_a_row) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("well_after", "second_delay"),
    [
        pytest.param(timedelta(0), "1 s", id="it was well meanwhile"),
        pytest.param(timedelta(hours=1), "2 s", id="it was not"),
    ],
)
def test_a_crash_after_a_good_while_is_a_first_one_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, well_after: timedelta, second_delay: str
) -> None:
    monkeypatch.setattr(supervisor, "RESTART_DELAYS", (timedelta(seconds=1), timedelta(seconds=2)))
    monkeypatch.setattr(supervisor, "WELL_AFTER", well_after)
    stage.supervisor.watch(_Part())
    stage.run_until_logged("postgres ended", times=2)
    assert stage.log.splitlines()[1].endswith(f"restarting it in {second_delay}")
