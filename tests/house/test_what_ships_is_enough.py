"""Every process starts with the packages of requirements.lock alone, as it does in the image."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("only_shipped.py")
DEADLINE_S = 120


def run(*names: str) -> subprocess.CompletedProcess[str]:
    """Import these modules, or all of ours, with everything else that is installed hidden."""
    return subprocess.run(
        [sys.executable, PROGRAM, *names], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def test_every_module_of_ours_can_be_imported() -> None:
    result = run()
    assert result.returncode == 0, result.stderr


def test_a_package_that_does_not_ship_is_not_found() -> None:
    assert "No module named 'hypothesis' in requirements.lock" in run("hypothesis").stderr


def test_a_package_that_ships_is_found() -> None:
    assert run("celery", "django.db").returncode == 0
