"""The database refuses breakers and tickets that cannot be."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from otp_service.routes.breaker_models import Breaker, ProbeTicket
from tests.conftest import NOON

pytestmark = pytest.mark.django_db

PAUSE = dt.timedelta(seconds=30)
CLOSED = {"generation": 1, "since": NOON}
OPEN = {"state": "open", "generation": 1, "since": NOON, "opened_at": NOON, "pause": PAUSE, "until": NOON}
HALF_OPEN = OPEN | {"state": "half_open", "until": None}
ISOLATED = {"state": "isolated", "generation": 1, "since": NOON, "isolated_by": "ada", "reason": "no balance"}


@pytest.mark.parametrize(
    "row",
    [{}, CLOSED, CLOSED | {"pause": PAUSE}, OPEN, HALF_OPEN, ISOLATED],
    ids=["never changed", "closed", "closed with its last pause", "open", "half-open", "isolated"],
)
def test_takes_what_can_be(row: dict[str, Any]) -> None:
    Breaker.objects.create(route="sms:one", **row)


@pytest.mark.parametrize(
    ("row", "constraint"),
    [
        pytest.param(CLOSED | {"state": "ajar"}, "breaker_state_known", id="unknown state"),
        pytest.param({"since": NOON}, "breaker_changed_iff_generation", id="changed in no generation"),
        pytest.param({"generation": 1}, "breaker_changed_iff_generation", id="a generation of no change"),
        pytest.param(OPEN | {"generation": 0, "since": None}, "breaker_changed_iff_generation", id="open, unchanged"),
        pytest.param(OPEN | {"opened_at": None}, "breaker_opened_iff_shut", id="open since never"),
        pytest.param(HALF_OPEN | {"opened_at": None}, "breaker_opened_iff_shut", id="half-open since never"),
        pytest.param(CLOSED | {"opened_at": NOON}, "breaker_opened_iff_shut", id="closed and opened"),
        pytest.param(ISOLATED | {"opened_at": NOON}, "breaker_opened_iff_shut", id="isolated and opened"),
        pytest.param(OPEN | {"until": None}, "breaker_until_iff_open", id="open for ever"),
        pytest.param(HALF_OPEN | {"until": NOON}, "breaker_until_iff_open", id="half-open until then"),
        pytest.param(CLOSED | {"until": NOON}, "breaker_until_iff_open", id="closed until then"),
        pytest.param(OPEN | {"pause": None}, "breaker_pause_where_shut", id="open without a pause"),
        pytest.param(OPEN | {"pause": dt.timedelta()}, "breaker_pause_where_shut", id="open for no time"),
        pytest.param(CLOSED | {"pause": -PAUSE}, "breaker_pause_where_shut", id="closed with less than no pause"),
        pytest.param(ISOLATED | {"pause": PAUSE}, "breaker_pause_where_shut", id="isolated for a pause"),
        pytest.param(ISOLATED | {"isolated_by": ""}, "breaker_isolated_by_somebody", id="isolated by nobody"),
        pytest.param(ISOLATED | {"reason": ""}, "breaker_isolated_by_somebody", id="isolated for no reason"),
        pytest.param(CLOSED | {"isolated_by": "ada"}, "breaker_isolated_by_somebody", id="closed, isolated by ada"),
        pytest.param(OPEN | {"reason": "why"}, "breaker_isolated_by_somebody", id="open, with a person's reason"),
    ],
)
def test_refuses_what_cannot_be(row: dict[str, Any], constraint: str) -> None:
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Breaker.objects.create(route="sms:one", **row)


def test_a_route_has_one_breaker() -> None:
    Breaker.objects.create(route="sms:one")
    with pytest.raises(IntegrityError, match="route"), transaction.atomic():
        Breaker.objects.create(route="sms:one")


@pytest.mark.parametrize(
    ("ticket", "constraint"),
    [
        ({"ended_at": NOON}, "probe_ended_iff_result"),
        ({"good": True}, "probe_ended_iff_result"),
        ({"attempt_id": 41}, "probe_attempt_once"),
    ],
)
def test_refuses_tickets_that_cannot_be(ticket: dict[str, Any], constraint: str) -> None:
    breaker = Breaker.objects.create(route="sms:one", **HALF_OPEN)
    ProbeTicket.objects.create(breaker=breaker, generation=1, expires_at=NOON, attempt_id=41, ended_at=NOON, good=False)
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        ProbeTicket.objects.create(breaker=breaker, generation=1, expires_at=NOON, **ticket)
