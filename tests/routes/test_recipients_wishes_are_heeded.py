"""What a recipient wants, and what is known of the number, is looked at before each send."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from otp_service.core.outcomes import ErrorClass, ReportedState
from otp_service.messages.models import Flow, Message
from otp_service.messages.recipient_models import InvalidReport
from otp_service.messages.recipients import Preferences, note_stop, put_preferences
from otp_service.messages.rules import Channel
from tests.factories import QueuedFactory, RouteFactory
from tests.routes.cascade import Cascade, on_its_way, refused, two_sms_routes
from tests.routes.steps import ACCEPTED, UNKNOWN, is_ready

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _simulated(settings: Any) -> None:
    settings.SIMULATED_ROUTES = True


def ended(cascade: Cascade) -> tuple[str, str]:
    row = cascade.row()
    return row.status, row.final_reason


@pytest.mark.parametrize(
    ("lane", "expected"),
    [("promo", ("failed", "suppressed")), ("transactional", ("sending", "")), ("otp", ("sending", ""))],
)
def test_who_answered_stop_gets_no_promo(lane: str, expected: tuple[str, str], now: dt.datetime) -> None:
    two_sms_routes()
    cascade = on_its_way(lane=lane)
    note_stop(cascade.message.to, now=now)
    assert (cascade.claims() is None) == (lane == "promo")
    assert ended(cascade) == expected


def test_a_refused_channel_is_passed_over(now: dt.datetime) -> None:
    two_sms_routes()
    RouteFactory.create(name="voice:one")
    cascade = on_its_way(channels=["sms", "voice"])
    put_preferences(cascade.message.to, Preferences(refused_channels=(Channel.SMS.value,)), now=now, by="a test")
    assert cascade.attempts(ACCEPTED) == "voice:one"
    assert cascade.message.attempts.get().refusals == {"sms:one": "channel_refused", "sms:two": "channel_refused"}


def test_promo_waits_for_the_end_of_quiet_hours(now: dt.datetime) -> None:
    """Noon in UTC is two o'clock in Spain."""
    two_sms_routes()
    cascade = on_its_way(lane="promo", expires_at=now + dt.timedelta(hours=9))
    quiet = Preferences(quiet_hours=(dt.time(13), dt.time(15, 30)))
    put_preferences(cascade.message.to, quiet, now=now, by="a test")
    assert cascade.claims() is None
    row = cascade.row()
    assert (row.status, row.run_after) == ("waiting", now + dt.timedelta(minutes=90))
    assert row.refusals == {"sms:one": "quiet_hours", "sms:two": "quiet_hours"}


def test_a_number_that_three_routes_call_invalid_is_refused_until_something_reaches_it(now: dt.datetime) -> None:
    to = "+34600000099"
    for name in ("sms:one", "sms:two", "sms:three"):
        RouteFactory.create(name=name, sender_names=[name[4:].upper()])
        cascade = on_its_way(number=to, sender_name=name[4:].upper())
        assert cascade.attempts(refused(ErrorClass.RECIPIENT_INVALID)) == name
        assert ended(cascade) == ("failed", "recipient_invalid")
    suppressed = on_its_way(number=to)
    assert suppressed.claims() is None
    assert ended(suppressed) == ("failed", "suppressed")
    late = Message.objects.get(pk=cascade.message.pk)
    assert late.attempts.get().state == "not_submitted"
    cascade.reports(ReportedState.DELIVERED, 1)
    assert not InvalidReport.objects.exists()
    assert on_its_way(number=to).claims() is not None


def test_an_extra_copy_is_not_sent_to_who_answered_stop(now: dt.datetime) -> None:
    two_sms_routes(delivery_s=1)
    cascade = on_its_way(lane="promo", on_unknown="race")
    assert cascade.attempts(UNKNOWN) == "sms:one"
    cascade.goes(1)
    cascade.resolves()
    assert is_ready(cascade.row())
    note_stop(cascade.message.to, now=now)
    assert cascade.claims() is None
    assert (cascade.row().status, is_ready(cascade.row())) == ("submitted", False)


def test_quiet_hours_drop_an_extra_copy_and_leave_the_message(now: dt.datetime) -> None:
    two_sms_routes(delivery_s=1)
    cascade = on_its_way(lane="promo", on_unknown="race")
    cascade.attempts(UNKNOWN)
    cascade.goes(1)
    cascade.resolves()
    quiet = Preferences(quiet_hours=(dt.time(13), dt.time(15, 30)))
    put_preferences(cascade.message.to, quiet, now=now, by="a test")
    assert cascade.claims() is None
    assert (cascade.row().status, is_ready(cascade.row())) == ("submitted", False)


def test_one_of_many_recipients_is_heeded_beside_the_others(now: dt.datetime) -> None:
    two_sms_routes()
    first = on_its_way(lane="promo")
    flow: Flow = first.message.flow
    other = QueuedFactory.create(flow=flow, lane="promo", number="+34600000077")
    note_stop(other.to, now=now)
    assert first.claims() is not None
    assert (first.row().status, Message.objects.get(pk=other.pk).status) == ("sending", "failed")
