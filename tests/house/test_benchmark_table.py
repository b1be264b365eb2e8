"""The table of the benchmarks says of each bar whether it is met, or by how much not; figures are kept whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import keep
from tests.benchmarks.table import Row, lines

FASTER = Row("new : old", "new_per_s", "old_per_s", "calls/s", 2)
NO_SLOWER = Row("large : small", "large_s", "small_s", "s", 1.3, at_most=True)


@pytest.mark.parametrize(
    ("row", "measured", "peer", "ends_with"),
    [
        pytest.param(FASTER, 2_000, 1_000, "2.00  >= 2  met", id="at_the_bar"),
        pytest.param(FASTER, 1_500, 1_000, "1.50  >= 2  25% short", id="below_the_bar"),
        pytest.param(NO_SLOWER, 1.3, 1.0, "1.30  <= 1.3  met", id="at_the_limit"),
        pytest.param(NO_SLOWER, 2.6, 1.0, "2.60  <= 1.3  100% over", id="over_the_limit"),
    ],
)
def test_a_row_says_how_it_stands_to_its_bar(row: Row, measured: float, peer: float, ends_with: str) -> None:
    _, line = lines([row], {row.measured: measured, row.peer: peer})
    assert line.endswith(ends_with)


def test_columns_are_aligned_and_what_was_not_measured_is_left_out() -> None:
    figures = {"new_per_s": 12_345.6, "old_per_s": 0.5}
    assert lines([FASTER, NO_SLOWER], figures) == [
        "what       measured  peer              ratio   bar",
        "new : old    12,346   0.5  calls/s  24691.20  >= 2  met",
    ]


@pytest.mark.django_db
def test_figures_are_kept_beside_those_of_other_benchmarks_with_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "var" / "bench.json"
    keep("first", {"a": 1.0}, path)
    keep("second", {"b": 2.0}, path)
    keep("first", {"a": 3.0}, path)
    kept = json.loads(path.read_text())
    assert {name: each["figures"] for name, each in kept.items()} == {"first": {"a": 3.0}, "second": {"b": 2.0}}
    assert kept["first"]["machine"].keys() == {"commit", "cores", "cpu", "memory_mib", "python", "postgresql"}
    assert list(path.parent.iterdir()) == [path]
