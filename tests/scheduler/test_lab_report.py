"""The lab's table, its JSON and its picture."""

from __future__ import annotations

import json
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from otp_service.core.aligned import aligned
from scheduler.lab.figures import CellRun
from scheduler.lab.picture import svg, x_of
from scheduler.lab.report import WORD_COLUMNS, Runs, as_json, pooled, result_rows
from scheduler.lab.scenarios import SMALL, Scenario, Timing
from scheduler.lab.schemes import Scheme

SVG = "{http://www.w3.org/2000/svg}"
RUNS: Runs = {
    (Scheme.D, Scenario.PUSH_HANGS): [CellRun((0.01, 0.02), (), 1_000, 5.0), CellRun((0.03,), (), 500, 5.0)],
    (Scheme.FIFO, Scenario.PUSH_HANGS): [CellRun((), (9.5,), 30, 5.0)],
}


def test_table_is_aligned_words_left_and_figures_right() -> None:
    assert aligned(result_rows(pooled(RUNS)), word_columns=WORD_COLUMNS).splitlines() == [
        "scenario        scheme  otp started  wait p50      p99      max  promo/s",
        "--------------  ------  -----------  --------  -------  -------  -------",
        "push hangs 3 s  FIFO          0 / 1   ≥ 9.5 s  ≥ 9.5 s  ≥ 9.5 s      6.0",
        "push hangs 3 s  D             3 / 3     20 ms    30 ms    30 ms    150.0",
    ]


def test_json_has_every_cell_and_every_run() -> None:
    found = json.loads(json.dumps(as_json(RUNS, SMALL, Timing())))
    assert found["set_up"] == {
        "floor": 6, "shared": 14, "otp_per_s": 10, "promo_rows": 20_000, "reserve": 4, "seconds": 25.0,
    }  # fmt: skip
    held, starved = found["cells"]
    assert (held["scheme"], held["scenario"], held["started"], held["p99"]["seconds"]) == ("D", "push-hangs", 3, 0.03)
    assert [run["started"] for run in held["runs"]] == [2, 1]
    assert starved["worst"] == {"seconds": 9.5, "at_least": True}


@pytest.mark.parametrize(
    ("seconds", "x"),
    [
        pytest.param(0.0, 60, id="nothing stands at the beginning"),
        pytest.param(0.001, 60, id="1 ms too"),
        pytest.param(0.01, 172, id="a fifth for each power of ten"),
        pytest.param(1.0, 396, id="a second"),
        pytest.param(100.0, 620, id="100 s at the end"),
        pytest.param(1_000.0, 620, id="what is off the scale too"),
    ],
)
def test_scale_is_logarithmic(seconds: float, x: float) -> None:
    assert x_of(seconds) == x


def test_picture_has_a_bar_for_each_cell_with_its_figures() -> None:
    root = ElementTree.fromstring(svg(pooled(RUNS)))
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class")]
    assert [bar.get("class") for bar in bars] == ["late", "held"]
    widths = [float(bar.get("width") or 0) for bar in bars]
    assert widths == pytest.approx([x_of(9.5) - 60, x_of(0.03) - 60])
    assert [bar.findtext(f"{SVG}title") for bar in bars] == [
        "FIFO: p50 ≥ 9.5 s, p99 ≥ 9.5 s, max ≥ 9.5 s",
        "D: p50 20 ms, p99 30 ms, max 30 ms",
    ]


def test_picture_has_a_chart_for_each_scenario_that_was_run_and_none_lies_over_another() -> None:
    run = [CellRun((0.01,), (), 1, 5.0)]
    cells = pooled({(scheme, scenario): run for scenario in Scenario for scheme in Scheme})
    root = ElementTree.fromstring(svg(cells))
    titles = [text for text in root.iter(f"{SVG}text") if text.get("class") == "scenario"]
    assert [title.text for title in titles] == [scenario.words for scenario in Scenario]
    tops = sorted(float(bar.get("y") or 0) for bar in root.iter(f"{SVG}rect") if bar.get("class"))
    assert len(tops) == 25
    assert min(b - a for a, b in pairwise(tops)) > 16
    assert tops[-1] + 16 < float(root.get("height") or 0)
