"""A program: imports the named modules, or all of ours, with only the packages of requirements.lock to be found."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("otp_service", "servers", "webhooks", "scheduler")
#: What the commands of the processes import by name, late.
STARTED = (
    "kombu.transport.redis",
    "celery.bin.worker",
    "celery.bin.beat",
)


class Hide:
    """A finder that says of some top-level modules that they are not installed."""

    def __init__(self, hidden: Iterable[str]) -> None:
        self._hidden = frozenset(hidden)

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None) -> None:
        """Refuse, or leave it to the next finder."""
        if name.partition(".")[0] in self._hidden:
            raise ModuleNotFoundError(f"No module named {name!r} in requirements.lock", name=name)


def main(names: Sequence[str]) -> None:
    """Import what is named, or everything."""
    sys.path.insert(0, str(ROOT))
    from tests.house.lock_files import normal, read_lock

    shipped = read_lock((ROOT / "requirements.lock").read_text()).versions
    hidden = {
        module
        for module, packages in packages_distributions().items()
        if not any(normal(package) in shipped for package in packages)
    }
    for loaded in [name for name in sys.modules if name.partition(".")[0] in hidden]:
        del sys.modules[loaded]
    sys.meta_path.insert(0, Hide(hidden))

    import django

    django.setup()
    for name in names or [*STARTED, *_ours()]:
        importlib.import_module(name)


def _ours() -> list[str]:
    found = [
        module.name
        for package in PACKAGES
        for module in pkgutil.walk_packages([str(ROOT / package)], prefix=f"{package}.")
    ]
    return [name for name in found if not name.endswith("__main__")]


if __name__ == "__main__":
    main(sys.argv[1:])
