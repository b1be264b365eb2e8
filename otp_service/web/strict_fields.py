"""Serializer fields that take JSON types as they are: `"5"` is not 5, `true` is not 1, 12 is not "12".

No error repeats the value that it refuses: it may be a text or a number that nobody should read.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.fields import empty
from rest_framework.settings import api_settings

MAX_UNKNOWN_NAMED = 20  # a body full of unknown fields gets a bounded answer


class StrictCharField(serializers.CharField):
    """A JSON string, kept as it is: spaces are not trimmed."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **kwargs)
        self.error_messages["invalid"] = "Send a JSON string."

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class StrictIntegerField(serializers.IntegerField):
    """A JSON number without a fraction."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error_messages["invalid"] = "Send a whole JSON number."

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:
            self.fail("invalid")
        return int(data)


class StrictChoiceField(serializers.ChoiceField):
    """One of a few JSON strings."""

    def __init__(self, choices: Iterable[str], **kwargs: Any) -> None:
        names = [str(choice) for choice in choices]
        super().__init__(choices=names, **kwargs)
        self.error_messages["invalid_choice"] = f"One of {', '.join(names)} is allowed."

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or data not in self.choices:
            self.fail("invalid_choice")
        return data


class MomentField(serializers.DateTimeField):
    """An ISO 8601 time with its offset from UTC."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error_messages["invalid"] = (
            "Write the time as ISO 8601 with its offset, as in 2026-09-01T12:00:00Z; in an address + is written %2B."
        )

    def to_internal_value(self, data: Any) -> dt.datetime:
        if not isinstance(data, str):
            self.fail("invalid")
        try:
            moment = dt.datetime.fromisoformat(data)
            aware = moment.tzinfo is not None and "T" in data
            moment = moment.astimezone(dt.UTC)
        except (ValueError, OverflowError):
            self.fail("invalid")
        if not aware:
            self.fail("invalid")
        return moment


class StrictSerializer(serializers.Serializer[Any]):
    """A flat object whose every field is known."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.error_messages |= {"invalid": "Send a JSON object.", "null": "Send a JSON object."}

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise ValidationError({api_settings.NON_FIELD_ERRORS_KEY: [self.error_messages["invalid"]]})
        values: dict[str, Any] = {}
        errors = self._unknown(data)
        for name, field in self.fields.items():
            if name not in data and not field.required and field.default is empty:
                continue
            try:
                values[name] = self._checked(name, field.run_validation(data.get(name, empty)))
            except ValidationError as error:
                errors[name] = error.detail
        if errors:
            raise ValidationError(errors)
        return values

    def _unknown(self, data: Mapping[Any, Any]) -> dict[str, Any]:
        names = [name for name in data if name not in self.fields]
        if not names:
            return {}
        row = ErrorDetail(f"There is no such field; there are {', '.join(self.fields)}.", code="unknown_field")
        return {str(name)[:64]: [row] for name in names[:MAX_UNKNOWN_NAMED]}

    def _checked(self, name: str, value: Any) -> Any:
        check = getattr(self, f"validate_{name}", None)
        return check(value) if check else value
