"""A simulator with one host and two units, a sink for its webhooks, and the product's own client to speak to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from otp_service.core.signing import new_secret
from otp_service.simulation.fleet import SimulatedHost, SimulatedUnit
from otp_service.simulation.relay import RelaySimulator
from tests.relay_fixture import FAST
from tests.simulation.play import HOST, OTHER_UNIT, UNIT, Play
from tests.simulation.sink import Sink, listening


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    async with listening(Sink(new_secret())) as sink:
        yield sink


@pytest.fixture
async def play(sink: Sink) -> AsyncIterator[Play]:
    units = (SimulatedUnit(UNIT, "+34600000001"), SimulatedUnit(OTHER_UNIT, "+34600000002"))
    async with (
        aiohttp.ClientSession() as session,
        RelaySimulator(webhook_base=sink.base, seed=1, timings=FAST) as simulator,
    ):
        simulator.play([SimulatedHost(HOST, sink.secret, units)])
        yield Play(simulator, session, sink.secret)
