"""A relay host that posts to us at noon."""

from __future__ import annotations

import datetime as dt

import pytest
from django.test import Client

from tests.webhooks.relay_poster import RelayPoster
from webhooks.inbound import api


@pytest.fixture
def at_noon(now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """What hosts post arrives at noon."""
    monkeypatch.setattr(api, "utc_now", lambda: now)


@pytest.fixture
def poster(db: None, at_noon: None, client: Client) -> RelayPoster:
    return RelayPoster.of_new_host(client)
