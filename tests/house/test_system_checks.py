"""Django's own checks, ours among them, find nothing."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from pytest_django import Settings


def test_system_checks_pass() -> None:
    call_command("check", fail_level="WARNING")


def test_system_checks_can_fail(settings: Settings) -> None:
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "AuthenticationMiddleware" not in name]
    with pytest.raises(SystemCheckError, match="AuthenticationMiddleware"):
        call_command("check", fail_level="WARNING")
