"""The log of events, for people: read-only."""

from __future__ import annotations

import json
import uuid
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from otp_service.core.phone_numbers import mask_within
from otp_service.events.models import Event
from otp_service.web.admin import ReadOnly

#: A filter offers the types that are among so many of the newest events: to look at all of them takes minutes.
_NEWEST = 1_000
#: Of a type that clients are told of, those among so many of the newest events are found; older ones by their message.
_NEWEST_OF_CLIENTS = 100_000


def of_type(events: QuerySet[Event], name: str) -> QuerySet[Event]:
    """Events of one type: all that belong to no client, or else, where there is none, the newest ones of clients.

    The first are what auditors look for, however rare and old; `event_by_type` finds them. The second have no index.
    """
    of_fleet = Event.objects.filter(type=name, client_id__isnull=True)
    if of_fleet.exists():
        return events.filter(type=name, client_id__isnull=True)
    newest = Event.objects.order_by("-id").values_list("id", flat=True).first() or 0
    return events.filter(type=name, id__gt=newest - _NEWEST_OF_CLIENTS)


class TypeFilter(admin.SimpleListFilter):
    """By type. One that has not come up lately is searched for by its name."""

    title = "type"
    parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        newest = Event.objects.order_by("-id").values_list("type", flat=True)[:_NEWEST]
        return [(name, name) for name in sorted({*newest, *filter(None, [self.value()])})]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Event]) -> QuerySet[Event]:
        name = self.value()
        return of_type(queryset, name) if name else queryset


@admin.register(Event)
class EventAdmin(ReadOnly):
    """What changed, the newest first."""

    list_display = ("at", "type", "subject_uuid", "client_id", "by")
    list_filter = (TypeFilter,)
    sortable_by = ()
    search_fields = ("subject_uuid", "uuid", "type")  # shows the search box; get_search_results decides
    search_help_text = (
        "A whole uuid, of an event or of what it is about, or a whole type "
        f"(of events of messages: among the newest {_NEWEST_OF_CLIENTS:,})"
    )
    ordering = ("-id",)
    fields = ("uuid", "type", "at", "subject_uuid", "client_id", "by", "details", "fanned_out_at")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Event], search_term: str
    ) -> tuple[QuerySet[Event], bool]:
        """By equality."""
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            sought = uuid.UUID(term)
        except ValueError:
            return of_type(queryset, term), False
        return queryset.filter(Q(subject_uuid=sought) | Q(uuid=sought)), False

    @admin.display(description="by")
    def by(self, event: Event) -> str:
        """The person or caller who did it, where somebody did."""
        return str(event.data.get("by", ""))

    @admin.display(description="data")
    def details(self, event: Event) -> SafeString:
        """JSON, one row to a value. Clients put numbers into their references."""
        reference = {"reference": mask_within(str(event.data["reference"]))} if "reference" in event.data else {}
        text = json.dumps(event.data | reference, indent=2, sort_keys=True, ensure_ascii=False)
        return format_html('<pre class="whitespace-pre-wrap">{}</pre>', text)
