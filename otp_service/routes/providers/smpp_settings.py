"""What a route over SMPP is set up with. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

SETTINGS = (
    "host",
    "port",
    "system_id",
    "system_type",
    "tls",
    "binds",
    "window",
    "response_timeout_ms",
    "enquire_every_s",
)
CREDENTIALS = ("password",)

_LONGEST_RESPONSE_MS = 9_000  # a call must end within its lease, which is longer than 10 s


@dataclass(frozen=True, slots=True)
class SmppSettings:
    """How an SMSC is reached, and how much it is given at once."""

    host: str
    port: int
    system_id: str
    password: str = field(repr=False)
    system_type: str = ""
    tls: bool = False
    binds: int = 1  # connections at once
    window: int = 10  # requests without a response, of one bind
    response_timeout: timedelta = timedelta(seconds=8)
    enquire_every: timedelta = timedelta(seconds=30)


def read_settings(settings: Mapping[str, Any], credentials: Mapping[str, str]) -> SmppSettings:
    """Read a route's settings. Raises ValueError: a sentence that names the setting, without any secret."""
    if settings.keys() - set(SETTINGS):
        raise ValueError(f"The settings of an SMPP route are {', '.join(SETTINGS)}.")
    if credentials.keys() - set(CREDENTIALS):
        raise ValueError("The only credential of an SMPP route is password.")
    return SmppSettings(
        host=_word(settings, "host", 255),
        port=_whole(settings, "port", 1, 65_535, 2775),
        system_id=_word(settings, "system_id", 15),
        password=_word(credentials, "password", 64),
        system_type=_word(settings, "system_type", 12, default=""),
        tls=_yes(settings, "tls"),
        binds=_whole(settings, "binds", 1, 16, 1),
        window=_whole(settings, "window", 1, 1_000, 10),
        response_timeout=timedelta(
            milliseconds=_whole(settings, "response_timeout_ms", 100, _LONGEST_RESPONSE_MS, 8_000)
        ),
        enquire_every=timedelta(seconds=_whole(settings, "enquire_every_s", 1, 600, 30)),
    )


def _word(values: Mapping[str, Any], name: str, longest: int, *, default: str | None = None) -> str:
    value = values.get(name, default)
    if value == default == "":
        return ""
    if (
        not isinstance(value, str)
        or not value
        or len(value) > longest
        or not value.isascii()
        or not value.isprintable()
    ):
        raise ValueError(f"{name} must be 1 to {longest} ASCII characters.")
    return value


def _whole(values: Mapping[str, Any], name: str, least: int, most: int, default: int) -> int:
    value = values.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}.")
    return value


def _yes(values: Mapping[str, Any], name: str) -> bool:
    value = values.get(name, False)
    if value is not True and value is not False:
        raise ValueError(f"{name} must be true or false.")
    return value
