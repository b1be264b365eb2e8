"""What stands in the tables of a Markdown file."""

from __future__ import annotations

import re
from collections.abc import Iterator

_NAME = re.compile(r"`([A-Z][A-Z0-9_]*)`")


def names_in_first_column(markdown: str, heading: str) -> set[str]:
    """The `NAMES` in the first column of the tables under `heading`, those of its sub-headings included."""
    names: set[str] = set()
    for line in _section(markdown, heading):
        if line.startswith("|"):
            names.update(_NAME.findall(line.split("|")[1]))
    return names


def _section(markdown: str, heading: str) -> Iterator[str]:
    """The lines from `heading` to the next heading of its level or above; code blocks hold no headings."""
    level = heading.split(" ", 1)[0]
    inside = in_code = False
    for line in markdown.splitlines():
        if line.startswith("```"):
            in_code = not in_code
        is_heading = not in_code and re.match(r"#{1,6} ", line) is not None
        if is_heading and (line.rstrip() == heading or len(line.split(" ", 1)[0]) <= len(level)):
            inside = line.rstrip() == heading
        elif inside and not in_code:
            yield line
