"""A supervisor of real, small children, with its log in a string."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from otp_service.embedded.processes import ProcessRecord
from scheduler.supervisor import Child, Log, StopSignals, Supervisor

WITHIN = timedelta(seconds=20)


@dataclass
class Stage:
    """A supervisor and what it wrote."""

    supervisor: Supervisor
    signals: StopSignals
    stream: io.StringIO = field(repr=False)
    cwd: Path

    @property
    def log(self) -> str:
        """Everything so far."""
        return self.stream.getvalue()

    def run_until_logged(self, text: str, *, times: int = 1) -> None:
        """Supervise until `text` stands in the log so often."""
        done = self.supervisor.run_until(lambda: self.log.count(text) >= times, within=WITHIN)
        assert done, self.log


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Its children are ended after the test."""
    stream = io.StringIO()
    log = Log(stream, ["up", "first", "second"], colour=False)
    with StopSignals() as signals:
        supervisor = Supervisor(log, signals, ProcessRecord(tmp_path), cwd=tmp_path)
        yield Stage(supervisor, signals, stream, tmp_path)
        supervisor.stop()


def python_child(code: str, *, name: str = "first", wave: int = 0) -> Child:
    """A child that runs `code`."""
    return Child(name, [sys.executable, "-u", "-c", code], dict(os.environ), wave=wave)
