"""What recipients want, and which numbers routes called invalid, for operators. Numbers are not kept, but find it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from otp_service.core.phone_numbers import PhoneNumberError, parse
from otp_service.messages.recipient_models import InvalidReport, Recipient
from otp_service.web.admin import ReadOnly
from otp_service.web.fields import recipient_hashes


class FoundByNumber(ReadOnly):
    """Rows of recipients. What is searched for is hashed; nothing else finds them."""

    search_fields = ("pk",)  # shows the search box; get_search_results decides
    search_help_text = "A whole number, as in +34600000000"
    ordering = ("-id",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By equality of the hash."""
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            return queryset.filter(recipient_hash__in=recipient_hashes(parse(term))), False
        except PhoneNumberError:
            return queryset.none(), False


@admin.register(Recipient)
class RecipientAdmin(FoundByNumber):
    """Written by the client API and by what recipients answer."""

    list_display = ("__str__", "refused", "quiet_hours", "time_zone", "stopped_at", "changed_at")
    fields = ("refused", "quiet_hours", "time_zone", "stopped_at", "changed_at")
    readonly_fields = ("refused", "quiet_hours")

    @admin.display(description="refused channels")
    def refused(self, recipient: Recipient) -> str:
        """By name."""
        return ", ".join(recipient.refused_channels)

    @admin.display(description="quiet hours")
    def quiet_hours(self, recipient: Recipient) -> str:
        """In the time zone beside it."""
        if recipient.quiet_from is None or recipient.quiet_to is None:
            return ""
        return f"from {recipient.quiet_from:%H:%M} to {recipient.quiet_to:%H:%M}"


@admin.register(InvalidReport)
class InvalidReportAdmin(FoundByNumber):
    """Written when an attempt fails because its number cannot be; removed by the next delivery, or when it is old."""

    list_display = ("__str__", "route", "at")
    fields = ("route", "at")
