"""A key that two people revoke at once is revoked once."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import transaction

from otp_service.events.models import Event
from otp_service.messages import api_keys
from tests.factories import ApiKeyFactory
from tests.racing import Racer

pytestmark = pytest.mark.django_db(transaction=True)


def test_two_revoke_a_key_at_once_and_one_of_them_did_it(now: dt.datetime) -> None:
    key = ApiKeyFactory.create()
    with transaction.atomic():
        first = api_keys.revoke(key.prefix, now=now, by="ada")
        revoking = Racer(lambda: api_keys.revoke(key.prefix, now=now + dt.timedelta(seconds=1), by="bob"))
        revoking.wait_until_blocked()
    assert (first, revoking.result()) == (True, False)
    key.refresh_from_db()
    assert key.revoked_at == now
    assert [event.data["by"] for event in Event.objects.filter(type="api_key.revoked")] == ["ada"]
