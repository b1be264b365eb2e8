"""One change of a server, one row of its history: written together, with old and new values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
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
    row, changed = told(server, event, new, at=at, note=note, data=data)
    server.save(update_fields=changed)
    row.save(force_insert=True)


@dataclass(frozen=True, slots=True)
class ServerChange:
    """What `change` is given, as a value."""

    server: Server
    event: Event
    new: Mapping[str, Any]
    note: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


def change_many(changes: Sequence[ServerChange], *, at: datetime) -> None:
    """As `change` for each, in three statements at most. All name the same columns, whose rows the caller holds."""
    if not changes:
        return
    servers = [change.server for change in changes]
    rows = [told(c.server, c.event, c.new, at=at, note=c.note, data=c.data)[0] for c in changes]
    first = changes[0].new
    equal = {name: value for name, value in first.items() if all(c.new[name] == value for c in changes)}
    Server.objects.filter(pk__in=[server.pk for server in servers]).update(**equal)
    if different := [name for name in first if name not in equal]:
        Server.objects.bulk_update(servers, different)
    ServerStatusHistory.objects.bulk_create(rows)


def told(
    server: Server,
    event: Event,
    new: Mapping[str, Any],
    *,
    at: datetime,
    note: str = "",
    data: Mapping[str, Any] | None = None,
) -> tuple[ServerStatusHistory, list[str]]:
    """The row that `change` writes, and the columns that it changes: for those who write many in one statement."""
    changed = {name: value for name, value in new.items() if getattr(server, name) != value}
    figures = old_and_new({name: getattr(server, name) for name in changed}, changed)
    for name, value in changed.items():
        setattr(server, name, value)
    row = ServerStatusHistory(server=server, event=event, at=at, note=note, data=figures | dict(data or {}))
    return row, list(changed)


def locked(server_id: int) -> Server:
    """A server whose row the caller holds until its transaction ends."""
    # NO KEY: a plain FOR UPDATE would hold up everybody who inserts a row that refers to this server.
    return Server.objects.select_for_update(no_key=True).get(pk=server_id)


def lock_servers(ids: Collection[int]) -> None:
    """Hold the rows of servers that the caller is about to change, in the order that everybody takes them in."""
    if ids:
        list(Server.objects.filter(id__in=ids).order_by("id").select_for_update(no_key=True).values_list("id"))


def old_and_new(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The two halves of a change, as JSON has them."""
    return {"old": _plain(old), "new": _plain(new)}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, (int, str, type(None))) else str(value)
