"""What the drill's command refuses before it runs anything, and what it lists."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from scheduler.drill import lane
from scheduler.drill.failures import FAILURES
from scheduler.management.commands import drill_routes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--only", "ttl,rain"], r"'rain': write some of refused,slow-answer", id="unknown failure"),
        pytest.param(["--only", ""], r"'': write some of refused", id="no failure"),
        pytest.param(["--jobs", "0"], r"--jobs: '0': write a whole number from 1 to 20", id="no job"),
        pytest.param(["--jobs", "x"], r"--jobs: 'x': write a whole number", id="jobs not a number"),
        pytest.param(["--json", "/nowhere/drill.json"], r"a file cannot be written there", id="no such folder"),
        pytest.param(["--json", "/"], r"a file cannot be written there", id="a folder"),
    ],
)
def test_refuses_with_a_sentence(arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        call_command("drill_routes", *arguments)


def test_says_that_it_could_not_make_databases_and_no_password(settings: Any) -> None:
    settings.DATABASE_URL = "postgres://nobody:hunter2@127.0.0.1:1/none"
    with pytest.raises(CommandError, match=r"on the server of DATABASE_URL, and could not: ") as refusal:
        call_command("drill_routes", stdout=io.StringIO())
    assert "hunter2" not in str(refusal.value)


def test_lists_its_failures_and_runs_none() -> None:
    out = io.StringIO()
    call_command("drill_routes", "--list", stdout=out)
    lines = out.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == list(FAILURES)
    assert lines[-1].endswith("  a sender name that the backup may not use")


@pytest.mark.parametrize(("only", "said"), [("ttl", "1 failure, 3 at once"), ("ttl,refused", "2 failures, 3 at once")])
def test_says_how_many_it_runs(monkeypatch: pytest.MonkeyPatch, only: str, said: str) -> None:
    monkeypatch.setattr(drill_routes, "run_all", lambda _failures, _bench: [])
    out = io.StringIO()
    call_command("drill_routes", "--only", only, stdout=out)
    assert out.getvalue().splitlines()[0] == said


def test_does_not_dispatch_on_the_products_database() -> None:
    with pytest.raises(CommandError, match="on a database of its own"):
        call_command("drill_routes", "--dispatch", lane.written([]))
