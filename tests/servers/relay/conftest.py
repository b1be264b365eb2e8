"""What the tests of adapters share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

pytest.register_assert_rewrite("tests.servers.relay.contract_working", "tests.servers.relay.contract_faults")


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """The one session that adapters are handed."""
    async with aiohttp.ClientSession(trust_env=False) as session:
        yield session
