"""A client, at noon."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.factories import ClientFactory
from tests.messages.client_api import ClientApi

EDGES = (
    "otp_service.messages.api",
    "otp_service.messages.authentication",
    "otp_service.messages.management.commands.create_api_key",
    "otp_service.messages.management.commands.create_client",
    "otp_service.messages.management.commands.revoke_api_key",
)


def stop_the_clock(monkeypatch: pytest.MonkeyPatch, at: dt.datetime) -> None:
    """The edges of messages read `at`; those of other apps, which a test may import first of all, go on."""
    for edge in EDGES:
        monkeypatch.setattr(f"{edge}.utc_now", lambda: at)


@pytest.fixture(autouse=True)
def at_noon(now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noon."""
    stop_the_clock(monkeypatch, now)


@pytest.fixture
def api(db: None, now: dt.datetime) -> ClientApi:
    return ClientApi(ClientFactory.create(), now=now)
