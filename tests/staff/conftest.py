"""A member of the staff, and a browser at the log-in's own form."""

from __future__ import annotations

import datetime as dt
import io
import logging
from collections.abc import Iterator

import pytest
import time_machine
from django.contrib.auth.models import User
from pytest_django import Settings

from otp_service.core.logs import logging_config
from tests.staff.browser import PASSWORD, Staff


@pytest.fixture
def clock(now: dt.datetime) -> Iterator[time_machine.Traveller]:
    """Time stands at noon until a test moves it."""
    with time_machine.travel(now, tick=False) as traveller:
        yield traveller


@pytest.fixture
def ops(db: None, settings: Settings) -> User:
    """Somebody who may do everything; the hash of the password is a quick one."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return User.objects.create_superuser("ops", password=PASSWORD)


@pytest.fixture
def browser(ops: User, clock: time_machine.Traveller) -> Staff:
    """At one address, logged in nowhere."""
    return Staff()


@pytest.fixture
def code_required(settings: Settings) -> None:
    """A password alone opens nothing."""
    settings.STAFF_TOTP = "required"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What the configured log writes."""
    root, text = logging.getLogger(), io.StringIO()
    monkeypatch.setattr(root, "handlers", [])
    logging_config("INFO", "json")
    (handler,) = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(text)
    return text
