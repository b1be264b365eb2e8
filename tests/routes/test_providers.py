"""Providers hand an attempt over, and answer in our words."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from typing import Any, cast

import aiohttp
import pytest

from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult, Submittable
from otp_service.messages.rules import Channel, Lane
from otp_service.routes.claim import Claimed
from otp_service.routes.providers.imessage import IMessagePool
from otp_service.routes.providers.simulated import Simulated
from otp_service.routes.route_rules import RouteKind, RouteSpec
from servers.relay.base import HostAddress, RelayAdapter
from tests.conftest import NOON

NO_SESSION = cast("aiohttp.ClientSession", None)
POOL = RouteSpec("imessage:es", Channel.IMESSAGE, RouteKind.IMESSAGE_POOL)


def claimed(spec: RouteSpec, host: HostAddress | None = None) -> Claimed:
    return Claimed(
        attempt_id=1,
        token=uuid.uuid4(),
        lane=Lane.OTP,
        spec=spec,
        host=host,
        send=Submittable(
            attempt_uuid=uuid.UUID(int=7),
            to="+34600000000",
            text="Your code is 123456",
            expires_at=NOON,
            submit_by=NOON,
        ),
        give_up_at=time.monotonic() + 60,
        accepted_at=None,
        claimed_at=NOON,
    )


def simulated(**settings: Any) -> Claimed:
    return claimed(RouteSpec("sms:one", Channel.SMS, RouteKind.SIMULATED, settings=settings))


class Relay:
    """Remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    async def submit(self, session: aiohttp.ClientSession, host: HostAddress, send: Submittable) -> SubmitResult:
        self.given.append((session, host, send))
        return SubmitResult(Submission.ACCEPTED, provider_message_id="guid")


async def test_a_pool_gives_it_to_the_host_of_its_server() -> None:
    relay, host = Relay(), HostAddress(3, 12, "https://relay.example", ())
    attempt = claimed(POOL, host)
    result = await IMessagePool(cast("RelayAdapter", relay)).submit(NO_SESSION, attempt)
    assert relay.given == [(NO_SESSION, host, attempt.send)]
    assert result.provider_message_id == "guid"


class Sleeps:
    """In place of `asyncio.sleep`: how long somebody would have slept."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> Sleeps:
    fake = Sleeps()
    monkeypatch.setattr("otp_service.routes.providers.simulated.asyncio.sleep", fake)
    return fake


@pytest.mark.parametrize(
    ("settings", "slept", "accepted"),
    [
        pytest.param({}, dt.timedelta(milliseconds=150), True, id="by default"),
        pytest.param({"latency_ms": 0}, dt.timedelta(), True, id="at once"),
        pytest.param({"latency_ms": 70, "timeout_ms": 70}, dt.timedelta(milliseconds=70), True, id="just in time"),
        pytest.param({"latency_ms": 71, "timeout_ms": 70}, dt.timedelta(milliseconds=70), False, id="too late"),
        pytest.param({"outcome": "unknown"}, dt.timedelta(milliseconds=150), False, id="without a clear answer"),
    ],
)
async def test_a_simulated_one_answers_as_its_settings_say(
    sleeps: Sleeps, settings: dict[str, Any], slept: dt.timedelta, accepted: bool
) -> None:
    result = await Simulated().submit(NO_SESSION, simulated(**settings))
    assert sleeps.seconds == [slept.total_seconds()]
    if accepted:
        assert result == SubmitResult(
            Submission.ACCEPTED, provider_message_id="simulated-00000000-0000-0000-0000-000000000007"
        )
    else:
        assert result == SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT)
