"""What explains a message by what is stored beside it: its channels' routes, and its recipient."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from otp_service.messages import explanation, recipients
from otp_service.messages.models import Message
from otp_service.messages.rules import Reason
from otp_service.web.fields import recipient_hash
from tests.factories import MessageFactory, RouteFactory

pytestmark = pytest.mark.django_db

NUMBER = "+34600000000"


def last(message: Message, now: dt.datetime) -> str:
    return explanation.of(message, now=now)[-1]


def test_a_message_without_a_route_waits_for_one_until_there_is_one(now: dt.datetime) -> None:
    message = MessageFactory.create(channels=["sms"], created_at=now, expires_at=now + dt.timedelta(minutes=5))
    assert last(message, now).startswith(f"No enabled route of channel sms carries lane {message.lane} now: waits")
    RouteFactory.create(name="sms:one", kind="kannel")
    assert last(message, now) == "Queued: it goes out as soon as a route is free."


@pytest.mark.parametrize(
    ("stopped", "reports", "said"),
    [
        pytest.param(True, 0, "the recipient answered STOP", id="stopped"),
        pytest.param(True, 3, "the recipient answered STOP", id="both"),
        pytest.param(False, 3, "several routes called the number invalid", id="invalid"),
        pytest.param(False, 0, "the recipient wants no such messages, or the number", id="not known any more"),
    ],
)
def test_a_suppressed_message_names_its_reason(now: dt.datetime, stopped: bool, reports: int, said: str) -> None:
    if stopped:
        recipients.note_stop(NUMBER, now=now)
    recipients.note_invalid([(recipient_hash(NUMBER), f"sms:{number}") for number in range(reports)], now=now)
    ended: dict[str, Any] = {"status": "failed", "final_reason": Reason.SUPPRESSED.value, "finished_at": now}
    message = MessageFactory.create(to=NUMBER, to_hash=recipient_hash(NUMBER), lane="promo", **ended)
    assert f": {said}" in last(message, now)
