"""What is plainly accepted is settled in bulk; it ends as the rules for each one would have it."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from otp_service.core.outcomes import Receipt, ReportedState, Submission, SubmitResult
from otp_service.events.models import Event
from otp_service.messages.models import Attempt, Message, Ready
from otp_service.messages.rules import Channel
from otp_service.routes import accepted
from otp_service.routes.claim import Claimed
from otp_service.routes.models import OrphanReceipt
from otp_service.routes.receipts import apply_host_receipts, match_all_orphans
from otp_service.routes.route_rules import RouteKind, RouteSpec
from otp_service.routes.submissions import Submitted, rescue, settle
from servers.models import Server, ServerDelivery, ServerStatusHistory
from tests.draws import Lowest
from tests.factories import NOON
from tests.routes.steps import (
    ACCEPTED,
    NOT_CONNECTED,
    SIGNED_OUT,
    THROTTLED,
    UNKNOWN,
    attempt_of,
    events_of,
    in_flight,
    message_of,
)

pytestmark = pytest.mark.django_db
LATER = NOON + dt.timedelta(seconds=1)


def reported(state: ReportedState | None, *, guid: str = "", read: bool = False) -> Callable[[Claimed], None]:
    def report(one: Claimed) -> None:
        assert one.host is not None
        apply_host_receipts(one.host.host_id, [Receipt(state, one.send.attempt_uuid, guid, read=read)], now=NOON)

    return report


def waits_for_its_id(one: Claimed) -> None:
    assert one.host is not None
    receipt = Receipt(ReportedState.DELIVERED, None, f"guid-{one.attempt_id}", service="iMessage")
    apply_host_receipts(one.host.host_id, [receipt], now=NOON)


def rescued(one: Claimed) -> None:
    Attempt.objects.filter(pk=one.attempt_id).update(lease_until=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    rescue(now=NOON)


def message_expired(one: Claimed) -> None:
    Message.objects.filter(attempts=one.attempt_id).update(
        status="expired", finished_at=NOON, final_reason="expired_unconfirmed"
    )


def gone(one: Claimed) -> None:
    Attempt.objects.filter(pk=one.attempt_id).delete()


#: What may have happened before the call's end is written; mostly nothing.
BEFORE: dict[str, Callable[[Claimed], None]] = {
    "nothing": lambda _: None,
    "sent": reported(ReportedState.SENT),
    "delivered": reported(ReportedState.DELIVERED, guid="theirs"),
    "failed": reported(ReportedState.FAILED),
    "read, and so knows its id": reported(None, guid="first", read=True),
    "a receipt waits": waits_for_its_id,
    "rescued": rescued,
    "expired": message_expired,
    "gone": gone,
}
RESULTS = (SIGNED_OUT, THROTTLED, NOT_CONNECTED, UNKNOWN, dataclasses.replace(ACCEPTED, error_code=7))


def drawn(one: Claimed, rng: random.Random) -> Submitted:
    """A call's end: as a rule plainly accepted."""
    plain = SubmitResult(
        Submission.ACCEPTED,
        provider_message_id=rng.choice(["", f"guid-{one.attempt_id}", 'of "them" \\ \u2603']),
        raw=rng.choice(["", "202 {}", "x" * 3000]),
    )
    result = plain if rng.random() < 0.8 else rng.choice(RESULTS)
    claimed = one if rng.random() < 0.9 else dataclasses.replace(one, token=uuid.UUID(int=1))
    return Submitted(claimed, result, dt.timedelta(milliseconds=rng.uniform(0, 30_000)))


def written() -> dict[str, Any]:
    """Everything that settling may write, without what is drawn anew each time."""
    return {
        "attempts": list(Attempt.objects.order_by("id").values()),
        "replies": [attempt.raw_reply for attempt in Attempt.objects.order_by("id")],
        "messages": [
            {name: value for name, value in row.items() if name not in {"to", "text"}}
            for row in Message.objects.order_by("id").values()
        ],
        "ready": list(Ready.objects.order_by("pk").values()),
        "events": list(
            Event.objects.order_by("subject_uuid", "id").values("type", "at", "client_id", "subject_uuid", "data")
        ),
        "orphans": list(OrphanReceipt.objects.order_by("id").values()),
        "servers": list(Server.objects.order_by("id").values()),
        "history": list(ServerStatusHistory.objects.order_by("server", "id").values("server", "event", "at", "data")),
        "deliveries": list(ServerDelivery.objects.order_by("server", "id").values("server", "at")),
    }


