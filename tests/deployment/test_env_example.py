"""`.env.example` tells every value that docker-compose.yml asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deployment.compose_file import variables

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
EXAMPLE = (ROOT / ".env.example").read_text()


def test_every_required_value_is_left_to_fill_in() -> None:
    left = set(re.findall(r"^([A-Z_]+)=$", EXAMPLE, re.MULTILINE))
    assert left == {name for name, is_required in variables(COMPOSE).items() if is_required}


def test_every_optional_value_stands_there_as_a_comment() -> None:
    optional = set(re.findall(r"^#([A-Z_]+)=", EXAMPLE, re.MULTILINE))
    assert optional == {name for name, is_required in variables(COMPOSE).items() if not is_required}


def test_holds_no_value_of_its_own() -> None:
    assert not re.search(r"^[A-Z_]+=.+$", EXAMPLE, re.MULTILINE)


def test_a_filled_in_one_is_never_committed() -> None:
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: ${A:?why}", {"A": True}),
        ("a: ${A:-default}", {"A": False}),
        ("a: ${A}", {"A": False}),
        ("# a: ${A:?why}", {}),
        ("a: x,${A:?why}@${B:-}", {"A": True, "B": False}),
    ],
)
def test_reads_what_a_compose_file_asks_for(text: str, expected: dict[str, bool]) -> None:
    assert variables(text) == expected
