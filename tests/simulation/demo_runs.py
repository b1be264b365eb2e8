"""Runs `manage.py demo_data` on a state folder of the test's own."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

from django.core.management import call_command
from pytest_django import Settings


@dataclass(frozen=True)
class DemoRuns:
    """Call it with the command's arguments; it returns what was said."""

    state_dir: Path

    @classmethod
    def local(cls, settings: Settings, folder: Path) -> DemoRuns:
        """As in a local run, with a hash that takes no time."""
        settings.EMBEDDED = True
        settings.STATE_DIR = folder / "state"
        settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
        return cls(settings.STATE_DIR)

    def __call__(self, *arguments: str) -> str:
        said = io.StringIO()
        call_command("demo_data", *arguments, stdout=said, stderr=said)
        return said.getvalue()

    @property
    def access_file(self) -> Path:
        return self.state_dir / "demo.json"

    @property
    def access(self) -> dict[str, str]:
        return dict(json.loads(self.access_file.read_text()))
