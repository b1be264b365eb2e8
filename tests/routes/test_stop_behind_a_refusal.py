"""A recipient that a provider refuses because of a STOP is stopped here too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otp_service.messages.recipient_models import InvalidReport
from otp_service.messages.recipients import preferences
from otp_service.routes.providers import twilio
from otp_service.routes.providers.twilio import STOPPED
from otp_service.routes.route_rules import RouteKind
from tests.factories import RouteFactory
from tests.routes.cascade import Cascade, on_its_way, refused

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _simulated(settings: Any) -> None:
    settings.SIMULATED_ROUTES = True


def settled(code: int, kind: RouteKind = RouteKind.TWILIO, lane: str = "promo") -> Cascade:
    """A message whose only attempt, over a route of this kind, was refused with this code."""
    credentials = json.dumps({"account_sid": "AC1", "auth_token": "a token"})
    RouteFactory.create(name="sms:one", priority=1, kind=kind, settings={}, credentials=credentials)
    RouteFactory.create(name="sms:two", kind=kind, settings={}, credentials=credentials)
    RouteFactory.create(name="voice:one")
    error = twilio.ERRORS[code]
    cascade = on_its_way(channels=["sms", "voice"], lane=lane)
    assert cascade.attempts(refused(error, code)) == "sms:one"
    return cascade


def test_the_recipient_is_stopped_and_gets_no_promo_on_any_channel() -> None:
    cascade = settled(STOPPED)
    assert preferences(cascade.message.to).stopped
    assert cascade.claims() is None
    assert (cascade.row().status, cascade.row().final_reason) == ("failed", "suppressed")


def test_a_code_goes_on_to_the_next_channel() -> None:
    cascade = settled(STOPPED, lane="otp")
    one = cascade.claims()
    assert one is not None
    assert one.route == "voice:one"


def test_its_number_is_not_taken_for_one_that_cannot_be() -> None:
    settled(STOPPED)
    assert not InvalidReport.objects.exists()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        pytest.param(21211, RouteKind.TWILIO, id="no such number"),
        pytest.param(STOPPED, RouteKind.HTTP_JSON, id="the code of another provider"),
    ],
)
def test_any_other_refusal_stops_nobody(code: int, kind: RouteKind) -> None:
    cascade = settled(code, kind)
    assert not preferences(cascade.message.to).stopped
