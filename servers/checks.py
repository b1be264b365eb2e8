"""System checks: figures that would start, and then do the wrong thing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from servers.hosts import SEEN_EVERY
from servers.rules import LADDERS, ladder_faults


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
    if settings.COOLDOWN_LADDER in LADDERS:
        return list(faulty)
    unknown = Error(
        f"COOLDOWN_LADDER is {settings.COOLDOWN_LADDER!r}, and there is no such ladder.",
        hint=f"Set it to one of: {', '.join(sorted(LADDERS))}.",
        id="servers.E002",
    )
    return [*faulty, unknown]


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
