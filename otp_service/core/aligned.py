"""Tables of text with their columns under each other. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], *, word_columns: Collection[int]) -> str:
    """Rows of equal length, the first one as the heading. Columns of words stand to the left, others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths, word_columns) for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _line(row: Sequence[str], widths: Sequence[int], word_columns: Collection[int]) -> str:
    cells = (
        f"{cell:<{width}}" if place in word_columns else f"{cell:>{width}}"
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()
