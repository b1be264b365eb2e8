"""What becomes known of an attempt may come in any order and any number of times: the end is the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from otp_service.core.outcomes import Receipt, ReportedState, SubmitResult
from otp_service.messages.models import Message, Ready
from otp_service.routes.claim import Claimed
from otp_service.routes.receipts import apply_host_receipts, match_all_orphans
from servers.relay.error_codes import error_class
from tests.factories import NOON
from tests.routes.steps import (
    ACCEPTED,
    NOT_CONNECTED,
    SIGNED_OUT,
    THROTTLED,
    UNKNOWN,
    attempt_of,
    events_of,
    host_of,
    in_flight,
    settled,
)

GUID = "guid-1"
BY_ATTEMPT, BY_GUID, BY_BOTH = "attempt", "guid", "both"
ENDS = {"message.delivered", "message.failed", "message.expired", "message.corrected"}


@dataclass(frozen=True)
class Report:
    """One receipt: `state` None says that it was read; `by` which ids it names."""

    state: ReportedState | None
    by: str = BY_ATTEMPT
    service: str = ""
    code: int | None = None

    def receipt(self, one: Claimed) -> Receipt:
        return Receipt(
            state=self.state,
            attempt_uuid=None if self.by == BY_GUID else one.send.attempt_uuid,
            provider_message_id="" if self.by == BY_ATTEMPT else GUID,
            service=self.service,
            error_class=None if self.code is None else error_class(self.code),
            error_code=self.code,
            read=self.state is None,
        )


News = Report | SubmitResult

REFUSALS = [SIGNED_OUT, THROTTLED, NOT_CONNECTED]
calls = st.sampled_from([None, ACCEPTED, UNKNOWN, replace(ACCEPTED, provider_message_id=GUID), *REFUSALS])
ways = st.sampled_from([BY_ATTEMPT, BY_GUID, BY_BOTH])


@st.composite
def news_of_an_attempt(draw: st.DrawFn) -> list[News]:
    """What one host says of one attempt.

    It may contradict itself, but has one code for a failure, and reports none of what it had refused.
    """
    code = draw(st.sampled_from([120, 22, 140]))
    call = draw(calls)
    known = ["sent", "delivered", "read"] if call in REFUSALS else ["sent", "delivered", "failed", "read"]
    states = draw(st.sets(st.sampled_from(known)))
    news: list[News] = [
        Report(
            state=None if state == "read" else ReportedState(state),
            by=draw(ways),
            service={"sent": "imessage", "delivered": draw(st.sampled_from(["", "sms"]))}.get(state, ""),
            code=code if state == "failed" else None,
        )
        for state in sorted(states)
    ]
    return news if call is None else [call, *news]


def arrive(one: Claimed, news: News) -> None:
    if isinstance(news, SubmitResult):
        settled(one, news)
    else:
        apply_host_receipts(host_of(one).host_id, [news.receipt(one)], now=NOON)


def end(one: Claimed, order: Sequence[News]) -> dict[str, Any]:
    """How everything stands when the news came in this order; nothing of it is kept."""
    with transaction.atomic():
        for news in order:
            arrive(one, news)
        match_all_orphans(now=NOON)
        stands = _stands(one)
        _assert_events_fit(attempt_of(one).message)
        transaction.set_rollback(True)
    return stands


def _stands(one: Claimed) -> dict[str, Any]:
    attempt = attempt_of(one)
    message = attempt.message
    return {
        "attempt": attempt.state,
        "guid": attempt.provider_message_id,
        "service": attempt.service,
        "error": (attempt.error_class, attempt.error_code),
        "read": attempt.read_at,
        "message": message.status,
        "run_after": message.run_after,
        "ready": Ready.objects.filter(pk=message.pk).exists(),
        "final": (message.final_reason, message.final_error_code, message.final_server_id),
        # What overtakes a failure keeps it from being weighed.
        "charged": None if message.status in {"submitted", "delivered"} else message.attempts_charged,
    }


def _assert_events_fit(message: Message) -> None:
    told = events_of(message)
    assert len(told) == len(set(told))
    ends = [event for event in told if event in ENDS]
    expected: dict[str, list[list[str]]] = {
        "delivered": [["message.delivered"], ["message.failed", "message.corrected"]],
        "failed": [["message.failed"]],
    }
    assert ends in expected.get(message.status, [[]])
    assert ("message.read" in told) == (message.attempts.get().read_at is not None)


class AnyOrder(TestCase):
    @settings(max_examples=40, deadline=None)
    @given(news=news_of_an_attempt(), seed=st.integers(0, 1_000_000))
    @example(news=[ACCEPTED, Report(ReportedState.FAILED, code=120), Report(ReportedState.DELIVERED)], seed=1)
    @example(news=[SIGNED_OUT, Report(ReportedState.SENT)], seed=3)
    @example(news=[UNKNOWN, Report(ReportedState.SENT, BY_BOTH), Report(ReportedState.DELIVERED, BY_GUID)], seed=2)
    def test_the_end_is_the_same(self, news: list[News], seed: int) -> None:
        (one,) = in_flight()
        shuffled = [item for item in news for _ in range(random.Random(seed).randint(1, 3))]
        random.Random(seed + 1).shuffle(shuffled)
        expected = end(one, news)
        assert end(one, shuffled) == expected
        assert end(one, news[::-1]) == expected

    @settings(max_examples=15, deadline=None)
    @given(news=news_of_an_attempt(), seed=st.integers(0, 1_000_000))
    def test_the_end_is_the_same_when_receipts_come_in_one_list(self, news: list[News], seed: int) -> None:
        (one,) = in_flight()
        expected = end(one, news)
        reports = [item.receipt(one) for item in news if isinstance(item, Report)]
        calls_made = [item for item in news if isinstance(item, SubmitResult)]
        random.Random(seed).shuffle(reports)
        apply_host_receipts(host_of(one).host_id, reports, now=NOON)
        for call in calls_made:
            settled(one, call)
        match_all_orphans(now=NOON)
        assert _stands(one) == expected
