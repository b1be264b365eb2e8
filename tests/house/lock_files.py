"""What a lock file says."""

from __future__ import annotations

import re
from dataclasses import dataclass

from packaging.requirements import Requirement

_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}(?=\s|$)")


@dataclass(frozen=True)
class Lock:
    """Packages (lower case, with hyphens) → version; and what is wrong with the file."""

    versions: dict[str, str]
    faults: list[str]


def normal(name: str) -> str:
    """The spelling of a package's name by which it is compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(text: str) -> Lock:
    """Every line is a comment, or pins one version and names the hashes that it may have."""
    versions: dict[str, str] = {}
    faults: list[str] = []
    for line in _joined(text):
        if line.startswith("-"):
            faults.append(f"an option: {line}")
            continue
        requirement = Requirement(line.split("--hash", 1)[0].strip())
        specifiers = list(requirement.specifier)
        if requirement.url or len(specifiers) != 1 or specifiers[0].operator != "==":
            faults.append(f"not one version: {requirement}")
            continue
        if not _HASH.search(line):
            faults.append(f"no hash: {requirement.name}")
        versions[normal(requirement.name)] = specifiers[0].version
    return Lock(versions, faults)


def unmet(dependencies: list[str], lock: Lock) -> list[str]:
    """The dependencies whose package is not in the lock, or in a version that they do not allow."""
    return [str(wanted) for wanted in map(Requirement, dependencies) if not _is_met(wanted, lock)]


def _is_met(wanted: Requirement, lock: Lock) -> bool:
    version = lock.versions.get(normal(wanted.name))
    return version is not None and wanted.specifier.contains(version, prereleases=True)


def _joined(text: str) -> list[str]:
    """Lines without comments, those that a backslash continues made one."""
    kept = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(kept).replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip()]