def outcome(work: Callable[[], None]) -> dict[str, Any]:
    """What stands after `work`, which is undone."""
    with transaction.atomic():
        work()
        found = written()
        transaction.set_rollback(True)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_ends_as_the_rules_for_each_would_have_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    ones = in_flight(40, reference='login "42" \\ \u2603')
    for one in ones:
        BEFORE[rng.choice(list(BEFORE)) if rng.random() < 0.5 else "nothing"](one)
    batch = [drawn(one, rng) for one in ones]
    rng.shuffle(batch)
    in_bulk = outcome(lambda: settle(batch, now=LATER, rng=Lowest()))
    monkeypatch.setattr(accepted, "accept", lambda *_args, **_options: set())
    one_by_one = outcome(lambda: settle(batch, now=LATER, rng=Lowest()))
    for rows in (in_bulk["attempts"], one_by_one["attempts"]):
        for row in rows:
            row["raw_reply"] = row["raw_reply"] is not None  # sealed anew each time
    assert in_bulk == one_by_one
    assert {row["state"] for row in in_bulk["attempts"]} > {"accepted", "submitting"}


def plainly(one: Claimed, **facts: Any) -> accepted.Accepted:
    facts = {
        "token": one.token,
        "provider_message_id": "",
        "sealed_reply": None,
        "duration_ms": 150,
        "check_at": None,
        **facts,
    }
    return accepted.Accepted(one.attempt_id, **facts)


def test_the_bulk_takes_what_is_plain_and_leaves_the_rest() -> None:
    plain, sent, expired, strange = ones = in_flight(4)
    BEFORE["sent"](sent)
    BEFORE["expired"](expired)
    batch = [plainly(one) for one in ones[:3]] + [plainly(strange, token=uuid.UUID(int=1))]
    assert accepted.accept(batch, now=NOON) == {plain.attempt_id}
    assert [attempt_of(one).state for one in ones] == ["accepted", "sent", "submitting", "submitting"]
    assert [attempt_of(one).duration_ms for one in ones] == [150, None, None, None]


def test_an_id_that_a_receipt_taught_stays() -> None:
    (one,) = in_flight()
    BEFORE["read, and so knows its id"](one)
    assert accepted.accept([plainly(one, provider_message_id="second")], now=NOON) == {one.attempt_id}
    assert attempt_of(one).provider_message_id == "first"


def test_what_waited_for_an_id_of_the_bulk_is_applied_at_once() -> None:
    (one,) = in_flight()
    waits_for_its_id(one)
    result = dataclasses.replace(ACCEPTED, provider_message_id=f"guid-{one.attempt_id}")
    settle([Submitted(one, result, dt.timedelta())], now=NOON, rng=Lowest())
    assert (attempt_of(one).state, attempt_of(one).service) == ("delivered", "iMessage")
    assert events_of(message_of(one)) == ["message.submitted", "message.delivered"]


def on_a_route(one: Claimed) -> Claimed:
    """The same attempt as if a route without servers had been chosen for it."""
    Attempt.objects.filter(pk=one.attempt_id).update(server=None, route="sms:one")
    return dataclasses.replace(one, host=None, spec=RouteSpec("sms:one", Channel.SMS, RouteKind.SIMULATED))


def waits_on(scope: str, guid: str) -> None:
    kept = {"state": "delivered", "service": "", "error_class": None, "error_code": None, "reason": "", "read": False}
    OrphanReceipt.objects.create(scope=scope, provider_message_id=guid, receipt=kept, at=NOON)


def test_what_waited_at_a_route_is_applied_to_its_own_attempt() -> None:
    one, other = map(on_a_route, in_flight(2))
    waits_on("route:sms:one", "1")
    waits_on("route:sms:two", "2")
    batch = [
        Submitted(done, dataclasses.replace(ACCEPTED, provider_message_id=guid), dt.timedelta())
        for done, guid in ((one, "1"), (other, "2"))
    ]
    settle(batch, now=NOON, rng=Lowest())
    assert [attempt_of(done).state for done in (one, other)] == ["delivered", "accepted"]


def test_the_sweep_of_orphans_finds_attempts_of_routes_too() -> None:
    one = on_a_route(*in_flight())
    Attempt.objects.filter(pk=one.attempt_id).update(provider_message_id="1")
    waits_on("route:sms:one", "1")
    assert match_all_orphans(now=NOON) == 1
    assert attempt_of(one).state == "delivered"
