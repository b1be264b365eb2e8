"""Whatever an event's data holds comes back as it was told, from however many are written at once."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest

from otp_service.events import log
from otp_service.events.models import Event

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "data",
    [
        {"reference": 'a "quoted" \\ line\nand \u2603 %s %(at)s', "none": None},
        {"nested": {"list": [1, 2.5, True, "x"]}, "": ""},
    ],
    ids=["signs", "nested"],
)
def test_data_comes_back(now: dt.datetime, data: dict[str, Any]) -> None:
    log.record("server.need_check", at=now, subject_uuid=uuid.uuid4(), data=data)
    assert Event.objects.get().data == data


def test_times_keep_their_microseconds_whatever_their_zone(now: dt.datetime) -> None:
    moments = [
        now + dt.timedelta(microseconds=1),
        (now + dt.timedelta(days=1)).astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30))),
    ]
    log.record_many([log.NewEvent("message.sent", at, uuid.uuid4(), client_id=7) for at in moments])
    assert list(Event.objects.order_by("id").values_list("at", flat=True)) == moments
