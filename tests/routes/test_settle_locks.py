"""Locks are taken in one order: messages, attempts, servers, each by ascending id. So nobody ends in a deadlock.

Each test holds the row that must come first, and sees that the row that comes later is still free.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import models, transaction

from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, Submission, SubmitResult
from otp_service.messages.models import Attempt, Message
from otp_service.routes.claim import Claimed
from otp_service.routes.receipts import apply_host_receipts, match_all_orphans
from otp_service.routes.submissions import Submitted, settle
from servers.models import Server
from tests.draws import Lowest
from tests.factories import NOON
from tests.racing import Racer
from tests.routes.steps import ACCEPTED, SIGNED_OUT, attempt_of, host_of, in_flight, settled

pytestmark = pytest.mark.django_db(transaction=True)


def lock(model: type[models.Model], pk: int | None, *, nowait: bool = False) -> None:
    """Fails with OperationalError if somebody holds the row, and `nowait`."""
    rows: Any = model._default_manager.select_for_update(no_key=True, nowait=nowait)
    rows.get(pk=pk)


def server_id(one: Claimed) -> int:
    found = attempt_of(one).server_id
    assert found is not None
    return found


def same_host(*claimed: Claimed) -> int:
    """Move their servers to one host."""
    host_id = host_of(claimed[0]).host_id
    Server.objects.filter(pk__in=[server_id(one) for one in claimed]).update(host_id=host_id)
    return host_id


def test_servers_are_told_by_ascending_id() -> None:
    one, two = sorted(in_flight(2), key=server_id)
    with transaction.atomic():
        lock(Server, server_id(one))
        batch = [Submitted(done, SIGNED_OUT, dt.timedelta()) for done in (two, one)]
        settling = Racer(lambda: settle(batch, now=NOON, rng=Lowest()))
        settling.wait_until_blocked()
        lock(Server, server_id(two), nowait=True)
    settling.result()


def test_what_waited_for_an_id_reaches_servers_in_the_same_order() -> None:
    one, two = sorted(in_flight(2), key=server_id)
    apply_host_receipts(host_of(one).host_id, [Receipt(ReportedState.DELIVERED, None, "guid-1")], now=NOON)
    with transaction.atomic():
        lock(Server, server_id(one))
        batch = [
            Submitted(two, SIGNED_OUT, dt.timedelta()),
            Submitted(one, SubmitResult(Submission.ACCEPTED, "guid-1"), dt.timedelta()),
        ]
        settling = Racer(lambda: settle(batch, now=NOON, rng=Lowest()))
        settling.wait_until_blocked()
        lock(Server, server_id(two), nowait=True)
    settling.result()
    assert attempt_of(one).state == "delivered"


def test_a_read_message_is_locked_before_any_server() -> None:
    delivered, read = in_flight(2)
    host_id = same_host(delivered, read)
    receipts = [
        Receipt(ReportedState.DELIVERED, delivered.send.attempt_uuid),
        Receipt(None, read.send.attempt_uuid, read=True),
    ]
    with transaction.atomic():
        lock(Attempt, read.attempt_id)
        applying = Racer(lambda: apply_host_receipts(host_id, receipts, now=NOON))
        applying.wait_until_blocked()
        lock(Server, server_id(delivered), nowait=True)
    assert applying.result() == 2


def test_a_server_that_changes_afterwards_is_locked_in_its_turn() -> None:
    first, second = sorted(in_flight(2), key=server_id)
    host_id = same_host(first, second)
    failed = Receipt(ReportedState.FAILED, second.send.attempt_uuid, error_class=ErrorClass.SENDER_FAULT)
    with transaction.atomic():
        lock(Server, server_id(first))
        applying = Racer(lambda: apply_host_receipts(host_id, [failed], now=NOON, then_servers=[server_id(first)]))
        applying.wait_until_blocked()
        lock(Server, server_id(second), nowait=True)
    assert applying.result() == 1


def test_the_sweep_of_orphans_locks_the_messages_of_all_hosts_in_one_order() -> None:
    first, second = in_flight(2)
    for done, guid in ((second, "guid-2"), (first, "guid-1")):
        receipt = Receipt(ReportedState.DELIVERED, None, guid)
        apply_host_receipts(host_of(done).host_id, [receipt], now=NOON)
        Attempt.objects.filter(pk=done.attempt_id).update(provider_message_id=guid)
    with transaction.atomic():
        lock(Message, attempt_of(first).message_id)
        sweeping = Racer(lambda: match_all_orphans(now=NOON))
        sweeping.wait_until_blocked()
        lock(Message, attempt_of(second).message_id, nowait=True)
    assert sweeping.result() == 2


def test_a_receipt_waits_for_the_settling_of_its_message() -> None:
    (one,) = in_flight()
    receipt = Receipt(ReportedState.DELIVERED, one.send.attempt_uuid)
    with transaction.atomic():
        settled(one, ACCEPTED)
        applying = Racer(lambda: apply_host_receipts(host_of(one).host_id, [receipt], now=NOON))
        applying.wait_until_blocked()
        assert attempt_of(one).state == "accepted"
    assert applying.result() == 1
    assert (attempt_of(one).state, attempt_of(one).message.status) == ("delivered", "delivered")
