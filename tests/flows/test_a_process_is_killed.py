"""kill -9 of any process in the middle of traffic: every message ends delivered, none twice."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from otp_service.core.clock import utc_now
from otp_service.messages import api_keys
from otp_service.messages.models import Message
from tests.deadline import eventually
from tests.factories import ClientFactory
from tests.flows.conftest import Api, Fleet
from tests.flows.processes import Processes
from tests.relay_fixture import RelayThread

MESSAGES = 200
NUMBERS = [f"+346{10_000_000 + n}" for n in range(MESSAGES)]


@pytest.fixture
def service(transactional_db: None, tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path, SEND_INTERVAL_MINUTES="0.001-0.002", LEASE_S="13", RECEIPT_WAIT_S="3") as processes:
        processes.start()
        yield processes


def post_until_accepted(api: Api, number: str) -> str:
    """As a careful client does it: the same key until there is an answer."""

    def accepted() -> str | None:
        try:
            answer = api.post(
                {"to": number, "text": "Your code is 123456", "lane": "otp"}, **{"Idempotency-Key": number}
            )
        except OSError:
            return None
        return str(answer.body["id"]) if answer.status == 202 else None

    found = eventually(accepted, within_s=30)
    assert found is not None
    return found


@pytest.mark.parametrize("victim", ["dispatcher", "worker", "web"])
def test_killing_a_process_loses_nothing_and_sends_nothing_twice(
    service: Processes, relay: RelayThread, victim: str
) -> None:
    Fleet(relay, service.base).build(hosts=4, servers_per_host=15)
    _, key = api_keys.create(ClientFactory.create(), [api_keys.Scope.MESSAGES], now=utc_now(), expires_at=None)
    api = Api(service.base, key)
    process: Any = getattr(service, victim)

    with ThreadPoolExecutor(8) as pool:
        posting = [pool.submit(post_until_accepted, api, number) for number in NUMBERS]
        eventually(lambda: len(relay.sends()) >= MESSAGES // 4)
        process.kill()
        assert len(relay.sends()) < MESSAGES, "killed too late to prove anything"
        process.start()
        ids = {future.result() for future in posting}

    assert len(ids) == MESSAGES
    eventually(lambda: not Message.objects.filter(finished_at__isnull=True).exists(), within_s=60)
    assert collections.Counter(Message.objects.values_list("status", flat=True)) == {"delivered": MESSAGES}
    copies = collections.Counter(send.to for send in relay.sends())
    assert set(copies) == set(NUMBERS)
    assert max(copies.values()) == 1
