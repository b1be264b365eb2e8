"""A server is moved to another host or unit only when nothing of it is in flight."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from servers.moving import may_move
from tests.factories import ServerFactory

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        pytest.param({"status": "active", "last_sent_at": None}, True, id="never used"),
        pytest.param({"status": "active", "last_sent_at": dt.timedelta(hours=2)}, False, id="in rotation"),
        pytest.param({"status": "disabled", "last_sent_at": dt.timedelta(minutes=60)}, False, id="just taken out"),
        pytest.param({"status": "disabled", "last_sent_at": dt.timedelta(minutes=61)}, True, id="nothing in flight"),
    ],
)
def test_a_server_is_moved_only_when_nothing_of_it_is_in_flight(
    now: dt.datetime, fields: dict[str, Any], may: bool
) -> None:
    values = {name: now - value if isinstance(value, dt.timedelta) else value for name, value in fields.items()}
    assert may_move(ServerFactory.create(**values), now=now) is may
