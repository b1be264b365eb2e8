"""Redis carries wake-ups for Celery and counters that may vanish: messages do not need it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from otp_service.core.clock import utc_now
from otp_service.messages import api_keys
from tests.factories import ClientFactory
from tests.flows.conftest import Api, Fleet
from tests.flows.processes import Processes, free_port
from tests.relay_fixture import RelayThread


@pytest.fixture
def service(quiet_end: None, tmp_path: Path) -> Iterator[Processes]:
    nobody = f"redis://127.0.0.1:{free_port()}/0"
    with Processes(tmp_path, REDIS_URL=nobody, SEND_INTERVAL_MINUTES="0.001-0.002") as processes:
        processes.start(processes.web, processes.dispatcher)
        yield processes


def test_a_code_is_accepted_and_delivered_without_redis(service: Processes, relay: RelayThread) -> None:
    Fleet(relay, service.base).build()
    _, key = api_keys.create(ClientFactory.create(), [api_keys.Scope.MESSAGES], now=utc_now(), expires_at=None)
    api = Api(service.base, key)
    seen = api.ends(api.send())
    assert seen["status"] == "delivered"
    assert len(relay.sends(to="+34600000000")) == 1
