"""One change of a server, one row of its history: written together, with old and new values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from servers.models import Server, ServerStatusHistory
from servers.rules import Event


def change(
    server: Server,
    event: Event,
    new: Mapping[str, Any],
    *,
    at: datetime,
    note: str = "",
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write columns of a server whose row the caller has locked, and the row that tells of it.

    `new` may name columns that stay as they are; `old` and `new` of the others stand first in the row's data.
    """
    changed = {name: value for name, value in new.items() if getattr(server, name) != value}
    figures = old_and_new({name: getattr(server, name) for name in changed}, changed)
    for name, value in changed.items():
        setattr(server, name, value)
    server.save(update_fields=list(changed))
    ServerStatusHistory.objects.create(server=server, event=event, at=at, note=note, data=figures | dict(data or {}))


def old_and_new(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The two halves of a change, as JSON has them."""
    return {"old": _plain(old), "new": _plain(new)}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, (int, str, type(None))) else str(value)
