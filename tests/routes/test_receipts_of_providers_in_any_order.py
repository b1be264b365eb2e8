"""What providers report may come in any order: the end is the same, and clients are told the same of it.

Only a delivery corrects a failure, and nothing is taken back: there alone, the order shows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction
from django.test import override_settings
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, SubmitResult
from otp_service.events.models import Event
from otp_service.messages.models import Message, Ready
from otp_service.routes.claim import Claimed
from otp_service.routes.receipts import apply_route_receipts, match_all_orphans
from tests.factories import NOON
from tests.routes.cascade import Cascade, on_its_way, refused, two_sms_routes
from tests.routes.steps import ACCEPTED, UNKNOWN, events_of, settled

QUEUED, SENT, DELIVERED, FAILED = (
    ReportedState.QUEUED,
    ReportedState.SENT,
    ReportedState.DELIVERED,
    ReportedState.FAILED,
)
ROUTES = {1: "sms:one", 2: "sms:two"}
WINDOW = 10  # seconds until a receipt should have come: `delivery_s` of a route
SUBMITTED = "message.submitted"
#: By how the message ends: what its client may be told, apart from SUBMITTED before and `message.read` beside it.
ENDS: dict[str, list[list[str]]] = {
    "delivered": [["message.delivered"], ["message.failed", "message.corrected"]],
    "failed": [["message.failed"]],
}


@dataclass(frozen=True)
class Report:
    """One receipt about the attempt of this number, which names it by our id, by the provider's, or by both."""

    state: ReportedState
    number: int = 1
    by_ours: bool = True
    by_theirs: bool = False
    error: ErrorClass | None = None
    read: bool = False

    def arrive(self, message: Message) -> None:
        attempt = message.attempts.get(number=self.number)
        receipt = Receipt(
            self.state,
            attempt.uuid if self.by_ours else None,
            f"id-{self.number}" if self.by_theirs else "",
            error_class=self.error,
            error_code=None if self.error is None else 7,
            read=self.read,
        )
        apply_route_receipts(attempt.route, [receipt], now=NOON)


News = Report | SubmitResult


@st.composite
def reports(draw: st.DrawFn, number: int = 1, error: ErrorClass = ErrorClass.TEMPORARY) -> list[Report]:
    """What one provider says of one attempt; it may contradict itself."""
    found = []
    for state in draw(st.lists(st.sampled_from([QUEUED, SENT, DELIVERED, FAILED]), unique=True)):
        by_ours, by_theirs = draw(st.sampled_from([(True, False), (False, True), (True, True)]))
        read = state is DELIVERED and draw(st.booleans())
        found.append(Report(state, number, by_ours, by_theirs, error if state is FAILED else None, read))
    return found


def end(message: Message, order: Sequence[News], one: Claimed | None = None) -> dict[str, Any]:
    """How everything stands when the news came in this order; nothing of it is kept."""
    with transaction.atomic():
        for news in order:
            if isinstance(news, Report):
                news.arrive(message)
            elif one is not None:
                settled(one, news)
        match_all_orphans(now=NOON)
        row = Message.objects.get(pk=message.pk)
        assert_told(row)
        stands = _stands(row)
        transaction.set_rollback(True)
    return stands


def _stands(row: Message) -> dict[str, Any]:
    attempts = row.attempts.order_by("number")
    columns = ("route", "state", "provider_message_id", "error_class", "error_code", "read_at", "possible_duplicate")
    return {
        "attempts": list(attempts.values_list(*columns)),
        "message": (row.status, row.run_after, row.attempts_made, row.copies_left, row.finished_at),
        "ready": Ready.objects.filter(pk=row.pk).exists(),
        "final": (row.final_reason, row.final_error_code, row.final_route),
        # What overtakes a failure keeps it from being weighed.
        "charged": None if row.status in {"submitted", "delivered"} else row.attempts_charged,
    }


def assert_told(row: Message) -> None:
    """One of the orders that are allowed, with the data of each moment; and once for each copy that was read."""
    told = events_of(row)
    assert told.count("message.read") == row.attempts.filter(read_at__isnull=False).count()
    ends = [event for event in told if event != "message.read"]
    if SUBMITTED in ends:
        assert ends.pop(0) == SUBMITTED
    assert ends in ENDS.get(row.status, [[]]), told
    if row.status in {"submitted", "delivered"} and not ends:
        assert SUBMITTED in told
    for event in Event.objects.filter(subject_uuid=row.uuid).exclude(type="message.read"):
        assert event.data == _data(event.type, row)


