"""The arrows between apps are kept by lint-imports; here it is shown that it does object."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("otp_service", "servers", "webhooks", "scheduler")
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")
DEADLINE_S = 120


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Our packages and the contracts, to spoil."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """What lint-imports says of the packages in `folder`."""
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache"], cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def test_our_packages_keep_every_contract(copy: Path) -> None:
    result = lint(copy)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("servers/rules.py", "import otp_service.messages.rules", "Arrows between apps point down"),
        ("otp_service/core/clock.py", "import servers.rules", "Arrows between apps point down"),
        ("servers/rules.py", "import django.conf", "Rules are plain Python"),
        ("servers/rules.py", "import servers.models", "Rules are plain Python"),
        ("servers/rules.py", "import servers.models", "Arrows in servers point down"),
        ("servers/history.py", "import servers.cooldown", "Arrows in servers point down"),
        ("otp_service/core/clock.py", "import otp_service.embedded", "Arrows between apps point down"),
        ("otp_service/messages/plan.py", "import otp_service.web.fields", "Rules are plain Python"),
        ("otp_service/messages/queue.py", "import otp_service.messages.intake", "Arrows in messages point down"),
        ("otp_service/routes/settle.py", "import otp_service.routes.receipts", "Arrows in routes point down"),
        (
            "webhooks/outbound/__init__.py",
            "import webhooks.inbound",
            "What is posted to us and what we post know nothing of each other",
        ),
    ],
)
def test_an_import_against_an_arrow_is_found(copy: Path, module: str, line: str, contract: str) -> None:
    with (copy / module).open("a") as file:
        file.write(f"\n{line}\n")
    result = lint(copy)
    assert result.returncode != 0
    assert f"{contract} BROKEN" in result.stdout
    assert module.removesuffix(".py").removesuffix("/__init__").replace("/", ".") in result.stdout


def test_an_upward_import_inside_a_function_is_found_too(copy: Path) -> None:
    with (copy / "servers/rules.py").open("a") as file:
        file.write("\ndef hidden() -> None:\n    import otp_service.messages.rules\n")
    assert "Arrows between apps point down BROKEN" in lint(copy).stdout
