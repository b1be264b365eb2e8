"""All that touches messages, at the same time: nobody ends in a deadlock, and the rows fit together afterwards."""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import threading
import uuid
from collections.abc import Callable
from functools import partial

import pytest

from otp_service.core.outcomes import Receipt, ReportedState, Submission, SubmitResult
from otp_service.messages.expiry import expire_due, stage_due
from otp_service.messages.lifecycle import NotCancellable, cancel
from otp_service.messages.models import Attempt, Flow, Message, Ready
from otp_service.routes import resolve
from otp_service.routes.receipts import apply_host_receipts, match_all_orphans
from otp_service.routes.submissions import Submitted, rescue, settle
from servers.models import Server
from servers.relay.error_codes import error_class
from tests.factories import NOON, FlowFactory, HostFactory, QueuedFactory, ServerFactory
from tests.racing import PATIENCE, Racer
from tests.routes.steps import ACCEPTED, NOT_CONNECTED, SECOND, SIGNED_OUT, THROTTLED, UNKNOWN, claim

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 15
RESULTS = [ACCEPTED, ACCEPTED, SIGNED_OUT, THROTTLED, NOT_CONNECTED, UNKNOWN]


def some_result(rng: random.Random, attempt_uuid: uuid.UUID) -> SubmitResult:
    """With the host's id at times: it is the beginning of ours, so that reports can name it."""
    with_id = SubmitResult(Submission.ACCEPTED, f"guid-{attempt_uuid}")
    return rng.choice([*RESULTS, with_id, with_id])


def claim_and_settle(flows: list[Flow], rng: random.Random) -> None:
    now = NOON + rng.randrange(60) * SECOND
    got = claim([(flow.pk, 4) for flow in rng.sample(flows, len(flows))], now=now, rng=rng)
    done = [Submitted(one, some_result(rng, one.send.attempt_uuid), SECOND) for one in got if rng.random() < 0.9]
    rng.shuffle(done)
    settle(done, now=now, rng=rng)


def report(rng: random.Random) -> None:
    """What a host may post: about any of its attempts, by either id, in any order."""
    attempts = list(Attempt.objects.values_list("uuid", "server__host_id"))
    if not attempts:
        return
    host_id = rng.choice(attempts)[1]
    own = [attempt_uuid for attempt_uuid, owner in attempts if owner == host_id]
    receipts = [some_receipt(rng, attempt_uuid) for attempt_uuid in rng.sample(own, min(8, len(own)))]
    servers = Server.objects.filter(host_id=host_id).values_list("id", flat=True)
    apply_host_receipts(host_id, receipts, now=NOON, then_servers=rng.sample(list(servers), 2))


def some_receipt(rng: random.Random, attempt_uuid: uuid.UUID) -> Receipt:
    state = rng.choice([ReportedState.SENT, ReportedState.DELIVERED, ReportedState.FAILED, None])
    code = rng.choice([22, 120, 140]) if state is ReportedState.FAILED else None
    return Receipt(
        state,
        attempt_uuid if rng.random() < 0.6 else None,
        f"guid-{attempt_uuid}",
        error_class=None if code is None else error_class(code),
        error_code=code,
        read=state is None,
    )


def sweep(rng: random.Random) -> None:
    now = NOON + rng.randrange(120) * SECOND
    chores: list[Callable[[], object]] = [
        lambda: stage_due(now=now),
        lambda: expire_due(now=now + rng.randrange(300) * SECOND),
        lambda: rescue(now=now, rng=rng),
        lambda: match_all_orphans(now=now),
        lambda: resolve.claim_checks(now=now + dt.timedelta(minutes=10), routes={}),
    ]
    for chore in rng.sample(chores, len(chores)):
        chore()


def cancel_one(messages: list[Message], rng: random.Random) -> None:
    message = rng.choice(messages)
    with contextlib.suppress(NotCancellable):
        cancel(message.client_id, message.uuid, now=NOON)


def test_nothing_gets_stuck_and_the_rows_fit_together() -> None:
    flows = [FlowFactory.create(), FlowFactory.create(lane="transactional"), FlowFactory.create(lane="promo")]
    hosts = HostFactory.create_batch(3)
    for host in hosts:
        ServerFactory.create_batch(40, host=host)
    messages = [QueuedFactory.create(flow=flow, number=f"+3460000{n:04}") for flow in flows for n in range(30)]
    start = threading.Barrier(6)

    def repeat(work: Callable[[random.Random], None], seed: int) -> None:
        rng = random.Random(seed)
        start.wait(PATIENCE)
        for _ in range(ROUNDS):
            work(rng)

    works: list[Callable[[random.Random], None]] = [
        partial(claim_and_settle, flows),
        partial(claim_and_settle, flows),
        report,
        report,
        sweep,
        partial(cancel_one, messages),
    ]
    with contextlib.ExitStack() as ends:  # all of them, also after one that failed
        for racer in [Racer(partial(repeat, work, seed)) for seed, work in enumerate(works)]:
            ends.callback(racer.result)

    queued = set(Message.objects.filter(status="queued").values_list("id", flat=True))
    assert set(Ready.objects.values_list("message_id", flat=True)) == queued
    open_ones = set(Attempt.objects.filter(settled_at=None).values_list("message_id", flat=True))
    assert set(Message.objects.filter(status="sending").values_list("id", flat=True)) <= open_ones
    delivered = set(Attempt.objects.filter(state="delivered").values_list("message_id", flat=True))
    assert set(Message.objects.filter(status="delivered").values_list("id", flat=True)) == delivered
    # What had been refused may be reported as sent after the cancel; nothing is handed over after it.
    of_cancelled = Attempt.objects.filter(message__in=Message.objects.filter(status="cancelled"))
    assert not of_cancelled.filter(state__in=["submitting", "unknown", "accepted"]).exists()