def _data(event_type: str, row: Message) -> dict[str, Any]:
    status = {"message.corrected": "delivered"}.get(event_type, event_type.removeprefix("message."))
    data: dict[str, Any] = {"status": status, "lane": row.lane, "reference": row.reference}
    if event_type == "message.failed":
        data |= {"reason": row.final_reason or FAILED_REASON, "error_code": 7}
    return data


FAILED_REASON = "attempts_exhausted"  # of a failure that was corrected: the row has forgotten it


def shuffles(news: Sequence[News], seed: int) -> list[list[News]]:
    """Backwards, and in some order with repetitions."""
    draws = random.Random(seed)
    repeated = [each for each in news for _ in range(draws.randint(1, 2))]
    draws.shuffle(repeated)
    return [list(reversed(news)), repeated]


calls = st.sampled_from(
    [ACCEPTED, replace(ACCEPTED, provider_message_id="id-1"), UNKNOWN, refused(ErrorClass.TEMPORARY, 7)]
)


@override_settings(SIMULATED_ROUTES=True)
class OneAttempt(TestCase):
    @settings(max_examples=30, deadline=None)
    @given(call=calls, told=reports(), max_attempts=st.sampled_from([1, 4]), seed=st.integers(0, 1_000_000))
    @example(ACCEPTED, [Report(FAILED, error=ErrorClass.TEMPORARY), Report(DELIVERED)], 1, 0)
    @example(ACCEPTED, [Report(FAILED, error=ErrorClass.TEMPORARY), Report(DELIVERED)], 4, 0)
    @example(UNKNOWN, [Report(SENT, by_theirs=True), Report(DELIVERED, by_ours=False, by_theirs=True)], 4, 1)
    def test_the_end_is_the_same(self, call: SubmitResult, told: list[Report], max_attempts: int, seed: int) -> None:
        if call.error_class is ErrorClass.TEMPORARY:  # it reports no failure of what it had refused, which ends nothing
            told = [report for report in told if report.state is not FAILED]
            max_attempts = 4
        two_sms_routes()
        cascade = on_its_way(max_attempts=max_attempts)
        one = cascade.claims()
        assert one is not None
        news: list[News] = [call, *told]
        expected = end(cascade.message, news, one)
        for order in shuffles(news, seed):
            assert end(cascade.message, order, one) == expected, order


def racing(**fields: Any) -> Cascade:
    """A message whose first attempt is unclear, and whose second one its provider took."""
    two_sms_routes(delivery_s=WINDOW)
    cascade = on_its_way(on_unknown="race", **fields)
    cascade.attempts(UNKNOWN)
    for seconds in (1, WINDOW - 1):
        cascade.goes(seconds)
        cascade.resolves()
    assert cascade.attempts(ACCEPTED) == "sms:two"
    return cascade


def first_delivered(order: Sequence[News]) -> str:
    return next((ROUTES[each.number] for each in order if isinstance(each, Report) and each.state is DELIVERED), "")


@override_settings(SIMULATED_ROUTES=True)
class TwoRacing(TestCase):
    @settings(max_examples=25, deadline=None)
    @given(of_one=reports(1), of_two=reports(2), max_attempts=st.sampled_from([2, 4]), seed=st.integers(0, 1_000_000))
    @example(
        [Report(FAILED, 1, error=ErrorClass.TEMPORARY)],
        [Report(FAILED, 2, error=ErrorClass.TEMPORARY), Report(DELIVERED, 2)],
        2,
        0,
    )
    def test_the_end_is_the_same(
        self, of_one: list[Report], of_two: list[Report], max_attempts: int, seed: int
    ) -> None:
        cascade = racing(max_attempts=max_attempts)
        news: list[News] = [*of_one, *of_two]
        expected = end(cascade.message, news)
        for order in shuffles(news, seed):
            assert _without_route(end(cascade.message, order)) == _without_route(expected), order

    @settings(max_examples=10, deadline=None)
    @given(news=st.permutations([Report(state, number) for state in (SENT, DELIVERED) for number in (1, 2)]))
    def test_the_first_delivery_names_the_route(self, news: list[Report]) -> None:
        cascade = racing()
        assert end(cascade.message, news)["final"] == ("", None, first_delivered(news))


def _without_route(stands: dict[str, Any]) -> dict[str, Any]:
    """The end, but for its route where both copies ended alike: that of the first delivery, or the last failure."""
    is_alike = len({state for _, state, *_ in stands["attempts"]}) == 1
    return {**stands, "final": stands["final"][:2]} if is_alike else stands
