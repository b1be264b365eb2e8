"""What people are asked in the admin before something is done."""

from __future__ import annotations

from django import forms
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminTextInputWidget,
)

from otp_service.messages.api_keys import Scope


class RevealForm(forms.Form):
    """Why somebody needs to see a message."""

    reason = forms.CharField(
        max_length=200,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="Kept for good with your name: write no number and no code into it.",
    )


class NewKeyForm(forms.Form):
    """What a new key may do, and for how long."""

    seen = forms.IntegerField(required=False, widget=forms.HiddenInput)  # the newest key when the page was made
    scopes = forms.MultipleChoiceField(
        choices=[(scope.value, scope.value) for scope in Scope],
        initial=[Scope.MESSAGES.value],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
    )
    days = forms.IntegerField(
        label="Valid for (days)",
        required=False,
        min_value=1,
        max_value=3_650,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="Nothing: until it is revoked.",
    )
