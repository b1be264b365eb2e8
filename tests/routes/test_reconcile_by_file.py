"""A provider's own file of a day beside our attempts: states, parts, costs, and what one side does not know."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from otp_service.events.models import Event
from otp_service.messages.models import Attempt
from otp_service.routes import reconcile
from otp_service.routes.price_files import UnreadableFile
from otp_service.routes.reconcile_rules import Kind, Tally
from tests.factories import NOON, AttemptFactory, RouteFactory

pytestmark = pytest.mark.django_db

ONE = "sms:one"
PRICE = {"parts": 1, "cost": Decimal("0.05"), "currency": "EUR"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "records.csv"


@pytest.fixture(autouse=True)
def route() -> None:
    RouteFactory.create(name=ONE)


def attempt(sid: str = "", **fields: Any) -> Attempt:
    given = {"route": ONE, "server": None, "provider_message_id": sid, "state": "delivered", "finished_at": NOON}
    return AttemptFactory.create(**{**given, **PRICE, **fields})


def by_file(file: Path, *lines: str) -> Tally:
    file.write_text("\n".join(["id,state,parts,cost,currency", *lines]))
    *_, tally = reconcile.by_file(ONE, NOON.date(), file)
    return tally


def test_attempts_are_found_by_their_id_and_by_ours(file: Path) -> None:
    attempt("SM1")
    ours = attempt()
    tally = by_file(file, "SM1,delivered,1,0.05,EUR", f"{ours.uuid},delivered,1,0.05,EUR")
    assert (tally.attempts, tally.compared, tally.agreed, tally.differences) == (2, 2, 2, {})


def test_each_difference_is_told_by_its_kind(file: Path) -> None:
    one = attempt("SM1")
    missing = attempt("SM2")
    tally = by_file(file, "SM1,undelivered,2,0.10,EUR", "SM9,delivered,1,0.05,EUR", "SM1,delivered,1,0.05,EUR")

    assert {kind: [(e.about, e.ours, e.theirs) for e in each] for kind, each in tally.examples.items()} == {
        Kind.STATE: [(str(one.uuid), "delivered", "failed")],
        Kind.PARTS: [(str(one.uuid), "1", "2")],
        Kind.COST: [(str(one.uuid), "0.050000 EUR", "0.10 EUR")],
        Kind.NOT_OURS: [("line 3, id SM9", "", "delivered")],
        Kind.TWICE: [(str(one.uuid), "", "delivered")],
        Kind.NOT_THEIRS: [(str(missing.uuid), "delivered", "")],
    }
    assert tally.our_cost == {"EUR": Decimal("0.05")}
    assert tally.their_cost == {"EUR": Decimal("0.20")}


def test_an_attempt_named_twice_far_apart_is_still_named_twice(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "_LINES", 1)
    attempt("SM1")
    assert by_file(file, "SM1,,,,", "SM1,,,,").differences == {Kind.TWICE: 1}


def test_ids_are_a_routes_own(file: Path) -> None:
    attempt("SM1", route="sms:two")
    assert by_file(file, "SM1,,,,").differences == {Kind.NOT_OURS: 1}


@pytest.mark.parametrize(("kind", "is_found"), [("kannel", True), ("http_json", False)])
def test_ids_that_are_kept_in_one_spelling_are_looked_for_in_it(file: Path, kind: str, *, is_found: bool) -> None:
    RouteFactory._meta.model.objects.filter(name=ONE).update(kind=kind)
    attempt("42")
    assert (by_file(file, "0042,,,,").compared == 1) is is_found


def test_of_two_attempts_with_one_id_the_newer_one_is_meant(file: Path) -> None:
    attempt("SM1", state="failed")
    attempt("SM1")
    assert by_file(file, "SM1,delivered,,,").examples.keys() == {Kind.NOT_THEIRS}


def test_attempts_that_never_left_need_not_be_in_it(file: Path) -> None:
    attempt(state="not_submitted")
    assert by_file(file).differences == {}


def test_all_that_are_missing_are_counted_and_the_first_shown(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "EXAMPLES", 2)
    for _ in range(5):
        attempt()
    tally = by_file(file)
    assert (tally.differences[Kind.NOT_THEIRS], len(tally.examples[Kind.NOT_THEIRS])) == (5, 2)


def test_bad_lines_are_told_by_number(file: Path) -> None:
    attempt("SM1")
    tally = by_file(file, "SM1,delivered,1,dear,EUR", "SM1,delivered,1,0.05,EUR")
    assert (tally.bad_lines, tally.agreed) == (1, 1)
    assert tally.bad[0].startswith("line 2: cost")


def test_a_file_changes_nothing(file: Path) -> None:
    known = attempt("SM1", state="sent", finished_at=None)
    assert by_file(file, "SM1,delivered,1,0.05,EUR").learned == 0
    known.refresh_from_db()
    assert (known.state, Event.objects.exists()) == ("sent", False)


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("reconcile_routes", "--day", "2026-09-01", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_the_command_prints_sums_and_writes_json(file: Path, tmp_path: Path) -> None:
    one = attempt("SM1")
    file.write_text("id,cost,currency\nSM1,0.07,EUR\nSM9,0.01,USD\nSM1\n")
    found = tmp_path / "found.json"

    text = run("--route", ONE, "--file", str(file), "--json", str(found))

    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "sms:one EUR 0.050000 0.070000 0.020000" in lines
    assert "sms:one USD none 0.010000" in lines
    assert f"sms:one: another cost: {one.uuid} (ours 0.050000 EUR, theirs 0.07 EUR)" in lines
    assert "sms:one: bad line 4: The header has 3 columns, this line 1." in lines
    (written,) = json.loads(found.read_text())["routes"]
    assert (written["differences"], written["bad_lines"]) == ({"cost": 1, "not_ours": 1}, 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--file", "records.csv"], "--file needs --route"),
        (["--file", __file__, "--route", "sms:nine"], "must name the column id"),
        (["--file", "/nowhere.csv", "--route", ONE], "cannot be read"),
        (["--json", "/nowhere/found.json"], "cannot be written"),
    ],
)
def test_what_cannot_be_run_is_an_error(arguments: list[str], says: str) -> None:
    with pytest.raises(CommandError, match=says):
        run(*arguments)


@pytest.mark.parametrize(
    ("content", "route", "says"),
    [
        pytest.param("number,state\n1,sent\n", ONE, "must name the column id", id="no id in the header"),
        pytest.param("", ONE, "must name the column id", id="an empty file"),
        pytest.param(None, ONE, "cannot be read", id="no file"),
        pytest.param("id,state\nSM1,sent\n", "sms:nine", "There is no route", id="no route"),
    ],
)
def test_before_anything_is_compared_an_error_stands_alone(
    file: Path, tmp_path: Path, content: str | None, route: str, says: str
) -> None:
    if content is not None:
        file.write_text(content)
    found = tmp_path / "found.json"
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(CommandError, match=says):
        call_command(
            "reconcile_routes", f"--route={route}", f"--file={file}", f"--json={found}", stdout=out, stderr=err
        )
    assert (out.getvalue(), err.getvalue(), found.exists()) == ("", "", False)


def test_what_was_found_before_a_file_became_too_long_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otp_service.routes.price_files.MOST_LINES", 2)
    monkeypatch.setattr(reconcile, "_LINES", 1)
    attempt("SM1")
    with pytest.raises(UnreadableFile):
        by_file(file, "SM1,failed,,,", "SM1,failed,,,")
    out = io.StringIO()
    with pytest.raises(CommandError, match="split it"):
        call_command("reconcile_routes", "--day=2026-09-01", f"--route={ONE}", f"--file={file}", stdout=out)
    assert "another state" in out.getvalue()
