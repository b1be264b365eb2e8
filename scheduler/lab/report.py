"""The lab's results as an aligned table and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from scheduler.lab.figures import CellRun, Figures, figures
from scheduler.lab.scenarios import Scale, Scenario, Timing
from scheduler.lab.schemes import Scheme
from scheduler.lab.shapes import Cells

Runs = Mapping[tuple[Scheme, Scenario], Sequence[CellRun]]

_HEADING = ("scenario", "scheme", "otp started", "wait p50", "p99", "max", "promo/s")
#: Columns of words; the rest are figures, and stand to the right.
WORD_COLUMNS = frozenset({0, 1})


def result_rows(cells: Cells) -> list[tuple[str, ...]]:
    """A heading and a line for each cell, by scenario and then by scheme."""
    rows = [_row(scheme, scenario, cells) for scenario in Scenario for scheme in Scheme if (scheme, scenario) in cells]
    return [_HEADING, *rows]


def _row(scheme: Scheme, scenario: Scenario, cells: Cells) -> tuple[str, ...]:
    found = cells[scheme, scenario]
    waits = (str(found.p50), str(found.p99), str(found.worst))
    return (scenario.words, scheme.value, f"{found.started} / {found.of}", *waits, f"{found.promo_per_s:,.1f}")


def pooled(runs: Runs) -> dict[tuple[Scheme, Scenario], Figures]:
    """Each cell's figures over all its runs."""
    return {cell: figures(found) for cell, found in runs.items()}


def as_json(runs: Runs, scale: Scale, timing: Timing) -> dict[str, Any]:
    """Everything that the table shows, cell by cell, and the figures of each run by itself. Times in seconds."""
    return {
        "set_up": {**asdict(scale), "reserve": scale.reserve, "seconds": timing.seconds},
        "cells": [
            {
                "scheme": scheme.value,
                "scenario": scenario.value,
                **asdict(figures(found)),
                "runs": [asdict(figures([run])) for run in found],
            }
            for (scheme, scenario), found in runs.items()
        ],
    }
