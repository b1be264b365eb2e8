"""How callers name servers, and what is said of names that mean nothing: a row for each bad item of a list."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass

from django.db.models import Q

from otp_service.core.errors import ServiceError
from servers.models import Server

#: Items in one call. What is larger is sent in pages, by the calls that add and remove.
MAX_ITEMS = 500
#: Faults that an answer names; the rest is counted.
MOST_NAMED = 1_000


@dataclass(frozen=True, slots=True)
class RegionUnit:
    """A server as people call it."""

    region: str
    unit: int

    def __str__(self) -> str:
        return f"{self.region} {self.unit}"


#: A server's own id, or its region and unit.
ServerRef = uuid.UUID | RegionUnit


@dataclass(frozen=True, slots=True)
class ItemFault:
    """What is wrong with one item of a list. `index` counts from 0; `code` is stable, for programs."""

    index: int
    field: str
    code: str
    detail: str


class ItemsRefused(ServiceError):
    """Some items cannot be carried out, so none was: `errors` has a row for each."""

    status = 400
    code = "invalid_items"
    title = "Some items cannot be carried out"

    def __init__(self, faults: Sequence[ItemFault]) -> None:
        rows = sorted(faults, key=lambda fault: fault.index)
        named = f"the first {MOST_NAMED} of {len(rows)}" if len(rows) > MOST_NAMED else f"the {len(rows)}"
        super().__init__(
            f"Nothing was changed. Mend {named} that errors names, and send all of them again.",
            errors=[asdict(fault) for fault in rows[:MOST_NAMED]],
        )
        self.faults = tuple(rows)


class TooManyItems(ServiceError):
    """One call takes so many items and no more."""

    status = 400
    code = "too_many_items"
    title = "Too many items"


def refuse_too_many(items: Sized) -> None:
    """Raise TooManyItems for more than MAX_ITEMS."""
    if len(items) > MAX_ITEMS:
        raise TooManyItems(
            f"One call takes at most {MAX_ITEMS} items, and this one has {len(items)}. Nothing was changed: send them"
            " in pages; larger groups by the calls that end in add/ and remove/.",
            limit=MAX_ITEMS,
        )


def find_servers(refs: Iterable[ServerRef]) -> dict[ServerRef, int]:
    """The row id of each server that there is, deleted ones too; unknown names are missing. One query."""
    wanted = set(refs)
    uuids = [ref for ref in wanted if isinstance(ref, uuid.UUID)]
    units = [ref for ref in wanted if isinstance(ref, RegionUnit)]
    named = Q(uuid__in=uuids) | Q(
        region__in={ref.region for ref in units},
        unit__in={ref.unit for ref in units},
    )
    found: dict[ServerRef, int] = {}
    for pk, server_uuid, region, unit in Server.objects.filter(named).values_list("pk", "uuid", "region", "unit"):
        found |= {ref: pk for ref in (server_uuid, RegionUnit(region, unit)) if ref in wanted}
    return found


def unknown_servers(named: Mapping[int, ServerRef], found: Mapping[ServerRef, int]) -> list[ItemFault]:
    """A fault for each item whose server `find_servers` did not find."""
    return [
        ItemFault(index, "server", "unknown_server", f"There is no server {ref}.")
        for index, ref in named.items()
        if ref not in found
    ]
