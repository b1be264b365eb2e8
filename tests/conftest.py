"""What every test may use."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import AsyncIterator

import aiohttp
import pytest

pytest_plugins = ["tests.relay_fixture"]

NOON = dt.datetime(2026, 9, 1, 12, 0, 0, tzinfo=dt.UTC)


@pytest.fixture
def now() -> dt.datetime:
    """A boring moment: a Tuesday noon, UTC."""
    return NOON


@pytest.fixture
def rng() -> random.Random:
    """Draws that are the same in every run."""
    return random.Random(20260901)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """The one session that adapters and providers are handed."""
    async with aiohttp.ClientSession(trust_env=False) as session:
        yield session
