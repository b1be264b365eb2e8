"""System checks: figures that would start, and then do the wrong thing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.checks import Warning as CheckWarning

from servers.hosts import SEEN_EVERY
from servers.rules import LADDERS, ladder_faults, ladder_of


@register
def check_ladders(app_configs: Sequence[AppConfig] | None = None, **_kwargs: Any) -> list[CheckMessage]:
    """Every ladder can be climbed, and the one in force exists."""
    faulty = [
        Error(
            f"The ladder {name!r} cannot be used: {fault}.",
            hint="Mend its steps in servers.rules.LADDERS: (from, to) in whole minutes.",
            id="servers.E001",
        )
        for name, ladder in LADDERS.items()
        for fault in ladder_faults(ladder)
    ]
    return [*faulty, *_faults_of_the_ladder_in_force()]


def _faults_of_the_ladder_in_force() -> list[CheckMessage]:
    hint = f"Set it to one of {', '.join(sorted(LADDERS))}, or to steps in whole minutes, as in 60-120, 720-840."
    name = settings.COOLDOWN_LADDER
    try:
        faults = [] if name in LADDERS else ladder_faults(ladder_of(name))
    except ValueError:
        faults = ["there is no such ladder"]
    return [Error(f"COOLDOWN_LADDER is {name!r}: {fault}.", hint=hint, id="servers.E002") for fault in faults]


@register
def check_storm_shares(app_configs: Sequence[AppConfig] | None = None, **_kwargs: Any) -> list[CheckMessage]:
    """A storm must not end before it begins."""
    if settings.STORM_OFF_SHARE < settings.STORM_ON_SHARE:
        return []
    return [
        Error(
            f"STORM_OFF_SHARE is {settings.STORM_OFF_SHARE:g}, not under STORM_ON_SHARE, {settings.STORM_ON_SHARE:g}.",
            hint="The brake is let go below STORM_OFF_SHARE, and put on from STORM_ON_SHARE on.",
            id="servers.E004",
        )
    ]


@register
def check_host_offline_after(app_configs: Sequence[AppConfig] | None = None, **_kwargs: Any) -> list[CheckMessage]:
    """A host that is alive must not look offline between two marks."""
    if settings.HOST_OFFLINE_AFTER > 2 * SEEN_EVERY:
        return []
    return [
        Error(
            f"HOST_OFFLINE_AFTER_S is {settings.HOST_OFFLINE_AFTER.total_seconds():g}: hosts that are alive would"
            " look offline.",
            hint=f"Set it over {(2 * SEEN_EVERY).total_seconds():g}: a host is marked as seen every"
            f" {SEEN_EVERY.total_seconds():g} s at most.",
            id="servers.E003",
        )
    ]


@register
def check_manage_key(app_configs: Sequence[AppConfig] | None = None, **_kwargs: Any) -> list[CheckMessage]:
    """Somebody who means to use the manage API learns why it is off."""
    if settings.MANAGE_SERVERS_API_AUTH_KEY:
        return []
    return [
        CheckWarning(
            "MANAGE_SERVERS_API_AUTH_KEY is not set: the manage API answers 503 to everybody.",
            hint="Set it to 20 to 200 random characters: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
            id="servers.W001",
        )
    ]
