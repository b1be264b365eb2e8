"""The lab's p99 waits as an SVG: one small chart a scenario, one bar a scheme, on one logarithmic scale. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from scheduler.lab.figures import Figures
from scheduler.lab.scenarios import Scenario
from scheduler.lab.schemes import Scheme
from scheduler.lab.shapes import HELD, Cells, is_held

# Pixels.
_WIDTH, _PLOT_X, _PLOT_WIDTH = 760, 60, 560
_TOP, _BAR, _STEP, _TITLE, _GAP = 64, 16, 22, 24, 20
_AXIS = 40

_LEAST_S, _DECADES = 0.001, 5  # the scale: 1 ms to 100 s
_TICKS = ((0.001, "1 ms"), (0.01, "10 ms"), (0.1, "100 ms"), (1.0, "1 s"), (10.0, "10 s"), (100.0, "100 s"))

_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #222 }
.title { font-size: 16px; font-weight: 600 } .scenario { font-weight: 600 }
.small { font-size: 11px; fill: #555; paint-order: stroke; stroke: #fff; stroke-width: 3px }
.grid { stroke: #ddd } .limit { stroke: #222; stroke-dasharray: 4 3 }
.held { fill: #2a7f62 } .late { fill: #c4572c }
"""


def x_of(seconds: float) -> float:
    """Where a wait stands, in pixels from the left; what is off the scale stands at its end."""
    decades = math.log10(max(seconds, _LEAST_S) / _LEAST_S)
    return round(_PLOT_X + _PLOT_WIDTH * min(decades / _DECADES, 1.0), 1)


def svg(cells: Cells) -> str:
    """The whole picture. A bar is as long as the p99 wait; its colour says whether otp were held up."""
    scenarios = [scenario for scenario in Scenario if any(of is scenario for _, of in cells)]
    panels, y = [], _TOP
    for scenario in scenarios:
        bars = [(scheme, cells[scheme, scenario]) for scheme in Scheme if (scheme, scenario) in cells]
        panels += [*_panel(scenario, bars, y)]
        y += _TITLE + _STEP * len(bars) + _GAP
    height = y + _AXIS
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="Wait of otp by scheme and scenario">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        *_frame(bottom=y),
        *panels,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _frame(*, bottom: int) -> Iterator[str]:
    yield '<text class="title" x="12" y="24">How long otp wait for their first attempt (p99)</text>'
    yield (
        f'<text class="small" x="12" y="42">dashed: {HELD.total_seconds() * 1000:g} ms; '
        "≥: was still waiting when the run ended; started / accepted behind the bar</text>"
    )
    top = _TOP - 8
    for seconds, label in _TICKS:
        x = x_of(seconds)
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>'
        yield f'<text class="small" x="{x}" y="{bottom + 16}" text-anchor="middle">{label}</text>'
    x = x_of(HELD.total_seconds())
    yield f'<line class="limit" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>'


def _panel(scenario: Scenario, bars: list[tuple[Scheme, Figures]], y: int) -> Iterator[str]:
    yield f'<text class="scenario" x="12" y="{y + 12}">{escape(scenario.words)}</text>'
    for place, (scheme, found) in enumerate(bars):
        yield _bar(scheme, found, y + _TITLE + _STEP * place)


def _bar(scheme: Scheme, found: Figures, y: int) -> str:
    width = max(round(x_of(found.p99.seconds) - _PLOT_X, 1), 1)
    text_y = y + _BAR - 4
    kind = "held" if is_held(found) else "late"
    said = f"{found.p99}   {found.started} / {found.of}"
    return (
        f'<text x="{_PLOT_X - 8}" y="{text_y}" text-anchor="end">{scheme}</text>'
        f'<rect class="{kind}" x="{_PLOT_X}" y="{y}" width="{width}" height="{_BAR}" rx="2">'
        f"<title>{scheme}: p50 {found.p50}, p99 {found.p99}, max {found.worst}</title></rect>"
        f'<text class="small" x="{_PLOT_X + width + 6:g}" y="{text_y}" xml:space="preserve">{said}</text>'
    )
