"""Checks that our own migrations are safe on a busy database: `python -m tests.lint_migrations`.

The linter is a Django app of the development tools; run like this, the service's settings need not know it.
"""

from __future__ import annotations

import os
from pathlib import Path

import django
from django.apps import apps
from django.core.management import call_command
from django_migration_linter.management.commands.lintmigrations import Command

_REPOSITORY = Path(__file__).resolve().parents[1]
_ENVIRONMENTS = _REPOSITORY / ".venv"


def main() -> None:
    """Exits with 1 after naming what is unsafe."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "otp_service.settings")
    os.environ.setdefault("LOG_LEVEL", "WARNING")
    django.setup()
    folders = {config.label: Path(config.path) for config in apps.get_app_configs()}
    ours = [
        label
        for label, folder in folders.items()
        if folder.is_relative_to(_REPOSITORY) and not folder.is_relative_to(_ENVIRONMENTS)
    ]
    call_command(Command(), include_apps=ours, no_cache=True, quiet=["ok", "ignore"])


if __name__ == "__main__":
    main()
