"""Reads typed fields out of JSON that a relay host sent: bounded, strict, and never echoing a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from otp_service.core.errors import ServiceError

GUID_LIMIT = 200  # characters
INT_MIN, INT_MAX = -(2**31), 2**31 - 1  # what an integer column holds

#: Times outside are a broken clock or a unit mix-up (seconds for milliseconds), not an event.
EARLIEST = datetime(2020, 1, 1, tzinfo=UTC)
LATEST = datetime(2100, 1, 1, tzinfo=UTC)

_INSTANT_LIMIT = 40  # characters of an ISO 8601 time
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
#: PostgreSQL stores no NUL, and half of a surrogate pair is no character.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class RelayShapeError(ServiceError):
    """What a host sent is not of the protocol's shape. `index` is None when it is not about one event."""

    code = "invalid_relay_event"
    title = "The body is not a relay event or a list of them"

    def __init__(self, index: int | None, field: str, detail: str) -> None:
        super().__init__(detail, index=index, field=field)
        self.index = index
        self.field = field


def is_storable(text: str) -> bool:
    """Whether the database can hold the text."""
    return _UNSTORABLE.search(text) is None


@dataclass(frozen=True, slots=True, repr=False)
class Fields:
    """The members of one JSON object of event number `index`; `path` leads faults in inner objects."""

    index: int
    values: Mapping[str, object]
    path: str = ""

    def __repr__(self) -> str:
        return f"<Fields {self.index} {self.path}>"

    def fault(self, name: str, detail: str) -> RelayShapeError:
        """The error that says what is wrong with the field `name`."""
        return RelayShapeError(self.index, self.path + name, detail)

    def inner(self, name: str, *, required: bool) -> Fields:
        """The object in `name`; nothing counts as an empty one unless it is required."""
        value = self.values.get(name)
        if value is None and not required:
            value = {}
        if not isinstance(value, dict):
            raise self.fault(name, "must be an object")
        return Fields(self.index, value, f"{self.path}{name}.")

    def text(self, name: str, *, limit: int, required: bool = False) -> str:
        """A text of up to `limit` characters; absent or null is "" unless it is required."""
        value = self.values.get(name)
        if value is None and not required:
            return ""
        if not isinstance(value, str):
            raise self.fault(name, "must be a string")
        if len(value) > limit:
            raise self.fault(name, f"must have at most {limit} characters")
        if required and not value:
            raise self.fault(name, "must not be empty")
        if not is_storable(value):
            raise self.fault(name, "must not hold NUL or half of a surrogate pair")
        return value

    def integer(self, name: str, *, low: int = INT_MIN, high: int = INT_MAX) -> int | None:
        """A whole number between the bounds, None if absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fault(name, "must be a whole number")
        if not low <= value <= high:
            raise self.fault(name, f"must be between {low} and {high}")
        return value

    def boolean(self, name: str) -> bool:
        """A required true or false."""
        value = self.values.get(name)
        if not isinstance(value, bool):
            raise self.fault(name, "must be true or false")
        return value

    def uuid(self, name: str) -> UUID:
        """A required UUID in its usual form."""
        value = self.values.get(name)
        # UUID() alone also reads braces, underscores and the digits of other scripts.
        if not isinstance(value, str) or not _UUID.fullmatch(value):
            raise self.fault(name, "must be a UUID")
        return UUID(value)

    def optional_uuid(self, name: str) -> UUID | None:
        """A UUID, None if absent or null."""
        return None if self.values.get(name) is None else self.uuid(name)

    def instant(self, name: str) -> datetime:
        """A required ISO 8601 time with an offset, in UTC."""
        value = self.values.get(name)
        if not isinstance(value, str) or len(value) > _INSTANT_LIMIT:
            raise self.fault(name, "must be an ISO 8601 time")
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise self.fault(name, "must be an ISO 8601 time") from None
        if moment.tzinfo is None:
            raise self.fault(name, "must say its offset from UTC")
        if not EARLIEST <= moment < LATEST:
            raise self.fault(name, f"must be between {EARLIEST.year} and {LATEST.year}")
        return moment.astimezone(UTC)
