"""A client, at noon."""

from __future__ import annotations

import datetime as dt

import pytest

from otp_service.core import clock
from tests.factories import ClientFactory
from tests.messages.client_api import ClientApi


@pytest.fixture(autouse=True)
def at_noon(now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges read noon."""
    monkeypatch.setattr(clock, "utc_now", lambda: now)


@pytest.fixture
def api(db: None, now: dt.datetime) -> ClientApi:
    return ClientApi(ClientFactory.create(), now=now)
