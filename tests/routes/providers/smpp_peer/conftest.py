"""What the tests over real binds start with."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from otp_service.routes.providers.smpp import Smpp
from tests.conftest import NOON
from tests.routes.providers.smpp_peer.peer import Peer, installed
from tests.routes.providers.smpp_peer.steps import QUICK, Told


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    installed()
    peer = Peer()
    await peer.start()
    yield peer
    await peer.die()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def smpp(told: Told) -> AsyncIterator[Smpp]:
    smpp = Smpp(told, clock=lambda: NOON, rng=random.Random(1), pauses=QUICK)
    yield smpp
    await smpp.close()
