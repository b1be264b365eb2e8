"""Which servers are in which groups: set, added to and removed from, all or nothing, without a word twice.

Locks are taken as everywhere: the groups that are named, by ascending id, then the servers, by ascending id. Links are
read after that. A server comes into a group only under that group's lock, so who deletes a group or sets its servers
and holds it sees all of them.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from otp_service.core.errors import ServiceError
from servers import history
from servers.models import Group, Server, ServerStatusHistory
from servers.references import (
    ItemFault,
    ItemsRefused,
    ServerRef,
    find_servers,
    refuse_too_many,
    unknown_servers,
)
from servers.rules import Event

_Link: Any = Server.groups.through  # Django makes it, so it has no type

#: From a server's id and the ids of its groups to those that it is to be in.
Target = Callable[[int, frozenset[int]], frozenset[int]]


class How(enum.StrEnum):
    """What becomes of the groups that a server is in."""

    SET = "set"  # those named, and no others
    ADD = "add"  # those named, too
    REMOVE = "remove"  # those named, no more


@dataclass(frozen=True, slots=True)
class Assignment:
    """A server and the groups that are said of it; in a sequence, so that a fault can tell which of them it means."""

    server: ServerRef
    groups: Sequence[UUID]


@dataclass(frozen=True, slots=True)
class Changed:
    """How many servers a call was about (those that a set takes out are among them), and how many it changed."""

    servers: int
    changed: int


class RowsGone(ServiceError):
    """Groups or servers were deleted since they were chosen; nothing was changed."""

    status = 409
    code = "gone"
    title = "Something that was chosen is gone"


def assign(items: Sequence[Assignment], how: How, *, now: datetime, by: str) -> Changed:
    """Carry out each item, or none. Raises ItemsRefused with a row for each bad one, TooManyItems."""
    refuse_too_many(items)
    with transaction.atomic():
        groups = {group.uuid: group.pk for group in _locked_groups(uuid__in={uuid for i in items for uuid in i.groups})}
        servers = find_servers(item.server for item in items)
        faults = [
            *unknown_servers({index: item.server for index, item in enumerate(items)}, servers),
            *unknown_groups(dict(enumerate(items)), groups),
            *_conflicts(items, servers),
        ]
        _refuse(faults)
        named = {servers[item.server]: frozenset(groups[uuid] for uuid in item.groups) for item in items}
        return _write(named, lambda server, held: _after(held, named[server], how), now=now, by=by)


def assign_servers(group_uuid: UUID, servers: Sequence[ServerRef], how: How, *, now: datetime, by: str) -> Changed:
    """The same for one group; set: its servers become exactly these. Raises Group.DoesNotExist too."""
    refuse_too_many(servers)
    with transaction.atomic():
        group = Group.objects.select_for_update(no_key=True).get(uuid=group_uuid)
        found = find_servers(servers)
        _refuse(unknown_servers(dict(enumerate(servers)), found))
        named, one = frozenset(found.values()), frozenset({group.pk})
        if how is not How.SET:
            return _write(named, lambda _, held: _after(held, one, how), now=now, by=by)
        members = _Link.objects.filter(group_id=group.pk).values_list("server_id", flat=True)
        return _write(
            named.union(members),
            lambda server, held: _after(held, one, How.ADD if server in named else How.REMOVE),
            now=now,
            by=by,
        )


def change_groups(
    server_ids: Collection[int], group_ids: Collection[int], how: How, *, now: datetime, by: str
) -> Changed:
    """The same groups for each of these servers, by row ids, however many. Raises RowsGone."""
    named = frozenset(group_ids)
    with transaction.atomic():
        if len(_locked_groups(pk__in=named)) < len(named):
            raise RowsGone("A group was deleted at this moment, and nothing was changed. Choose again.")
        return _write(server_ids, lambda _, held: _after(held, named, how), now=now, by=by)


def _after(held: frozenset[int], named: frozenset[int], how: How) -> frozenset[int]:
    match how:
        case How.SET:
            return named
        case How.ADD:
            return held | named
        case How.REMOVE:
            return held - named


# --- what is refused -----------------------------------------------------------------------------------


def _refuse(faults: Sequence[ItemFault]) -> None:
    if faults:
        raise ItemsRefused(faults)


def unknown_groups(items: Mapping[int, Assignment], found: Collection[UUID]) -> list[ItemFault]:
    """A fault for each group that is none of `found`, by its place in its item."""
    return [
        ItemFault(index, f"groups.{place}", "unknown_group", f"There is no group {group}.")
        for index, item in items.items()
        for place, group in enumerate(item.groups)
        if group not in found
    ]


def _conflicts(items: Iterable[Assignment], servers: Mapping[ServerRef, int]) -> Iterator[ItemFault]:
    """A server may be named twice, in two ways even, as long as the same is said of it."""
    first: dict[int, tuple[int, frozenset[UUID]]] = {}
    for index, item in enumerate(items):
        said = frozenset(item.groups)
        pk = servers.get(item.server)
        before, other = (index, said) if pk is None else first.setdefault(pk, (index, said))
        if said != other:
            detail = f"Item {before} names the same server with other groups: name it once."
            yield ItemFault(index, "server", "conflicting", detail)


# --- locks and rows ------------------------------------------------------------------------------------


def _locked_groups(**named: Collection[object]) -> list[Group]:
    return list(Group.objects.filter(**named).order_by("id").select_for_update(no_key=True))


def _write(server_ids: Collection[int], target: Target, *, now: datetime, by: str) -> Changed:
    """Bring each server's groups to its target; the caller holds the groups that are named. Six queries at most."""
    servers = set(server_ids)
    history.lock_servers(servers)
    links = _links_of(servers)
    changes = []
    for server in sorted(servers):
        held = frozenset(links[server])
        change = _Change(server, held, target(server, held))
        if change.old != change.new:
            changes.append(change)
    if changes:
        _write_links(changes, links)
        _write_history(changes, now=now, by=by)
    return Changed(servers=len(servers), changed=len(changes))


