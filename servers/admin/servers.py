"""Servers for people: who they are can be edited, how they are can be read, and changed by verdicts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.utils import flatten_fieldsets
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import ManyToManyField, OuterRef, Prefetch, QuerySet
from django.db.models.functions import JSONObject
from django.forms import ModelForm, ModelMultipleChoiceField
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.html import format_html_join
from django.utils.safestring import SafeString, mark_safe
from unfold.decorators import display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from otp_service.core.clock import time_of_day, utc_now
from otp_service.web.admin import NeverDeleted
from servers import creation, history, memberships
from servers.admin.memberships import choose_groups, memberships_view
from servers.admin.pages import SavedByServices, who
from servers.admin.verdicts import open_verdicts, verdict_action, verdict_view
from servers.creation import CreationRefused
from servers.models import Group, Server, ServerStatusHistory
from servers.moving import WHERE_IT_IS, may_move
from servers.recovery_rules import PersonVerdict
from servers.rules import EVENT_LABELS, Event, Status

EVENTS_SHOWN = 3  # of a server, on the list
_COLOURS = {
    Status.NEW.value: "info",
    Status.ACTIVE.value: "success",
    Status.NEED_CHECK.value: "danger",
    Status.LOST.value: "warning",
}


@admin.register(Server)
class ServerAdmin(SavedByServices, NeverDeleted):
    """State and counters are changed by services only."""

    list_display = (
        "region",
        "unit",
        "host",
        "status_label",
        "cooldown_state",
        "failed_in_row",
        "last_events",
        "in_groups",
        "signed_in",
    )
    list_display_links = ("region", "unit")
    list_filter = ("status", "region", "cooldown", "signed_in", "preheating", "groups", "host")
    list_select_related = ("host",)
    list_per_page = 100
    show_full_result_count = False
    search_fields = ("=unit", "=handle", "=uuid", "name")
    ordering = ("region", "unit")
    actions = (*(verdict_action(verdict) for verdict in PersonVerdict), choose_groups)
    fieldsets = (
        ("Who it is", {"fields": (("region", "unit", "host"), ("name", "handle", "uuid"), "groups")}),
        (
            "State",
            {
                "fields": (
                    ("status", "is_boomerang"),
                    ("signed_in", "signed_out_at"),
                    ("failed_in_row", "cooldown_times", "fail_open_streak"),
                )
            },
        ),
        (
            "Cooldown",
            {
                "fields": (
                    ("cooldown", "cooldown_reason"),
                    ("cooldown_start_date", "cooldown_end_date", "cooldown_extensions"),
                    ("cooldown_warmup_at", "cooldown_warmup_sent_date", "cooldown_warmup_delivered"),
                    "released_at",
                )
            },
        ),
        (
            "Pace and budgets",
            {
                "fields": (
                    ("next_send_date", "last_sent_at"),
                    ("sends_day", "sends_today", "new_recipients_today"),
                    ("otp_hour", "otp_in_hour"),
                )
            },
        ),
        (
            "Preheat",
            {"fields": (("preheating", "preheat_started_at"), ("preheat_repeats", "preheat_asked_at"))},
        ),
    )
    add_fieldsets = (("Who it is", {"fields": (("region", "unit", "host"), ("name", "handle"), "groups")}),)
    change_form_outer_before_template = "servers/server_buttons.html"
    editable = frozenset({"region", "unit", "host", "name", "handle", "groups"})

    def get_queryset(self, request: HttpRequest) -> QuerySet[Server]:
        newest = ServerStatusHistory.objects.filter(server=OuterRef("pk")).order_by("-at", "-id")
        servers: QuerySet[Server] = super().get_queryset(request)
        shown = newest.values(shown=JSONObject(event="event", at="at"))[:EVENTS_SHOWN]
        by_priority = Prefetch("groups", Group.objects.order_by("-priority"))
        return servers.annotate(newest_events=ArraySubquery(shown)).prefetch_related(by_priority)

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        urls: list[URLPattern] = super().get_urls()
        return [
            path("verdict/<str:verdict>/", wrap(self.verdict_view), name="servers_server_verdict"),
            path("memberships/", wrap(self.memberships_view), name="servers_server_memberships"),
            *urls,
        ]

    def verdict_view(self, request: HttpRequest, verdict: str) -> HttpResponse:
        """A verdict on the servers that the form names."""
        return verdict_view(self, request, verdict)

    def memberships_view(self, request: HttpRequest) -> HttpResponse:
        """Groups for the servers that the form names."""
        return memberships_view(self, request)

    # --- columns -----------------------------------------------------------------------------------------

    @display(description="status", ordering="status", label=_COLOURS)  # type: ignore[untyped-decorator]  # unfold has no types
    def status_label(self, server: Server) -> str:
        """In the colour of how it is."""
        return server.status

    @admin.display(description="cooldown", ordering="cooldown_end_date")
    def cooldown_state(self, server: Server) -> str:
        """Its number, its end, and when the sweep that decides about it has been by at the latest (UTC)."""
        if server.cooldown_end_date is None:
            return ""
        now, end = utc_now(), server.cooldown_end_date
        verdict_by = end + settings.COOLDOWN_SWEEP + settings.COOLDOWN_SWEEP_JITTER
        return f"#{server.cooldown_times} until {time_of_day(end, now)}, verdict by {time_of_day(verdict_by, now)}"

    @admin.display(description="last events")
    def last_events(self, server: Server) -> SafeString:
        """The newest rows of its history, a line each."""
        now, rows = utc_now(), getattr(server, "newest_events", [])
        told = (
            (EVENT_LABELS[Event(row["event"])], time_of_day(datetime.fromisoformat(row["at"]), now)) for row in rows
        )
        return format_html_join(mark_safe("<br>"), "{} {}", told)

    @admin.display(description="groups")
    def in_groups(self, server: Server) -> str:
        """By priority, the highest first."""
        return ", ".join(group.name for group in server.groups.all())

    @admin.display(description="boomerang", boolean=True)
    def is_boomerang(self, server: Server) -> bool:
        """In Need Check again, a short time after somebody brought it back."""
        if server.status != Status.NEED_CHECK:
            return False
        rows = server.history.filter(event=Event.NEED_CHECK).order_by("-at", "-id")
        return rows.values_list("data__boomerang", flat=True).first() is True

    # --- the form ----------------------------------------------------------------------------------------

    def get_readonly_fields(self, request: HttpRequest, obj: Server | None = None) -> list[str]:
        names = flatten_fieldsets(self.get_fieldsets(request, obj))
        editable = self.editable if obj is None or may_move(obj, now=utc_now()) else self.editable - WHERE_IT_IS
        return [name for name in names if name not in editable]

    def formfield_for_manytomany(
        self, db_field: ManyToManyField[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> ModelMultipleChoiceField[Group]:
        """Groups as boxes to tick."""
        if db_field.name == "groups":
            kwargs |= {
                "queryset": Group.objects.order_by("-priority"),
                "widget": UnfoldAdminCheckboxSelectMultipleWidget(),
            }
        field: ModelMultipleChoiceField[Group] = super().formfield_for_manytomany(db_field, request, **kwargs)
        return field

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], **form: Any) -> HttpResponse:
        server = form["obj"]
        may = server is not None and self.has_change_permission(request, server)
        verdicts = open_verdicts(server, utc_now()) if may else []
        answer: HttpResponse = super().render_change_form(request, context | {"verdicts": verdicts}, **form)
        return answer

    def save_model(self, request: HttpRequest, obj: Server, form: ModelForm[Server], change: bool) -> None:
        if not change:
            self._create(request, obj, form)
            return
        # Groups are locked before servers, as everywhere.
        self._set_groups(request, obj, form)
        edited = [name for name in form.changed_data if name != "groups"]
        if WHERE_IT_IS.intersection(edited) and not may_move(history.locked(obj.pk), now=utc_now()):
            raise CreationRefused(f"{obj} was given a message meanwhile: it can be moved an hour after its last one.")
        obj.save(update_fields=edited)

    def save_related(self, request: HttpRequest, form: ModelForm[Server], formsets: Any, change: bool) -> None:
        """Nothing: the service has written the groups, with who did it."""

    def _create(self, request: HttpRequest, obj: Server, form: ModelForm[Server]) -> None:
        made = creation.create_server(
            obj.region, obj.unit, obj.host.number, obj.handle, now=utc_now(), name=obj.name, by=who(request)
        )
        obj.pk, obj.uuid = made.pk, made.uuid
        self._set_groups(request, obj, form)
        if not creation.serves_numbers(obj.region):
            sentence = f"No number is served by the pool {obj.region}: POOLS_BY_PREFIX does not name it."
            messages.warning(request, sentence)

    def _set_groups(self, request: HttpRequest, obj: Server, form: ModelForm[Server]) -> None:
        if "groups" in form.changed_data:
            groups = [group.pk for group in form.cleaned_data["groups"]]
            memberships.change_groups([obj.pk], groups, memberships.How.SET, now=utc_now(), by=who(request))
