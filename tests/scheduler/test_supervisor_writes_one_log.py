"""Lines of many processes on one terminal."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.supervisor import Log, reader_is_gone, wants_colour
from tests.scheduler.conftest import Stage, python_child


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class _ClosedTerminal(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(5, "Input/output error")


def test_names_are_aligned() -> None:
    stream = io.StringIO()
    log = Log(stream, ["up", "dispatcher"], colour=False)
    log.line("starts")
    log.line("works", name="dispatcher")
    assert stream.getvalue() == "up         | starts\ndispatcher | works\n"


def test_each_process_has_its_colour() -> None:
    stream = io.StringIO()
    log = Log(stream, ["up", "web"], colour=True)
    log.line("starts")
    log.line("works", name="web")
    assert stream.getvalue() == "\x1b[36mup  |\x1b[0m starts\n\x1b[32mweb |\x1b[0m works\n"


@pytest.mark.parametrize(
    ("stream", "environ", "colour"),
    [
        pytest.param(_Terminal(), {}, True, id="terminal"),
        pytest.param(_Terminal(), {"NO_COLOR": "1"}, False, id="NO_COLOR"),
        pytest.param(_Terminal(), {"NO_COLOR": ""}, True, id="NO_COLOR empty, which is as good as unset"),
        pytest.param(_Terminal(), {"TERM": "dumb"}, False, id="dumb terminal"),
        pytest.param(io.StringIO(), {}, False, id="file"),
    ],
)
def test_colour_is_for_terminals(stream: io.StringIO, environ: dict[str, str], colour: bool) -> None:
    assert wants_colour(stream, environ) is colour


def test_a_terminal_that_went_away_stops_nothing() -> None:
    Log(_ClosedTerminal(), ["up"], colour=False).line("still here")


@pytest.mark.parametrize("make_ends", [os.pipe, os.openpty], ids=["pipe", "terminal"])
def test_a_reader_that_goes_away_is_noticed(make_ends: Callable[[], tuple[int, int]]) -> None:
    reader, writer = make_ends()
    with os.fdopen(writer, "w") as stream:
        assert not reader_is_gone(stream)
        os.close(reader)
        assert reader_is_gone(stream)


def test_a_file_has_no_reader_that_could_go_away(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        assert not reader_is_gone(stream)
    assert not reader_is_gone(io.StringIO())


def test_output_and_errors_of_a_child_come_line_by_line_also_when_they_are_not_text(stage: Stage) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.stdout.buffer.write(b'\\xff no newline')"
    assert stage.supervisor.run_to_end(python_child(code)) == 0
    assert sorted(stage.log.splitlines()) == ["first  | err", "first  | out", "first  | \ufffd no newline"]