@dataclass(frozen=True, slots=True)
class _Change:
    """The ids of a server's groups, before and after."""

    server: int
    old: frozenset[int]
    new: frozenset[int]


def _links_of(servers: Collection[int]) -> Mapping[int, Mapping[int, int]]:
    """Of each server, the row that links it to each of its groups."""
    links: dict[int, dict[int, int]] = defaultdict(dict)
    for pk, server, group in _Link.objects.filter(server_id__in=servers).values_list("pk", "server_id", "group_id"):
        links[server][group] = pk
    return links


def _write_links(changes: Iterable[_Change], links: Mapping[int, Mapping[int, int]]) -> None:
    removed = [links[change.server][group] for change in changes for group in change.old - change.new]
    if removed:
        _Link.objects.filter(pk__in=removed).delete()
    _Link.objects.bulk_create(
        _Link(server_id=change.server, group_id=group) for change in changes for group in change.new - change.old
    )


def _write_history(changes: Iterable[_Change], *, now: datetime, by: str) -> None:
    ids = {group for change in changes for group in change.old | change.new}
    groups = {group.pk: group for group in Group.objects.filter(pk__in=ids)}
    ServerStatusHistory.objects.bulk_create(
        ServerStatusHistory(
            server_id=change.server,
            event=Event.GROUPS_CHANGED,
            at=now,
            note=f"{_names(change.old, groups)} → {_names(change.new, groups)}",
            data={"old": _uuids(change.old, groups), "new": _uuids(change.new, groups), "by": by},
        )
        for change in changes
    )


def _names(ids: Iterable[int], groups: Mapping[int, Group]) -> str:
    return ", ".join(sorted(groups[pk].name for pk in ids)) or "no group"


def _uuids(ids: Iterable[int], groups: Mapping[int, Group]) -> dict[str, list[str]]:
    return {"groups": sorted(str(groups[pk].uuid) for pk in ids)}
