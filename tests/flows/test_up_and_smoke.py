"""`manage.py up` and `manage.py smoke` as a person runs them: real processes, with nothing in the environment."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest

from otp_service.embedded import EmbeddedServers, processes
from tests.deadline import eventually
from tests.flows.processes import PROJECT, free_port
from tests.http import Answer, call

#: For one start on a machine whose cores are taken: a cluster and its tables are made, hosts come online.
START_S = 150
STOP_S = 60
_LOOK_EVERY_S = 0.2  # listing processes takes time that the service needs


class Run:
    """One command, what it says, and every process that was ever seen below it."""

    def __init__(self, state_dir: Path, log: Path, *arguments: str) -> None:
        self.programs: set[str] = set()
        self._seen: set[psutil.Process] = set()
        self._looked_at = 0.0
        self._log = log
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "manage.py", *arguments],
                cwd=PROJECT,
                env={**inherited, "OTP_STATE_DIR": str(state_dir)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """Everything that it has said."""
        return self._log.read_text(errors="replace")

    def runs_until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that must happen while it runs."""

        def holds() -> bool:
            self._look()
            assert self._process.poll() is None, self.output
            return condition()

        eventually(holds, within_s=START_S)

    def shows_the_way_in(self) -> None:
        """Wait for what is printed when the service is ready."""
        self.runs_until(lambda: "Ctrl-C stops everything" in self.output and len(commands(self.output)) == 3)

    def ends(self, *, within_s: float) -> int:
        """Its exit code."""

        def ended() -> bool:
            self._look()
            return self._process.poll() is not None

        eventually(ended, within_s=within_s)
        return self._process.wait()

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def left(self) -> list[psutil.Process]:
        """What still lives of all that it started."""
        return [process for process in self._seen if processes.lives(process)]

    def close(self) -> None:
        """End what a failed test leaves, in its own way first."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        processes.kill(self.left())
        self._process.kill()
        self._process.wait()

    def _look(self) -> None:
        if time.monotonic() - self._looked_at < _LOOK_EVERY_S:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                self._seen.add(process)
                with contextlib.suppress(psutil.NoSuchProcess):
                    self.programs.add(process.name())
        self._looked_at = time.monotonic()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Run commands on one state directory, which is empty at first and gone afterwards."""
    state_dir, started = tmp_path / "var", list[Run]()

    def start(*arguments: str) -> Run:
        started.append(Run(state_dir, tmp_path / f"{len(started)}.log", *arguments))
        return started[-1]

    yield start
    for command in started:
        command.close()
    EmbeddedServers(state_dir, environ={}).remove()


@pytest.fixture
def access(tmp_path: Path) -> Callable[[], dict[str, str]]:
    """Reads the file that holds the way into the demo."""
    return lambda: dict(json.loads((tmp_path / "var" / "demo.json").read_text()))


def pasted(command: str) -> Answer:
    """What comes back when a curl that was printed is carried out."""
    words = shlex.split(command)
    assert words[:2] == ["curl", "-sS"]
    url = next(word for word in words if word.startswith("http://"))
    headers = dict(words[place + 1].split(": ", 1) for place, word in enumerate(words) if word == "-H")
    method = words[words.index("-X") + 1] if "-X" in words else "GET"
    body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
    return call(method, url, body, headers)


def commands(output: str) -> list[str]:
    """The lines to paste, continued ones made whole."""
    lines = output.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip().startswith("curl ")]


def test_smoke_says_that_there_is_no_server_and_with_the_demo_sends_one_copy(run: Callable[..., Run]) -> None:
    # Ten minutes would be over long after START_S: that there is no server is said at once.
    empty = run("smoke", "--no-demo-data", "--port", "0", "--simulator-port", "0", "--timeout", "600")
    assert empty.ends(within_s=START_S) == 1, empty.output
    assert "No server may send: there is no server at all." in empty.output
    assert empty.left() == []

    smoke = run("smoke", "--port", "0", "--simulator-port", "0")
    assert smoke.ends(within_s=START_S) == 0, smoke.output
    assert "one copy was sent" in smoke.output.splitlines()
    assert smoke.output.endswith("a code was delivered\n")
    assert {"postgres", "valkey-server"} <= smoke.programs
    assert smoke.left() == []


def test_up_delivers_what_is_pasted_ends_on_ctrl_c_and_starts_again(
    run: Callable[..., Run], access: Callable[[], dict[str, str]]
) -> None:
    for nth in (1, 2):
        port, simulator_port = free_port(), free_port()
        up = run("up", "--port", str(port), "--simulator-port", str(simulator_port))
        up.shows_the_way_in()
        check_a_code_is_delivered(up, access(), f"http://127.0.0.1:{simulator_port}/control/ledger", before=nth - 1)
        up.interrupt()
        assert up.ends(within_s=STOP_S) == 0, up.output
        assert up.output.endswith("| stopped\n")
        assert {"postgres", "valkey-server"} <= up.programs
        assert up.left() == []
        assert "warning" not in up.output.lower(), up.output


def check_a_code_is_delivered(up: Run, access: dict[str, str], ledger: str, *, before: int) -> None:
    """Paste what is printed, and look at the API's list and at the simulated phones."""
    assert ledger in up.output
    assert access["password"] in up.output
    post, look, groups = commands(up.output)
    assert f"Bearer {access['api_key']}" in post
    posted = pasted(post)
    assert posted.status == 202, posted
    assert pasted(look).body["results"][0]["id"] == posted.body["id"]
    up.runs_until(lambda: bool(newest(look)["finished_at"]))
    assert newest(look)["status"] == "delivered"
    everything = pasted(look.replace("?limit=1", ""))
    assert len(everything.body["results"]) == before + 1  # those of an earlier start are still there
    assert "Shortest" in {group["name"] for group in pasted(groups).body["results"]}
    sends = call("GET", f"{ledger}?to={quote(access['to'])}").body["sends"]
    assert len(sends) == before + 1  # nor does the simulator forget what it sent


def newest(look: str) -> dict[str, Any]:
    """The message that the second command shows."""
    [message] = pasted(look).body["results"]
    return dict(message)
