"""Values of the manage API's bodies: ids, times of the day, names of servers, texts that people read."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from typing import Any

from django.core.validators import RegexValidator
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from otp_service.web.strict_fields import StrictCharField, StrictIntegerField, StrictSerializer
from servers.group_rules import LONGEST_NAME
from servers.recovery_rules import LONGEST_REASON
from servers.references import RegionUnit, ServerRef

MAX_INTEGER = 2**31 - 1  # of a column
MAX_REGION = 8  # characters

_UUID = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_CLOCK_TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?"
_SPACE = r"[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]"
_UNPRINTABLE = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
#: Any text with something to see in it. The expression goes into the OpenAPI document as it is.
_SOMETHING_TO_READ = RegexValidator(r"\A\s*[^\s\x00][^\x00]*\Z", "Write something to read.", "blank")


class StrictUUIDField(serializers.UUIDField):
    """A UUID as a JSON string with its hyphens, in either case."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error_messages["invalid"] = "Write a UUID with its hyphens."

    def to_internal_value(self, data: Any) -> uuid.UUID:
        if not (isinstance(data, str) and _UUID.fullmatch(data)):
            self.fail("invalid")
        return uuid.UUID(data)


@extend_schema_field(
    {
        "type": "string",
        "minLength": 1,
        "maxLength": LONGEST_NAME,
        "pattern": rf"^{_SPACE}*[^\s{_UNPRINTABLE}][^{_UNPRINTABLE}]*$",
    }
)
class GroupNameField(StrictCharField):
    """A group's name, on one line; what it may be is for the rules to say."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=LONGEST_NAME, **kwargs)


class ReasonField(StrictCharField):
    """Why a person decided so: it stands in the history."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=LONGEST_REASON, validators=[_SOMETHING_TO_READ], **kwargs)

    def run_validation(self, data: Any = serializers.empty) -> str:
        return str(super().run_validation(data)).strip()


@extend_schema_field({"type": "string", "pattern": f"^{_CLOCK_TIME}$", "example": "22:00:00"})
class ClockTimeField(serializers.Field[Any, Any, Any, Any]):
    """A time of the day, UTC."""

    default_error_messages = {"invalid": "Write a time of the day as HH:MM or HH:MM:SS, or null for the default."}

    def to_internal_value(self, data: Any) -> dt.time:
        if not (isinstance(data, str) and re.fullmatch(_CLOCK_TIME, data)):
            self.fail("invalid")
        return dt.time.fromisoformat(data)

    def to_representation(self, value: dt.time) -> str:
        return value.strftime("%H:%M:%S")


_REGION_SCHEMA = {"type": "string", "minLength": 1, "maxLength": MAX_REGION, "pattern": r"^[^\u0000]*$"}


@extend_schema_field(_REGION_SCHEMA)
class RegionField(StrictCharField):
    """The pool that a server is of."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=MAX_REGION, **kwargs)


class RegionUnitSerializer(StrictSerializer):
    """A server as people call it."""

    region = RegionField()
    unit = StrictIntegerField(min_value=0, max_value=MAX_INTEGER)


_REGION_UNIT = RegionUnitSerializer()

_SERVER_REF_SCHEMA = {
    "oneOf": [
        {"type": "string", "format": "uuid"},
        {
            "type": "object",
            "properties": {
                "region": _REGION_SCHEMA,
                "unit": {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER},
            },
            "required": ["region", "unit"],
            "additionalProperties": False,
        },
    ],
}


@extend_schema_field(_SERVER_REF_SCHEMA)
class ServerRefField(serializers.Field[Any, Any, Any, Any]):
    """A server's own UUID, or its region and unit."""

    default_error_messages = {
        "invalid": 'Name a server by its UUID, or as {{"region": "es", "unit": 228}}.',
        "null": 'Name a server by its UUID, or as {{"region": "es", "unit": 228}}.',
    }

    def to_internal_value(self, data: Any) -> ServerRef:
        if isinstance(data, dict):
            return RegionUnit(**_REGION_UNIT.run_validation(data))
        if not (isinstance(data, str) and _UUID.fullmatch(data)):
            self.fail("invalid")
        return uuid.UUID(data)
