"""How callers name servers, and what is said of names that mean nothing: a row for each bad item of a list."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from django.db.models import Q

from otp_service.core.errors import ServiceError
from servers.models import Server

#: Items in one call. What is larger is sent in pages, by the calls that add and remove.
MAX_ITEMS = 500


@dataclass(frozen=True, slots=True)
class RegionUnit:
    """A server as people call it."""

    region: str
    unit: int


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
        super().__init__(
            f"Nothing was changed. Mend the {len(rows)} that errors names, and send all of them again.",
            errors=[asdict(fault) for fault in rows],
        )
        self.faults = tuple(rows)


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
