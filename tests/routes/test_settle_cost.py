"""Settling is set-wise: many cost as many queries as one."""

from __future__ import annotations

import datetime as dt

import pytest
from pytest_django import DjangoAssertNumQueries

from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult
from otp_service.messages.models import Attempt, Message
from otp_service.routes.submissions import Submitted, settle
from tests.draws import Lowest
from tests.factories import NOON
from tests.routes.steps import THROTTLED, in_flight

pytestmark = pytest.mark.django_db


def test_200_accepted_ones(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    batch = [
        Submitted(one, SubmitResult(Submission.ACCEPTED, f"guid-{one.attempt_id}", raw="202"), dt.timedelta())
        for one in in_flight(200)
    ]
    with django_assert_max_num_queries(15):
        settle(batch, now=NOON, rng=Lowest())
    assert Attempt.objects.filter(state="accepted").count() == 200
    assert Message.objects.filter(status="submitted").count() == 200


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (THROTTLED, "waiting"),
        (SubmitResult(Submission.REFUSED, error_class=ErrorClass.ROUTE_REJECTED), "queued"),
        (SubmitResult(Submission.REFUSED, error_class=ErrorClass.RECIPIENT_INVALID), "failed"),
    ],
    ids=["throttled", "route refuses", "invalid numbers"],
)
def test_many_refused_ones(
    django_assert_max_num_queries: DjangoAssertNumQueries, result: SubmitResult, status: str
) -> None:
    batch = [Submitted(one, result, dt.timedelta()) for one in in_flight(50)]
    with django_assert_max_num_queries(15):
        settle(batch, now=NOON, rng=Lowest())
    assert Message.objects.filter(status=status).count() == 50


def test_nothing_costs_nothing(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_max_num_queries(2):
        settle([], now=NOON, rng=Lowest())
