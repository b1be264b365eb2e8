"""The database itself refuses servers and links that cannot be, whoever writes them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import IntegrityError

from servers.models import Group, RecipientLink, Server
from tests.factories import GroupFactory, RecipientLinkFactory, ServerFactory

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("before", "impossible"),
    [
        pytest.param(False, {"preheating": True}, id="in preheat, and never started"),
        pytest.param(True, {"preheating": False}, id="out of preheat, and still started"),
        pytest.param(True, {"preheat_started_at": None}, id="in preheat, and its start forgotten"),
    ],
)
def test_preheating_and_its_start_come_and_go_together(
    now: dt.datetime, before: bool, impossible: dict[str, Any]
) -> None:
    server = ServerFactory.create()
    rows = Server.objects.filter(pk=server.pk)
    for preheating in (not before, before):
        assert rows.update(preheating=preheating, preheat_started_at=now if preheating else None) == 1
    with pytest.raises(IntegrityError, match='"server_preheating_iff_started"'):
        rows.update(**impossible)


def test_recipient_is_known_by_32_bytes() -> None:
    link = RecipientLinkFactory.create()
    rows = RecipientLink.objects.filter(server=link.server)
    assert rows.update(recipient_hash=b"r" * 32) == 1
    with pytest.raises(IntegrityError, match='"link_hash_is_32_bytes"'):
        rows.update(recipient_hash=b"r" * 33)


@pytest.mark.parametrize(
    "column",
    ["cooldown_delay_from", "cooldown_delay_to", "send_from_message_interval", "send_to_message_interval"],
)
def test_no_group_makes_a_server_wait_longer_than_a_week(column: str) -> None:
    rows = Group.objects.filter(pk=GroupFactory.create().pk)
    assert rows.update(**{column: 10_080}) == 1
    with pytest.raises(IntegrityError, match='"group_minutes_within_a_week"'):
        rows.update(**{column: 10_081})
