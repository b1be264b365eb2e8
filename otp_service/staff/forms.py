"""What is typed in after the password."""

from __future__ import annotations

from typing import Any

from django import forms
from unfold.widgets import BASE_INPUT_CLASSES

_LONGEST = 40  # characters with spaces; the longest recovery code has 16


class _CodeField(forms.RegexField):
    """A code, without the spaces that people and apps write into it."""

    def __init__(self, pattern: str, message: str) -> None:
        attributes = {
            "class": " ".join(BASE_INPUT_CLASSES),
            "autocomplete": "one-time-code",
            "autofocus": "",
            "spellcheck": "false",
        }
        super().__init__(
            pattern,
            label="Code",
            max_length=_LONGEST,
            widget=forms.TextInput(attributes),
            error_messages={"invalid": message, "max_length": message, "required": message},
        )

    def to_python(self, value: Any) -> str:
        return "".join(str(super().to_python(value)).split()).lower()


class CodeForm(forms.Form):
    """An app's code, or a recovery code."""

    code = _CodeField(r"^[0-9a-z]{6,16}\Z", "Write the six digits that your app shows, or a recovery code.")


class NewDeviceForm(forms.Form):
    """The code of an app that has just been given its secret."""

    code = _CodeField(r"^[0-9]{6}\Z", "Write the six digits that your app shows.")
