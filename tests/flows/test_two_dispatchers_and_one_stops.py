"""Two dispatchers under a steady load of otp, one of them stopped between its claim and its calls.

Killed, or frozen for longer than its lease and woken: every message ends delivered, and none is sent twice.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import psycopg
import pytest
from django.db import connection

from otp_service.core.clock import utc_now
from otp_service.messages import api_keys
from otp_service.messages.models import Attempt, Message
from otp_service.messages.rules import AttemptState
from tests.deadline import eventually
from tests.factories import ClientFactory
from tests.flows.conftest import Api, Fleet
from tests.flows.processes import Process, Processes
from tests.relay_fixture import RelayThread

LEASE_S = 13
#: Calls that last so long are in flight at any moment.
SLOW_S = 2.0
#: Seconds between two messages.
PAUSE_S = 0.1


class Claims:
    """Which process claimed which attempts, and a way to hold a claim up in the middle of its commit."""

    def __init__(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_WATCH)

    def of(self, process: Process) -> set[int]:
        """The attempts that it has claimed."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT attempt_id FROM test_claim WHERE claimed_by = %s", [process.name])
            return {attempt_id for (attempt_id,) in cursor.fetchall()}

    @contextmanager
    def held_up(self, process: Process) -> Iterator[None]:
        """Its next claim stands in its commit, with all that it wrote, until the end of this."""
        with psycopg.connect(**_plain_parameters(), autocommit=True) as holder:
            holder.execute("SELECT pg_advisory_lock(hashtext(%s))", [process.name])
            eventually(lambda: self._states(process, "wait_event = 'advisory'"))
            yield

    def has_others_open(self, process: Process) -> bool:
        """Whether it has a transaction besides the one that is held up."""
        return bool(self._states(process, "wait_event IS DISTINCT FROM 'advisory'"))

    def _states(self, process: Process, which: str) -> int:
        with connection.cursor() as cursor:
            cursor.execute(f"{_TRANSACTIONS} AND {which}", [process.name])
            return int(cursor.fetchone()[0])

    def close(self) -> None:
        """As if nobody had watched."""
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION test_claim() CASCADE; DROP TABLE test_claim")


_WATCH = f"""
CREATE TABLE test_claim (attempt_id bigint, claimed_by text);
CREATE FUNCTION test_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO test_claim VALUES (new.id, current_setting('application_name'));
  PERFORM pg_advisory_xact_lock_shared(hashtext(current_setting('application_name')));
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER test_claim AFTER INSERT ON {Attempt._meta.db_table}
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION test_claim();
"""
_TRANSACTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = %s AND xact_start IS NOT NULL
"""


def _plain_parameters() -> dict[str, Any]:
    """How to connect to the test's database without Django."""
    parameters = connection.get_connection_params()
    return {name: value for name, value in parameters.items() if name not in {"cursor_factory", "context"}}


@pytest.fixture
def service(quiet_end: None, tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path, LEASE_S=str(LEASE_S), SEND_INTERVAL_MINUTES="0.001-0.002") as processes:
        processes.start(processes.web, processes.dispatcher, processes.second_dispatcher)
        yield processes


@pytest.fixture
def claims(quiet_end: None, service: Processes) -> Iterator[Claims]:
    watching = Claims()
    yield watching
    for dispatcher in (service.dispatcher, service.second_dispatcher):
        dispatcher.close()
    watching.close()


@pytest.fixture
def relay_of_slow_hosts(service: Processes, relay: RelayThread) -> RelayThread:
    fleet = Fleet(relay, service.base)
    for server in fleet.build(hosts=4, servers_per_host=10):
        fleet.behave(server, "slow", seconds=SLOW_S)
    return relay


@contextmanager
def steady_load(service: Processes, claims: Claims) -> Iterator[list[str]]:
    """Otp after otp, once both dispatchers have claimed of them; gives the numbers that were accepted."""
    _, key = api_keys.create(ClientFactory.create(), [api_keys.Scope.MESSAGES], now=utc_now(), expires_at=None)
    api, stop = Api(service.base, key), threading.Event()
    numbers: list[str] = []

    def post() -> None:
        while not stop.wait(PAUSE_S):
            number = f"+346{30_000_000 + len(numbers)}"
            api.send(to=number)
            numbers.append(number)

    with ThreadPoolExecutor(1) as pool:
        posting = pool.submit(post)
        try:
            eventually(lambda: claims.of(service.dispatcher) and claims.of(service.second_dispatcher))
            yield numbers
        finally:
            stop.set()
        posting.result()


def check_all_delivered_once(relay: RelayThread, numbers: list[str]) -> None:
    eventually(lambda: not Message.objects.filter(finished_at__isnull=True).exists(), within_s=30)
    assert Counter(Message.objects.values_list("status", flat=True)) == {"delivered": len(numbers)}
    assert Counter(send.to for send in relay.sends()) == dict.fromkeys(numbers, 1)


def stop_in_the_middle(process: Process, claims: Claims, stop: Callable[[], None]) -> set[int]:
    """Stop it while it makes calls, and commits a claim; the attempts of that claim, whose calls it has not made."""
    with claims.held_up(process):
        stop()
        before = claims.of(process)
        assert Attempt.objects.filter(id__in=before, state=AttemptState.SUBMITTING).exists(), "no call was in flight"
    return eventually(lambda: claims.of(process) - before)


def freeze(process: Process, claims: Claims) -> None:
    """SIGSTOP where it holds no locks but those of its claim: other processes would wait for them, not for a lease."""

    def frozen() -> bool:
        process.signal(SIGSTOP)
        if claims.has_others_open(process):
            process.signal(SIGCONT)
            return False
        return True

    eventually(frozen)


def end_delivered(attempts: set[int]) -> bool:
    messages = Message.objects.filter(attempts__in=attempts)
    return all(status == "delivered" for status in messages.values_list("status", flat=True))


def test_what_a_killed_one_had_claimed_is_sent_once_by_the_other(
    service: Processes, claims: Claims, relay_of_slow_hosts: RelayThread
) -> None:
    killed = service.dispatcher
    with steady_load(service, claims) as numbers:
        orphaned = stop_in_the_middle(killed, claims, killed.kill)
        eventually(lambda: end_delivered(orphaned), within_s=LEASE_S + 20)
    check_all_delivered_once(relay_of_slow_hosts, numbers)
    assert set(Attempt.objects.filter(id__in=orphaned).values_list("submission", flat=True)) == {""}


def test_a_frozen_one_does_not_send_what_was_rescued_from_it_when_it_wakes(
    service: Processes, claims: Claims, relay_of_slow_hosts: RelayThread
) -> None:
    frozen = service.dispatcher
    with steady_load(service, claims) as numbers:
        rescued = stop_in_the_middle(frozen, claims, lambda: freeze(frozen, claims))
        eventually(lambda: end_delivered(rescued), within_s=LEASE_S + 20)
        earlier = claims.of(frozen)
        frozen.signal(SIGCONT)
        late = Attempt.objects.filter(id__in=rescued)
        eventually(lambda: not late.filter(submission="").exists())
        assert set(late.values_list("submission", flat=True)) == {"not_connected"}
        eventually(lambda: claims.of(frozen) - earlier)  # it works again
    check_all_delivered_once(relay_of_slow_hosts, numbers)
