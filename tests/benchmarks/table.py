"""What is measured against what, and the table of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A figure and that of its peer, by their names. `bar` is for measured / peer: at least so much, or at most."""

    what: str
    measured: str
    peer: str
    unit: str
    bar: float
    at_most: bool = False

    def cells(self, figures: Mapping[str, float]) -> tuple[str, ...]:
        """What the table shows of it."""
        measured, peer = figures[self.measured], figures[self.peer]
        ratio = measured / peer
        bar = f"{'<=' if self.at_most else '>='} {self.bar:g}"
        return self.what, _number(measured), _number(peer), self.unit, f"{ratio:.2f}", bar, self._verdict(ratio)

    def _verdict(self, ratio: float) -> str:
        if self.at_most:
            return "met" if ratio <= self.bar else f"{ratio / self.bar - 1:.0%} over"
        return "met" if ratio >= self.bar else f"{1 - ratio / self.bar:.0%} short"


_HEAD = ("what", "measured", "peer", "", "ratio", "bar", "")


def lines(rows: Iterable[Row], figures: Mapping[str, float]) -> list[str]:
    """The table of those rows that were measured, aligned."""
    cells = [_HEAD, *(row.cells(figures) for row in rows if row.measured in figures)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(_aligned(line, widths)).rstrip() for line in cells]


def _aligned(line: tuple[str, ...], widths: list[int]) -> list[str]:
    what, measured, peer, unit, ratio, bar, verdict = line
    return [
        what.ljust(widths[0]),
        measured.rjust(widths[1]),
        peer.rjust(widths[2]),
        unit.ljust(widths[3]),
        ratio.rjust(widths[4]),
        bar.rjust(widths[5]),
        verdict.ljust(widths[6]),
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
