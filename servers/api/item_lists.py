"""Lists of servers, and of assignments, as callers send them: each item is looked at, and each bad one is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from otp_service.web.problems import field_errors
from otp_service.web.strict_fields import StrictSerializer
from servers.api.fields import ServerRefField, StrictUUIDField
from servers.memberships import Assignment, unknown_groups
from servers.models import Group
from servers.references import (
    MAX_ITEMS,
    ItemFault,
    ItemsRefused,
    ServerRef,
    find_servers,
    refuse_too_many,
    unknown_servers,
)

MAX_GROUPS = 100  # of one item

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ItemList(Generic[T]):
    """What a list holds: each item that can be read, by its index, and what is wrong with the others."""

    items: Mapping[int, T]
    faults: tuple[ItemFault, ...]


class ItemsField(serializers.ListField):
    """A list of up to MAX_ITEMS items; becomes an ItemList. A fault's field is a path within its item."""

    def __init__(self, *, named: str, least: int, **kwargs: Any) -> None:
        super().__init__(min_length=least, max_length=MAX_ITEMS, **kwargs)
        self.least = least
        self.named = named  # what a fault of an item as a whole is of
        self.error_messages |= {"not_a_list": "Send a JSON list.", "empty": "Send at least one."}

    def run_validation(self, data: Any = serializers.empty) -> ItemList[Any]:
        self.validate_empty_values(data)
        if not isinstance(data, list):
            self.fail("not_a_list")
        refuse_too_many(data)
        if len(data) < self.least:
            self.fail("empty")
        return self._each(data)

    def _each(self, data: list[Any]) -> ItemList[Any]:
        items: dict[int, Any] = {}
        faults: list[ItemFault] = []
        for index, item in enumerate(data):
            try:
                items[index] = self.child.run_validation(item)
            except ValidationError as error:
                faults += self._faults(index, error)
        return ItemList(items, tuple(faults))

    def _faults(self, index: int, error: ValidationError) -> list[ItemFault]:
        return [
            ItemFault(index, f"{self.named}.{row['field']}".strip("."), row["code"], row["detail"])
            for row in field_errors(error.detail)
        ]


class AssignmentSerializer(StrictSerializer):
    """A server, and groups: the server's UUID may stand under `uuid` too."""

    server = ServerRefField(required=False)
    uuid = StrictUUIDField(required=False)
    groups = serializers.ListField(child=StrictUUIDField(), max_length=MAX_GROUPS, help_text="their UUIDs")

    #: What the OpenAPI document says beyond the fields.
    schema_extra = {"oneOf": [{"required": ["server"]}, {"required": ["uuid"]}]}

    def validate(self, attrs: dict[str, Any]) -> Assignment:
        """Refuse two servers, or none."""
        if ("server" in attrs) == ("uuid" in attrs):
            raise ValidationError({"server": ErrorDetail("Give one of server and uuid.", "one_of_two")})
        return Assignment(attrs.get("server") or attrs["uuid"], attrs["groups"])


class AssignmentsSerializer(StrictSerializer):
    """Which groups each of several servers gets, or loses."""

    items = ItemsField(child=AssignmentSerializer(), least=1, named="")


class SomeServersSerializer(StrictSerializer):
    """Servers."""

    servers = ItemsField(child=ServerRefField(), least=1, named="server")


class AllServersSerializer(StrictSerializer):
    """All servers of a group: none is an answer too."""

    servers = ItemsField(child=ServerRefField(), least=0, named="server")


# --- what they name ---------------------------------------------------------------------------------------


def assignments(listed: ItemList[Assignment]) -> list[Assignment]:
    """All of them. Raises ItemsRefused if one cannot be read: then it names the unknown ones too."""
    if listed.faults:
        servers = {index: item.server for index, item in listed.items.items()}
        groups = Group.objects.filter(uuid__in={group for item in listed.items.values() for group in item.groups})
        unknown = [
            *unknown_servers(servers, find_servers(servers.values())),
            *unknown_groups(listed.items, set(groups.values_list("uuid", flat=True))),
        ]
        raise ItemsRefused([*listed.faults, *unknown])
    return list(listed.items.values())


def servers(listed: ItemList[ServerRef]) -> list[ServerRef]:
    """All of them. Raises ItemsRefused if one cannot be read: then it names the unknown ones too."""
    if listed.faults:
        row_ids(listed)
    return list(listed.items.values())


def row_ids(listed: ItemList[ServerRef]) -> dict[int, int]:
    """The row id of each item's server, by the item's index. Raises ItemsRefused."""
    found = find_servers(listed.items.values())
    faults = [*listed.faults, *unknown_servers(listed.items, found)]
    if faults:
        raise ItemsRefused(faults)
    return {index: found[ref] for index, ref in listed.items.items()}
