"""Starts PostgreSQL and Valkey for a run of the tests, before Django's settings are read; loaded by `-p`.

One pair of servers for the whole run: the workers of pytest-xdist inherit the addresses in the environment.
Where DATABASE_URL and REDIS_URL are set, those servers are used.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Generator
from contextlib import ExitStack

import pytest

from otp_service.embedded import EmbeddedServerError, temporary_servers

_resources = ExitStack()
# A run that fails before it is configured is never "unconfigured".
atexit.register(_resources.close)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests() -> Generator[None, object, object]:
    """A wrapper, as pytest-django reads the settings in this hook and asks to be the first in it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        try:
            servers = _resources.enter_context(temporary_servers())
        except EmbeddedServerError as error:
            raise pytest.UsageError(str(error)) from error
        os.environ.update(servers.env)
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """The end of the run, also after Ctrl-C."""
    _resources.close()
