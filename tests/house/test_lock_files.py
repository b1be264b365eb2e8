"""The lock files pin everything by hash, and hold what pyproject.toml asks for."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.house.lock_files import Lock, read_lock, unmet

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("requirements.lock", "requirements-dev.lock")
SHA = "a" * 64


def lock(name: str) -> Lock:
    """A lock file of ours."""
    return read_lock((ROOT / name).read_text())


def project() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def group(name: str, groups: Mapping[str, list[str | dict[str, str]]]) -> list[str]:
    """The requirements of a dependency group and of those that it includes."""
    found: list[str] = []
    for item in groups[name]:
        found += [item] if isinstance(item, str) else group(item["include-group"], groups)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_requirement_is_one_version_with_hashes(name: str) -> None:
    assert lock(name).versions
    assert lock(name).faults == []


@pytest.mark.parametrize("name", NAMES)
def test_no_lock_file_names_an_address(name: str) -> None:
    assert "://" not in (ROOT / name).read_text()


def test_what_the_service_depends_on_is_locked() -> None:
    assert unmet(project()["project"]["dependencies"], lock("requirements.lock")) == []


def test_what_its_developers_need_is_locked() -> None:
    everything = project()["project"]["dependencies"] + group("dev", project()["dependency-groups"])
    assert unmet(everything, lock("requirements-dev.lock")) == []


def test_what_is_tested_is_what_ships() -> None:
    shipped, tested = lock("requirements.lock").versions, lock("requirements-dev.lock").versions
    assert {name: tested.get(name) for name in shipped} == shipped


def test_reads_names_versions_markers_and_extras() -> None:
    text = f"# made by a tool\nDjango==5.2.1 \\\n    --hash=sha256:{SHA} \\\n    --hash=sha256:{SHA}\n    # via x\n"
    text += f"uv_loop[a]==1.0 ; sys_platform != 'win32' --hash=sha256:{SHA}\n"
    assert read_lock(text) == Lock({"django": "5.2.1", "uv-loop": "1.0"}, [])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("django==5.2.1\n", "no hash: django"),
        ("django==5.2.1 --hash=md5:0123\n", "no hash: django"),
        (f"django>=5.2 --hash=sha256:{SHA}\n", "not one version: django>=5.2"),
        (f"django --hash=sha256:{SHA}\n", "not one version: django"),
        ("django @ https://example.com/django.whl\n", "not one version: django@ https://example.com/django.whl"),
        ("--find-links elsewhere\n", "an option: --find-links elsewhere"),
        ("-r other.lock\n", "an option: -r other.lock"),
    ],
)
def test_finds_what_is_wrong_with_a_lock_file(text: str, fault: str) -> None:
    assert [found.replace(" @ ", "@ ") for found in read_lock(text).faults] == [fault]


def test_finds_a_dependency_that_is_missing_or_of_another_version() -> None:
    locked = Lock({"django": "5.2.1", "psycopg": "3.2.0"}, [])
    wanted = ["django~=5.2.0", "psycopg[binary]~=3.3.0", "Django>=5", "celery", "redis>=5"]
    assert unmet(wanted, locked) == ["psycopg[binary]~=3.3.0", "celery", "redis>=5"]
