"""What the service itself writes about servers, for people to read."""

from __future__ import annotations

import datetime as dt

from django.contrib import admin
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.paginator import InfinitePaginator

from otp_service.web.admin import ReadOnly
from servers.models import InternalSend, Server, ServerStatusHistory, StormBrake


class _Endless(ReadOnly):
    """Tables that grow without end: pages by an index, nothing is counted or sorted."""

    paginator = InfinitePaginator
    sortable_by = ()


@admin.register(ServerStatusHistory)
class ServerStatusHistoryAdmin(_Endless):
    """What happened to servers, the newest first: rows are written in the order of time, so that is by id.

    No hierarchy of dates: its years and months would each read the whole table.
    """

    list_display = ("when", "its_server", "event", "note")
    list_display_links = ("when",)
    list_filter = ("event", ("at", admin.DateFieldListFilter))
    list_select_related = ("server",)
    search_fields = ("server",)  # shows the search box; get_search_results decides
    search_help_text = "A server's unit, handle or uuid"
    ordering = ("-id",)
    asked_about = ("server",)
    fields = ("at", "its_server", "event", "note", "data")

    @admin.display(description="at (UTC)")
    def when(self, row: ServerStatusHistory) -> str:
        """To the second: several rows of one server may lie within a minute."""
        return f"{row.at.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}"

    @admin.display(description="server")
    def its_server(self, row: ServerStatusHistory) -> SafeString:
        """The way to its page."""
        address = reverse("admin:servers_server_change", args=[row.server_id])
        return format_html('<a href="{}" class="text-link">{}</a>', address, row.server)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[ServerStatusHistory], search_term: str
    ) -> tuple[QuerySet[ServerStatusHistory], bool]:
        """The servers are looked for first: there are few, and the rows of each are found by an index."""
        if not search_term.strip():
            return queryset, False
        servers, _ = self.admin_site.get_model_admin(Server).get_search_results(
            request, Server.objects.order_by("pk"), search_term
        )
        return queryset.filter(server_id__in=list(servers.values_list("pk", flat=True))), False


@admin.register(InternalSend)
class InternalSendAdmin(_Endless):
    """Internal sends: what our own servers send each other."""

    list_display = ("created_at", "kind", "sender", "receiver", "state", "service", "error_code")
    list_filter = ("kind", "state", "service")
    list_select_related = ("sender", "receiver")
    search_fields = ("=uuid", "=sender__unit", "=receiver__unit")
    ordering = ("-created_at", "-id")
    asked_about = ("sender", "receiver")


@admin.register(StormBrake)
class StormBrakeAdmin(ReadOnly):
    """Storms, those that are on first."""

    list_display = ("on_at", "scope", "name", "mode", "share", "calm_since", "off_at")
    list_filter = ("scope", "mode")
    ordering = (models.F("off_at").desc(nulls_first=True), "-on_at")
