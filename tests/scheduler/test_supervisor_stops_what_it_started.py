"""The end of a run: all of it, in order, and nobody else's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from scheduler import supervisor
from tests.deadline import eventually, runs
from tests.scheduler.conftest import Stage, python_child

_WAITS = "import signal; print('waits'); signal.pause()"
_STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('waits')\nwhile True: signal.pause()"
_SAYS_GOODBYE = (
    "import signal, sys\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('bye')))\n"
    "print('waits')\n"
    "signal.pause()\n"
)
_HAS_CHILDREN = (
    "import signal, subprocess, sys\n"
    "for detached in (False, True):\n"
    "    p = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], start_new_session=detached)\n"
    "    print('grandchild', p.pid, flush=True)\n"
    "print('waits')\n"
    "signal.pause()\n"
)


def _pids(log: str, word: str) -> list[int]:
    return [int(line.split()[-1]) for line in log.splitlines() if word in line]


def test_children_and_all_their_descendants_end(stage: Stage) -> None:
    stage.supervisor.start(python_child(_HAS_CHILDREN))
    stage.run_until_logged("waits")
    grandchildren = _pids(stage.log, "grandchild")
    assert [runs(pid) for pid in grandchildren] == [True, True]
    stage.supervisor.stop()
    eventually(lambda: not any(runs(pid) for pid in grandchildren))


def test_a_process_that_it_did_not_start_is_left_alone(stage: Stage) -> None:
    argv = [sys.executable, "-c", _WAITS]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as stranger:
        stage.supervisor.start(python_child(_WAITS))
        stage.run_until_logged("waits")
        stage.supervisor.stop()
        assert stranger.poll() is None
        stranger.kill()


def test_a_child_may_finish_its_work(stage: Stage) -> None:
    stage.supervisor.start(python_child(_SAYS_GOODBYE))
    stage.run_until_logged("waits")
    stage.supervisor.stop()
    assert "first  | bye" in stage.log


def test_a_child_that_does_not_end_is_killed_after_the_grace(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOP_GRACE", timedelta(seconds=1))
    monkeypatch.setattr(supervisor, "_STOP_REPORT_EVERY_S", 0.1)
    stage.supervisor.start(python_child(_STUBBORN))
    stage.run_until_logged("waits")
    stage.supervisor.stop()
    assert "for first (Ctrl-C again: kill now)" in stage.log
    assert stage.log.endswith("up     | first did not end in time: killed\n")


def test_a_second_ctrl_c_kills_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOP_GRACE", timedelta(hours=1))
    stage.supervisor.start(python_child(_STUBBORN))
    stage.run_until_logged("waits")
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGINT)
    stage.supervisor.stop()
    assert "killed" in stage.log


def test_a_later_wave_is_asked_only_after_the_earlier_one_has_ended(stage: Stage) -> None:
    stage.supervisor.start(python_child(_SAYS_GOODBYE, name="second", wave=1))
    stage.supervisor.start(python_child(_SAYS_GOODBYE, name="first", wave=0))
    stage.run_until_logged("waits", times=2)
    stage.supervisor.stop()
    assert stage.log.splitlines()[-2:] == ["first  | bye", "second | bye"]


def test_the_terminals_ctrl_c_does_not_reach_the_children(stage: Stage) -> None:
    stage.supervisor.start(python_child("import os; print('session', os.getsid(0) == os.getpid())"))
    stage.run_until_logged("session True")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_each_signal_ends_the_run(stage: Stage, number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    assert stage.supervisor.run_until(lambda: True) is False
    assert stage.signals.requested
    assert not stage.signals.at_once


@pytest.mark.parametrize(
    ("number", "at_once"),
    [(signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGHUP, False)],
    ids=["SIGINT", "SIGTERM", "SIGHUP, which a closing terminal repeats"],
)
def test_a_repeated_signal_asks_for_haste(stage: Stage, number: signal.Signals, at_once: bool) -> None:
    for _ in range(2):
        os.kill(os.getpid(), number)
    assert stage.signals.at_once is at_once


def test_handlers_are_given_back(stage: Stage) -> None:
    before = signal.getsignal(signal.SIGHUP)
    with supervisor.StopSignals():
        assert signal.getsignal(signal.SIGHUP) != before
    assert signal.getsignal(signal.SIGHUP) == before


def test_a_command_that_ends_by_itself_gives_its_exit_code(stage: Stage) -> None:
    assert stage.supervisor.run_to_end(python_child("print('done'); raise SystemExit(4)")) == 4
    assert "first  | done" in stage.log


def test_a_request_to_stop_kills_a_command(stage: Stage) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    assert stage.supervisor.run_to_end(python_child(_WAITS)) == -signal.SIGKILL
