"""Forms of the admin: what people type, checked before a service is asked to carry it out."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from django import forms
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminRadioSelectWidget,
    UnfoldAdminTextareaWidget,
)

from otp_service.core.errors import ServiceError
from servers.creation import CreationRefused, plain_address
from servers.memberships import How
from servers.models import Group

LONGEST_REASON = 500  # characters
#: Servers of one verdict, in the form's one field: Django refuses a form of over 1,000 fields.
MOST_SERVERS = 10_000
_IDS = re.compile(r"[0-9]{1,18}(,[0-9]{1,18})*")  # of 18 digits at most: PostgreSQL's bigint holds them

#: The field that a refusal is about, where its code says so.
_FIELDS = {"priority_taken": "priority", "name_taken": "name"}


class Refusable(forms.ModelForm):  # type: ignore[type-arg]  # generic in the stubs only
    """A form on which a service's refusal stands. The admin gives it its model and fields."""

    refusal: ClassVar[Exception | None] = None

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        self.show_refusal()
        return cleaned

    def show_refusal(self) -> None:
        """The refusal's sentences, each at its field."""
        if self.refusal is None:
            return
        if not isinstance(self.refusal, ServiceError):
            self.add_error(None, "Somebody was faster, and changed this or what it refers to: look at it again.")
            return
        faults = self.refusal.data.get("errors") or [
            {"field": _FIELDS.get(self.refusal.code), "detail": self.refusal.detail}
        ]
        for fault in faults:
            self.add_error(fault["field"] if fault["field"] in self.fields else None, fault["detail"])


class GroupForm(Refusable):
    """A group's parameters. The service that saves them says what is wrong, and which group has a priority."""

    def clean(self) -> dict[str, Any] | None:
        # Without the parent's: it has the model look for taken names and at constraints, in words of the database.
        self.show_refusal()
        return self.cleaned_data


class HostForm(Refusable):
    """Where a host listens, and whether it is used. Its secret is no field."""

    def clean_base_url(self) -> str:
        try:
            return plain_address(self.cleaned_data["base_url"])
        except CreationRefused as refusal:
            raise forms.ValidationError(refusal.detail) from None


class ChosenForm(forms.Form):
    """Something that is done to many servers: their ids stand in one field."""

    ids = forms.CharField(widget=forms.HiddenInput, max_length=19 * MOST_SERVERS)

    def clean_ids(self) -> list[int]:
        """Each id once, in order."""
        text: str = self.cleaned_data["ids"]
        if not _IDS.fullmatch(text):
            raise forms.ValidationError("The list of servers cannot be read: choose them on the list again.")
        ids = sorted({int(part) for part in text.split(",")})
        if len(ids) > MOST_SERVERS:
            raise forms.ValidationError(f"Choose at most {MOST_SERVERS} servers at a time.")
        return ids


class VerdictForm(ChosenForm):
    """Why a person decides so."""

    reason = forms.CharField(
        max_length=LONGEST_REASON,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text=f"Kept in the servers' history. At most {LONGEST_REASON} characters.",
    )


class MembershipForm(ChosenForm):
    """Groups for many servers."""

    how = forms.ChoiceField(
        choices=[
            (How.ADD.value, "Add them to these groups"),
            (How.REMOVE.value, "Remove them from these groups"),
            (How.SET.value, "Put them into exactly these groups (none chosen: into no group)"),
        ],
        initial=How.ADD.value,
        widget=UnfoldAdminRadioSelectWidget,
        label="What to do",
    )
    groups = forms.ModelMultipleChoiceField(
        Group.objects.order_by("-priority"), required=False, widget=UnfoldAdminCheckboxSelectMultipleWidget
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("how") in {How.ADD.value, How.REMOVE.value} and "groups" in cleaned and not cleaned["groups"]:
            self.add_error("groups", "Choose at least one group.")
        return cleaned
