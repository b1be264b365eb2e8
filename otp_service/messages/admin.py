"""Clients, keys, flows and messages, for operators. Texts and whole numbers are not shown to anybody."""

from __future__ import annotations

import uuid

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from otp_service.core.phone_numbers import mask
from otp_service.messages.models import ApiKey, Client, Flow, Message
from otp_service.web.admin import WritesOnlyEdits


class _ReadOnly(ModelAdmin):  # type: ignore[misc]  # unfold has no types
    """Shown, not changed."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(Client)
class ClientAdmin(WritesOnlyEdits):
    """Made by `manage.py create_client`; disabled here. One with messages cannot be deleted."""

    list_display = ["name", "enabled", "created_at"]
    list_filter = ["enabled"]
    search_fields = ["name", "uuid"]
    fields = ["name", "uuid", "enabled", "created_at"]
    readonly_fields = ["uuid", "created_at"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False


@admin.register(ApiKey)
class ApiKeyAdmin(_ReadOnly):
    """Made by `create_client` and `create_api_key`, ended by `revoke_api_key`."""

    list_display = ["prefix", "client", "scopes", "created_at", "expires_at", "revoked_at"]
    list_select_related = ["client"]
    search_fields = ["prefix", "client__name"]
    fields = list_display


@admin.register(Flow)
class FlowAdmin(_ReadOnly):
    """What is queued together."""

    list_display = ["__str__", "client", "lane", "pools", "state"]
    list_filter = ["lane", "state"]
    list_select_related = ["client"]
    search_fields = ["client__name"]
    fields = ["client", "lane", "pools", "state"]


@admin.register(Message)
class MessageAdmin(_ReadOnly):
    """Found by uuid or by the client's reference."""

    list_display = ["uuid", "client", "lane", "status", "recipient", "reference", "created_at", "finished_at"]
    list_filter = ["lane", "status"]
    list_select_related = ["client"]
    search_fields = ["uuid", "reference"]  # shows the search box; get_search_results decides
    search_help_text = "A whole uuid or a whole reference"
    show_full_result_count = False  # counting millions of rows costs more than the page
    ordering = ["-id"]
    fields = [
        *("uuid", "client", "flow", "lane", "status", "recipient", "reference", "metadata", "region", "channels"),
        *("created_at", "event_at", "first_attempt_by", "on_late_first", "expires_at", "run_after", "finished_at"),
        *("attempts_made", "attempts_charged", "max_attempts"),
        *("final_reason", "final_error_code", "final_route", "final_server"),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        found: QuerySet[Message] = super().get_queryset(request)
        return found.defer("text")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Message], search_term: str
    ) -> tuple[QuerySet[Message], bool]:
        """By equality, which indexes serve, and not word by word."""
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            return queryset.filter(uuid=uuid.UUID(term)), False
        except ValueError:
            return queryset.filter(reference=term), False

    @admin.display(description="to")
    def recipient(self, message: Message) -> str:
        """Masked."""
        return mask(message.to)
