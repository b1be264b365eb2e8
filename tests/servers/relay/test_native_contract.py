"""The native adapter against the simulator and against hosts that misbehave, over real HTTP."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections.abc import AsyncIterator
from email.utils import format_datetime

import pytest

from otp_service.core.clock import utc_now
from otp_service.core.http import RETRY_AFTER_LIMIT, Timeouts
from otp_service.core.outcomes import ErrorClass
from otp_service.simulation.behaviours import Slow
from otp_service.simulation.fleet import SimulatedHost, SimulatedUnit
from otp_service.simulation.relay import RelaySimulator
from servers.relay.base import HostAddress, RelayAdapter
from servers.relay.native import NativeRelay
from tests.relay_fixture import FAST
from tests.servers.relay.contract import RelayAdapterContract
from tests.servers.relay.contract_base import SECRET, Refused, WorkingHost
from tests.servers.relay.peers import Reply, answers

NO = b'{"code": "a_code", "detail": "A sentence."}'


def no(status: int, **headers: str) -> Reply:
    return answers(status, NO, **headers)


async def asks_for_a_minute(writer: asyncio.StreamWriter) -> None:
    until = format_datetime(utc_now() + dt.timedelta(seconds=60), usegmt=True)
    await no(429, Retry_After=until)(writer)


ROUTE, SENDER, THROTTLED = ErrorClass.ROUTE_REJECTED, ErrorClass.SENDER_FAULT, ErrorClass.THROTTLED


class TestNativeRelay(RelayAdapterContract):
    ACCEPTING_STATUS = 202
    NONSENSE = (
        b"",
        b"OK",
        b"null",
        b"[]",
        b"{}",
        b"<html></html>",
        b'{"attempt_id": "00000000-0000-4000-8000-000000000000", "state": "queued"}',
        b'{"attempt_id": null}',
        b"[" * 60_000,
        b"\xff",
    )
    REFUSALS = (
        Refused("400", no(400), ROUTE),
        Refused("401", no(401), ROUTE),
        Refused("403", answers(403), ROUTE),
        Refused("404 unit unknown", no(404), SENDER, 130),
        Refused("404 of a stranger", answers(404, b"<h1>Not Found</h1>"), ROUTE),
        Refused("404 with other JSON", answers(404, b'{"error": "x"}'), ROUTE),
        Refused("405", answers(405), ROUTE),
        Refused("409 signed out", no(409), SENDER, 130),
        Refused("409 of a stranger", answers(409), ROUTE),
        Refused("410", no(410), ErrorClass.EXPIRED),
        Refused("413", answers(413), ROUTE),
        Refused("422 number invalid", no(422), ErrorClass.RECIPIENT_INVALID),
        Refused("422 of a stranger", answers(422, b"[]"), ROUTE),
        Refused("429", no(429), THROTTLED, 140),
        Refused("429 with seconds", no(429, Retry_After="7"), THROTTLED, 140, dt.timedelta(seconds=7)),
        Refused(
            "429 with a date",
            asks_for_a_minute,
            THROTTLED,
            140,
            dt.timedelta(seconds=60),
            tolerance=dt.timedelta(seconds=20),
        ),
        Refused(
            "429 with a past date",
            no(429, Retry_After="Sat, 01 Jan 2000 00:00:00 GMT"),
            THROTTLED,
            140,
            dt.timedelta(0),
        ),
        Refused("429 with a year", no(429, Retry_After="31536000"), THROTTLED, 140, RETRY_AFTER_LIMIT),
        Refused("429 with nonsense", no(429, Retry_After="soon"), THROTTLED, 140),
        Refused("429 with minus one", no(429, Retry_After="-1"), THROTTLED, 140),
        Refused("429 with endless digits", no(429, Retry_After="9" * 5000), THROTTLED, 140, RETRY_AFTER_LIMIT),
        Refused("503", answers(503), THROTTLED),
        Refused("503 with seconds", answers(503, Retry_After="3"), THROTTLED, None, dt.timedelta(seconds=3)),
    )

    def adapter_with(self, timeouts: Timeouts) -> RelayAdapter:
        return NativeRelay(timeouts)

    @pytest.fixture
    async def host(self) -> AsyncIterator[WorkingHost]:
        units = (SimulatedUnit(228), SimulatedUnit(229), SimulatedUnit(230, signed_in=False))
        async with RelaySimulator(webhook_base="http://127.0.0.1:9", timings=FAST) as simulator:
            simulator.play([SimulatedHost(7, SECRET, units)])
            played = simulator.hosts[7]
            simulator.behave(played, played.units[229], Slow(seconds=30))

            def sent(attempt_id: uuid.UUID) -> int:
                return len(simulator.ledger.find(attempt_id=attempt_id))

            yield WorkingHost(
                address=HostAddress(host_id=1, number=7, base_url=simulator.base_url(7), secrets=(SECRET,)),
                unit=228,
                slow_unit=229,
                signed_out_unit=230,
                unknown_unit=999,
                sent=sent,
            )
