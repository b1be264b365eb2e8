"""What the lab's command refuses before it measures anything."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from scheduler.lab.cell import Cell
from scheduler.lab.scenarios import Scenario
from scheduler.lab.schemes import Scheme


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--schemes", "D,E"], r"'e': write some of FIFO,A,B,C,D", id="unknown scheme"),
        pytest.param(["--schemes", ""], r"'': write some of FIFO", id="no scheme"),
        pytest.param(["--scenarios", "rain"], r"'rain': write some of healthy,push-hangs", id="unknown scenario"),
        pytest.param(["--runs", "0"], r"--runs: '0': write a whole number from 1", id="no run"),
        pytest.param(["--runs", "1.5"], r"'1\.5': write a whole number", id="half a run"),
        pytest.param(["--jobs", "x"], r"--jobs: 'x': write a whole number", id="jobs not a number"),
        pytest.param(["--seconds", "4.9"], r"'4\.9': write a number from 5 to 600", id="too short"),
        pytest.param(["--seconds", "nan"], r"'nan': write a number from 5", id="not a number"),
        pytest.param(["--otp-rate", "-1"], r"'-1': write a number from 0", id="negative rate"),
        pytest.param(["--json", "/nowhere/lab.json"], r"a file cannot be written there", id="no such folder"),
        pytest.param(["--chart", "/"], r"a file cannot be written there", id="a folder"),
    ],
)
def test_refuses_with_a_sentence(arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        call_command("lanes_lab", *arguments)


def test_says_that_it_could_not_make_databases_and_no_password(settings: Any) -> None:
    settings.DATABASE_URL = "postgres://nobody:hunter2@127.0.0.1:1/none"
    with pytest.raises(CommandError, match=r"on the server of DATABASE_URL, and could not: ") as refusal:
        call_command("lanes_lab", stdout=io.StringIO())
    assert "hunter2" not in str(refusal.value)


def test_names_may_be_written_in_any_case(tmp_path: Path) -> None:
    out = io.StringIO()
    call_command("lanes_lab", "--sizing", "--schemes", "fifo, d", "--chart", str(tmp_path / "new.svg"), stdout=out)
    assert not list(tmp_path.iterdir())


def test_sizing_measures_nothing() -> None:
    out = io.StringIO()
    call_command("lanes_lab", "--sizing", "--otp-rate", "100", "--promo-rate", "10", stdout=out)
    lines = out.getvalue().splitlines()
    assert lines[0] == "floor 60, shared 1,140, of which promo leaves 342"
    assert [line.split()[5:7] for line in lines[4:]] == [["100", "30"], ["100", "150"], ["10", "1"], ["10", "30"]]


def test_a_cell_is_not_run_on_the_products_database() -> None:
    cell = Cell(Scheme.D, Scenario.HEALTHY, full=False, seconds=5)
    with pytest.raises(CommandError, match="a database of the lab's own"):
        call_command("lanes_lab", "--cell", cell.written())
