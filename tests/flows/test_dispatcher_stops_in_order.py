"""SIGTERM: a dispatcher lets its calls end, writes what came of them, and leaves the rest to the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from otp_service.core.clock import utc_now
from otp_service.messages import api_keys
from otp_service.messages.models import Attempt, Message
from otp_service.messages.rules import AttemptState
from tests.deadline import eventually
from tests.factories import ClientFactory
from tests.flows.conftest import Api, Fleet
from tests.flows.processes import Processes
from tests.relay_fixture import RelayThread

NUMBERS = [f"+346{20_000_000 + n}" for n in range(36)]
SLOW_S = 2.0


@pytest.fixture
def service(quiet_end: None, tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path, SEND_INTERVAL_MINUTES="0.02-0.03") as processes:
        processes.start(processes.web)
        yield processes


def in_flight() -> int:
    return Attempt.objects.filter(state=AttemptState.SUBMITTING).count()


def test_calls_in_flight_end_and_are_written_before_the_process_does(service: Processes, relay: RelayThread) -> None:
    fleet = Fleet(relay, service.base)
    servers = fleet.build(hosts=2, servers_per_host=6)
    for server in servers:
        fleet.behave(server, "slow", seconds=SLOW_S)
    _, key = api_keys.create(ClientFactory.create(), [api_keys.Scope.MESSAGES], now=utc_now(), expires_at=None)
    for number in NUMBERS:
        Api(service.base, key).send(to=number)

    service.start(service.dispatcher)
    eventually(lambda: in_flight() >= len(servers) // 2)
    assert service.dispatcher.end() == 0
    states = Counter(Attempt.objects.values_list("state", flat=True))
    assert states.total() >= len(servers) // 2
    assert set(states) <= {AttemptState.ACCEPTED, AttemptState.SENT, AttemptState.DELIVERED}
    assert set(Attempt.objects.values_list("submission", flat=True)) == {"accepted"}
    assert Message.objects.filter(status="queued").exists(), "stopped too late to leave anything to the next one"

    service.start(service.dispatcher)
    eventually(lambda: not Message.objects.filter(finished_at__isnull=True).exists(), within_s=60)
    assert Counter(Message.objects.values_list("status", flat=True)) == {"delivered": len(NUMBERS)}
    assert Attempt.objects.count() == len(NUMBERS)
    assert not Attempt.objects.filter(checks_made__gt=0).exists()  # what is unknown is asked about
    assert Counter(send.to for send in relay.sends()) == dict.fromkeys(NUMBERS, 1)
