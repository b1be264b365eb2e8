"""The modules of outside providers by kind, and what they say of a route's settings.

Each has `SETTINGS` and `CREDENTIALS` (names, for people) and `read_settings(settings, credentials)`, which raises
ValueError: a sentence that names the setting and shows no credential.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, cast

from otp_service.routes.route_rules import RouteKind

_HERE = "otp_service.routes.providers"
_NAMED = re.compile(r"\{credentials\.([A-Za-z0-9_-]{1,40})\}")

#: By name: a process that speaks one protocol loads no library of another.
MODULES: Mapping[RouteKind, str] = {
    RouteKind.TWILIO: f"{_HERE}.twilio",
    RouteKind.KANNEL: f"{_HERE}.kannel",
    RouteKind.SMPP: f"{_HERE}.smpp",
    RouteKind.HTTP_JSON: f"{_HERE}.http_json",
}


class ProviderModule(Protocol):
    """What a module of an outside provider has."""

    SETTINGS: tuple[str, ...]
    CREDENTIALS: tuple[str, ...]

    def read_settings(self, settings: Mapping[str, Any], credentials: Mapping[str, str]) -> object:
        """The provider's own settings; raises ValueError."""


def is_outside(kind: RouteKind) -> bool:
    """Whether routes of this kind are accounts of a provider outside our own fleet."""
    return kind in MODULES


def is_available(kind: RouteKind) -> bool:
    """Whether routes of this kind can be spoken to by this installation."""
    return kind not in MODULES or find_spec(MODULES[kind]) is not None


def module_of(kind: RouteKind) -> ProviderModule | None:
    """Its module; None where it has none, or it is not there."""
    if not is_outside(kind) or not is_available(kind):
        return None
    return cast("ProviderModule", import_module(MODULES[kind]))


def credential_names(kind: RouteKind, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The credentials that a route may have: those of its kind, and those that its settings name.

    Settings name one in a template, as {credentials.api_key}.
    """
    module = module_of(kind)
    if module is None:
        return ()
    return tuple(dict.fromkeys([*module.CREDENTIALS, *_NAMED.findall(json.dumps(settings))]))


def names() -> str:
    """The settings and credentials of each kind, in a sentence a kind."""
    modules = ((kind, module) for kind in MODULES if (module := module_of(kind)) is not None)
    return " ".join(
        f"{kind}: {', '.join(module.SETTINGS)} (credentials: {', '.join(module.CREDENTIALS)})."
        for kind, module in modules
    )


def settings_fault(kind: RouteKind, settings: Mapping[str, Any]) -> str:
    """What is wrong with the settings alone, as if every credential were given."""
    return fault(kind, settings, dict.fromkeys(credential_names(kind, settings), "given"))


def fault(kind: RouteKind, settings: Mapping[str, Any], credentials: Mapping[str, str]) -> str:
    """What is wrong with an outside route's settings or credentials, a sentence; "" where nothing is."""
    module = module_of(kind)
    if module is None:
        return f"Routes of the kind {kind} are not available in this installation." if is_outside(kind) else ""
    try:
        module.read_settings(settings, credentials)
    except ValueError as error:
        return str(error)
    return ""
