"""The settings of an SMPP route are read, or refused by name."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from otp_service.routes.providers.smpp import CREDENTIALS, SETTINGS, SmppSettings, read_settings

LEAST: dict[str, Any] = {"host": "smsc.example", "system_id": "acme"}
PASSWORD = {"password": "opensesame"}


def test_three_words_are_enough() -> None:
    assert read_settings(LEAST, PASSWORD) == SmppSettings("smsc.example", 2775, "acme", "opensesame")


def test_everything_may_be_said() -> None:
    said = {
        **LEAST,
        "port": 3550,
        "system_type": "OTP",
        "tls": True,
        "binds": 2,
        "window": 50,
        "response_timeout_ms": 9_000,
        "enquire_every_s": 60,
    }
    assert sorted(said) == sorted(SETTINGS)
    assert list(CREDENTIALS) == list(PASSWORD)
    assert read_settings(said, PASSWORD) == SmppSettings(
        "smsc.example",
        3550,
        "acme",
        "opensesame",
        system_type="OTP",
        tls=True,
        binds=2,
        window=50,
        response_timeout=dt.timedelta(seconds=9),
        enquire_every=dt.timedelta(seconds=60),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("host", ""),
        ("host", None),
        ("host", "h" * 256),
        ("port", 0),
        ("port", 65_536),
        ("port", "2775"),
        ("port", True),
        ("system_id", "s" * 16),
        ("system_id", "a\0b"),
        ("system_type", "ñ"),
        ("tls", "yes"),
        ("tls", 1),
        ("binds", 0),
        ("binds", 17),
        ("window", 0),
        ("window", 1_001),
        ("response_timeout_ms", 99),
        ("response_timeout_ms", 9_001),
        ("enquire_every_s", 0),
        ("enquire_every_s", 601),
    ],
)
def test_nonsense_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        read_settings({**LEAST, name: value}, PASSWORD)


@pytest.mark.parametrize("name", ["host", "system_id"])
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        read_settings({key: value for key, value in LEAST.items() if key != name}, PASSWORD)


def test_other_settings_and_credentials_are_refused() -> None:
    with pytest.raises(ValueError, match="The settings of an SMPP route are host, "):
        read_settings({**LEAST, "hots": "x"}, PASSWORD)
    with pytest.raises(ValueError, match="only credential of an SMPP route is password"):
        read_settings(LEAST, {**PASSWORD, "token": "x"})


@pytest.mark.parametrize("password", ["", "p" * 65, "geheimñ"])
def test_a_bad_password_is_named_and_not_shown(password: str) -> None:
    with pytest.raises(ValueError, match=r"^password must be 1 to 64 ASCII characters\.$"):
        read_settings(LEAST, {"password": password})


def test_its_repr_shows_no_password() -> None:
    assert "opensesame" not in repr(read_settings(LEAST, PASSWORD))
