"""The database refuses rows of recipients that cannot be."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from otp_service.messages.recipient_models import InvalidReport, Recipient
from tests.factories import NOON

pytestmark = pytest.mark.django_db

HASH = bytes(32)
NIGHT = {"quiet_from": dt.time(22), "quiet_to": dt.time(8), "time_zone": "Europe/Madrid"}


def refused(model: Any, **columns: Any) -> str:
    """The constraint that refuses the row."""
    with pytest.raises(IntegrityError) as error, transaction.atomic():
        model.objects.create(**columns)
    return str(error.value)


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"recipient_hash": b"short"}, "recipient_hash_is_32_bytes"),
        ({"refused_channels": ["fax"]}, "recipient_channels_known"),
        ({**NIGHT, "quiet_to": None}, "recipient_quiet_hours_are_whole"),
        ({**NIGHT, "time_zone": ""}, "recipient_quiet_hours_are_whole"),
        ({"time_zone": "Europe/Madrid"}, "recipient_quiet_hours_are_whole"),
        ({**NIGHT, "quiet_to": dt.time(22)}, "recipient_quiet_hours_end"),
    ],
)
def test_recipient(columns: dict[str, Any], constraint: str) -> None:
    whole = {"recipient_hash": HASH, "refused_channels": ["sms"], "changed_at": NOON, **NIGHT}
    Recipient.objects.create(**whole).delete()
    none = {"quiet_from": None, "quiet_to": None, "time_zone": ""}
    assert constraint in refused(Recipient, **whole | none | columns)


def test_one_row_of_a_recipient() -> None:
    Recipient.objects.create(recipient_hash=HASH, changed_at=NOON)
    assert "recipient_hash" in refused(Recipient, recipient_hash=HASH, changed_at=NOON)


def test_report() -> None:
    InvalidReport.objects.create(recipient_hash=HASH, route="sms:a", at=NOON)
    assert "invalid_report_once" in refused(InvalidReport, recipient_hash=HASH, route="sms:a", at=NOON)
    assert "hash_is_32_bytes" in refused(InvalidReport, recipient_hash=b"short", route="sms:a", at=NOON)
