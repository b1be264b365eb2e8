"""A Dockerfile as instructions, and which files .dockerignore lets into a build."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Instruction:
    """`COPY manage.py ./` is name COPY, text `manage.py ./`."""

    name: str
    text: str


def read_dockerfile(text: str) -> list[list[Instruction]]:
    """The instructions of each stage, FROM first; lines that a backslash continues made one."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    stages: list[list[Instruction]] = []
    for line in filter(None, (line.strip() for line in kept.replace("\\\n", " ").splitlines())):
        name, _, rest = line.partition(" ")
        if name.upper() == "FROM":
            stages.append([])
        stages[-1].append(Instruction(name.upper(), " ".join(rest.split())))
    return stages


def last(stage: list[Instruction], name: str) -> str:
    """The text of the instruction that counts."""
    return [instruction.text for instruction in stage if instruction.name == name][-1]


def command(stage: list[Instruction]) -> list[str]:
    """CMD as a list; the form that a shell would read is refused."""
    return [str(part) for part in json.loads(last(stage, "CMD"))]


def is_sent(path: str, ignore_file: str) -> bool:
    """Whether a build may see `path`: the last pattern that matches it or a folder above it decides."""
    candidates = [path, *(str(folder) for folder in PurePosixPath(path).parents if str(folder) != ".")]
    sent = True
    for line in ignore_file.splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        expression = _expression(pattern.removeprefix("!").strip("/"))
        if any(expression.fullmatch(candidate) for candidate in candidates):
            sent = pattern.startswith("!")
    return sent


def _expression(pattern: str) -> re.Pattern[str]:
    """`*` and `?` stay inside a folder, `**` does not; `[…]` is a set."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]*\])", pattern)
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile(
        "".join(meanings.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts)
    )
