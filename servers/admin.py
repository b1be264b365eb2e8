"""Hosts, groups, servers and their history for people. State and counters are changed by services only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.db import models
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest

from otp_service.core.clock import utc_now
from otp_service.core.errors import ServiceError
from otp_service.web.admin import WritesOnlyEdits
from servers import rules
from servers.groups import default_policy, record_group_change
from servers.models import Group, Host, InternalSend, Server, ServerStatusHistory, StormBrake
from servers.moving import WHERE_IT_IS, may_move
from servers.recovery import VERDICTS


class _NeverDeleted(WritesOnlyEdits):
    """Rows that others refer to, and that stay."""

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(Host)
class HostAdmin(_NeverDeleted):
    """Relay hosts. Their secrets are not editable fields, and are shown nowhere."""

    list_display = ("number", "name", "base_url", "enabled", "last_seen_at", "offline_since")
    list_filter = ("enabled", "protocol")
    search_fields = ("=number", "name", "base_url")
    ordering = ("number",)
    fields = ("number", "name", "base_url", "protocol", "enabled", "last_seen_at", "offline_since")
    readonly_fields = ("last_seen_at", "offline_since")
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
        for warning in rules.group_warnings(obj, default_policy()):
            messages.warning(request, warning)
        if change and form.changed_data:
            old = {name: form.initial.get(name) for name in form.changed_data}
            new = {name: form.cleaned_data[name] for name in form.changed_data}
            record_group_change(obj, old=old, new=new, now=utc_now(), by=request.user.get_username())


#: What people read on the button of each verdict.
_LABELS = {
    "recover": "Recover 🩹",
    "mark_active": "Mark active ✅",
    "start_preheat": "Start preheat 🔥",
    "start_chat_preheat": "Start chat-preheat 💬",
    "need_check": "Need Check 🚨",
    "lost": "Lost",
    "disable": "Disable",
    "delete": "Delete (its history stays)",
}
Action = Callable[["ServerAdmin", HttpRequest, "QuerySet[Server]"], None]


def _action(name: str) -> Action:
    """The admin's action that carries a verdict out on each of the servers that are selected."""

    @admin.action(description=_LABELS[name], permissions=["change"])
    def act(model_admin: ServerAdmin, request: HttpRequest, servers: QuerySet[Server]) -> None:
        done = 0
        for server_id in servers.order_by("id").values_list("id", flat=True):
            try:
                VERDICTS[name](server_id, now=utc_now(), by=request.user.get_username())
            except ServiceError as refusal:
                model_admin.message_user(request, refusal.detail, messages.WARNING)
            else:
                done += 1
        if done:
            model_admin.message_user(request, f"{_LABELS[name]}: {done} done.", messages.SUCCESS)

    act.__name__ = name
    return act


@admin.register(Server)
class ServerAdmin(_NeverDeleted):
    """Servers: who they are can be edited, how they are can be read, and changed by verdicts."""

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
    actions = tuple(_action(name) for name in VERDICTS)
    fields = (
        ("region", "unit", "host"),
        ("name", "handle", "uuid"),
        ("status", "is_boomerang", "signed_in", "signed_out_at"),
        ("failed_in_row", "cooldown_times", "fail_open_streak"),
        ("cooldown", "cooldown_start_date", "cooldown_end_date", "cooldown_reason"),
        ("cooldown_warmup_at", "cooldown_warmup_sent_date", "cooldown_warmup_delivered", "cooldown_extensions"),
        ("released_at", "next_send_date", "last_sent_at"),
        ("sends_day", "sends_today", "new_recipients_today"),
        ("preheating", "preheat_started_at", "preheat_repeats", "preheat_asked_at"),
        "groups",
    )
    editable = frozenset({"region", "unit", "host", "name", "handle"})

    @admin.display(description="cooldown until", ordering="cooldown_end_date", empty_value="")
    def cooldown_until(self, server: Server) -> Any:
        """The end of the running cooldown."""
        return server.cooldown_end_date

    @admin.display(description="boomerang", boolean=True)
    def is_boomerang(self, server: Server) -> bool:
        """In Need Check again, a short time after somebody brought it back."""
        if server.status != rules.Status.NEED_CHECK:
            return False
        rows = server.history.filter(event=rules.Event.NEED_CHECK).order_by("-at", "-id")
        return rows.values_list("data__boomerang", flat=True).first() is True

    def get_readonly_fields(self, request: HttpRequest, obj: Server | None = None) -> list[str]:
        names = [name for row in self.fields for name in ((row,) if isinstance(row, str) else row)]
        editable = self.editable if obj is None or may_move(obj, now=utc_now()) else self.editable - WHERE_IT_IS
        return [name for name in names if name not in editable]

    def save_model(self, request: HttpRequest, obj: Server, form: ModelForm[Server], change: bool) -> None:
        if not change:
            obj.next_send_date = utc_now()
        super().save_model(request, obj, form, change)


class _ReadOnly(_NeverDeleted):
    """What the service itself writes."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(InternalSend)
class InternalSendAdmin(_ReadOnly):
    """Messages between our own servers."""

    list_display = ("created_at", "kind", "sender", "receiver", "state", "service", "error_code")
    list_filter = ("kind", "state", "service")
    list_select_related = ("sender", "receiver")
    search_fields = ("=uuid", "=sender__unit", "=receiver__unit")
    ordering = ("-created_at", "-id")


@admin.register(StormBrake)
class StormBrakeAdmin(_ReadOnly):
    """Storms, those that are on first."""

    list_display = ("on_at", "scope", "name", "mode", "share", "calm_since", "off_at")
    list_filter = ("scope", "mode")
    ordering = (models.F("off_at").desc(nulls_first=True), "-on_at")


@admin.register(ServerStatusHistory)
class ServerStatusHistoryAdmin(_ReadOnly):
    """What happened to servers."""

    list_display = ("at", "server", "event", "note")
    list_filter = ("event",)
    list_select_related = ("server",)
    search_fields = ("=server__unit", "=server__handle", "=server__uuid")
    date_hierarchy = "at"
    ordering = ("-at", "-id")
