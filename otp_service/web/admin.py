"""What every form of the admin that edits rows shares."""

from __future__ import annotations

from typing import Any

from django.forms import ModelForm
from django.http import HttpRequest
from unfold.admin import ModelAdmin


class WritesOnlyEdits(ModelAdmin):  # type: ignore[misc]  # unfold has no types
    """Saves what was edited: the rest of the row may have moved on since the form was shown."""

    def save_model(self, request: HttpRequest, obj: Any, form: ModelForm[Any], change: bool) -> None:
        obj.save(update_fields=form.changed_data if change else None)
