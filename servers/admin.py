"""Hosts, groups, servers and their history for people. State and counters are changed by services only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import models
from django.forms import ModelForm
from django.http import HttpRequest

from otp_service.core.clock import utc_now
from otp_service.web.admin import WritesOnlyEdits
from servers.groups import record_group_change
from servers.models import Group, Host, Server, ServerStatusHistory


class _NeverDeleted(WritesOnlyEdits):
    """Rows that others refer to, and that stay."""

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(Host)
class HostAdmin(_NeverDeleted):
    """Relay hosts. Their secrets are not editable fields, and are shown nowhere."""

    list_display = ("number", "name", "base_url", "enabled", "last_seen_at")
    list_filter = ("enabled", "protocol")
    search_fields = ("=number", "name", "base_url")
    ordering = ("number",)
    fields = ("number", "name", "base_url", "protocol", "enabled", "last_seen_at")
    readonly_fields = ("last_seen_at",)
    formfield_overrides = {models.URLField: {"assume_scheme": "https"}}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # a host comes with a secret, and this form has none


@admin.register(Group)
class GroupAdmin(_NeverDeleted):
    """Cooldown and send-interval parameters. A change of them is an Event, with who did it."""

    list_display = (
        "name",
        "priority",
        "from_time",
        "to_time",
        "failed_in_row",
        "cooldown_delay_from",
        "cooldown_delay_to",
        "send_from_message_interval",
        "send_to_message_interval",
        "reset_rule",
    )
    search_fields = ("name", "=uuid")
    ordering = ("-priority",)

    def save_model(self, request: HttpRequest, obj: Group, form: ModelForm[Group], change: bool) -> None:
        super().save_model(request, obj, form, change)
        if change and form.changed_data:
            old = {name: form.initial.get(name) for name in form.changed_data}
            new = {name: form.cleaned_data[name] for name in form.changed_data}
            record_group_change(obj, old=old, new=new, now=utc_now(), by=request.user.get_username())


@admin.register(Server)
class ServerAdmin(_NeverDeleted):
    """Servers: who they are can be edited, how they are can be read."""

    list_display = (
        "region",
        "unit",
        "host",
        "status",
        "signed_in",
        "cooldown_until",
        "failed_in_row",
        "cooldown_times",
        "next_send_date",
    )
    list_display_links = ("region", "unit")
    list_filter = ("status", "region", "cooldown", "signed_in", "preheating", "groups", "host")
    list_select_related = ("host",)
    search_fields = ("=unit", "=handle", "=uuid", "name")
    ordering = ("region", "unit")
    autocomplete_fields = ("host",)
    fields = (
        ("region", "unit", "host"),
        ("name", "handle", "uuid"),
        ("status", "signed_in", "preheating", "preheat_started_at"),
        ("failed_in_row", "cooldown_times", "fail_open_streak"),
        ("cooldown", "cooldown_start_date", "cooldown_end_date", "cooldown_reason"),
        ("cooldown_warmup_at", "cooldown_warmup_sent_date", "cooldown_warmup_delivered", "cooldown_extensions"),
        ("released_at", "next_send_date"),
        "groups",
    )
    editable = frozenset({"region", "unit", "host", "name", "handle"})

    @admin.display(description="cooldown until", ordering="cooldown_end_date", empty_value="")
    def cooldown_until(self, server: Server) -> Any:
        """The end of the running cooldown."""
        return server.cooldown_end_date

    def get_readonly_fields(self, request: HttpRequest, obj: Server | None = None) -> list[str]:
        names = [name for row in self.fields for name in ((row,) if isinstance(row, str) else row)]
        return [name for name in names if name not in self.editable]

    def save_model(self, request: HttpRequest, obj: Server, form: ModelForm[Server], change: bool) -> None:
        if not change:
            obj.next_send_date = utc_now()
        super().save_model(request, obj, form, change)


@admin.register(ServerStatusHistory)
class ServerStatusHistoryAdmin(_NeverDeleted):
    """What happened to servers: read only."""

    list_display = ("at", "server", "event", "note")
    list_filter = ("event",)
    list_select_related = ("server",)
    search_fields = ("=server__unit", "=server__handle", "=server__uuid")
    date_hierarchy = "at"
    ordering = ("-at", "-id")
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False
