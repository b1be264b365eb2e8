"""Clients and their keys. A key is shown once, on the page that made it, and is kept nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.db.models import Count, Model, ProtectedError, Q, QuerySet
from django.forms import ModelForm
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from unfold.decorators import action

from otp_service.core.clock import utc_now
from otp_service.messages import api_keys
from otp_service.messages.api_keys import Scope
from otp_service.messages.forms import NewKeyForm
from otp_service.messages.models import ApiKey, Client, Message
from otp_service.web.admin import ReadOnly, ReadOnlyInline, WritesOnlyEdits, page


@dataclass(frozen=True, slots=True, repr=False)
class _NewKey:
    """A key and its text. Its repr shows neither: Django logs, at DEBUG, what a template was given."""

    key: ApiKey
    text: str


class ApiKeyInline(ReadOnlyInline):
    """The keys of a client."""

    model = ApiKey
    ordering = ("-created_at", "-id")
    verbose_name_plural = "API keys"
    fields = ("prefix", "scopes", "created_at", "expires_at", "revoked_at", "end")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiKey]:
        found: QuerySet[ApiKey] = super().get_queryset(request)
        return found.defer("digest")

    @admin.display(description="")
    def end(self, key: ApiKey) -> str:
        """A link to the page that revokes it."""
        if key.revoked_at is not None:
            return ""
        address = reverse("admin:otp_messages_apikey_revoke", args=[key.pk])
        return format_html('<a class="text-primary-600 dark:text-primary-500" href="{}">Revoke…</a>', address)


@admin.register(Client)
class ClientAdmin(WritesOnlyEdits):
    """Made, renamed, disabled, and given keys. One with messages stays."""

    list_display = ("name", "enabled", "created_at", "keys")
    list_filter = ("enabled",)
    search_fields = ("name", "uuid")
    ordering = ("name",)
    inlines = (ApiKeyInline,)
    actions_detail = ("new_key",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Client]:
        found: QuerySet[Client] = super().get_queryset(request)
        return found.annotate(keys_left=Count("api_keys", filter=Q(api_keys__revoked_at=None)))

    @admin.display(description="keys, without revoked ones")
    def keys(self, client: Client) -> int:
        """How many it has."""
        return int(client.keys_left)  # type: ignore[attr-defined]  # annotated above

    def get_fields(self, request: HttpRequest, obj: Client | None = None) -> tuple[str, ...]:
        return ("name",) if obj is None else ("name", "uuid", "enabled", "created_at")

    def get_readonly_fields(self, request: HttpRequest, obj: Client | None = None) -> tuple[str, ...]:
        return () if obj is None else ("uuid", "created_at")

    def get_inlines(self, request: HttpRequest, obj: Client | None) -> tuple[type[ApiKeyInline], ...]:
        return () if obj is None else self.inlines

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Clients are deleted one by one: `delete_view` looks for messages first."""
        return {name: one for name, one in super().get_actions(request).items() if name != "delete_selected"}

    def save_model(self, request: HttpRequest, obj: Client, form: ModelForm[Any], change: bool) -> None:
        if not change:
            obj.created_at = utc_now()
        super().save_model(request, obj, form, change)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Refused for a client with messages, before Django reads all of them; and when one comes meanwhile."""
        client = self.get_object(request, object_id)
        if client is not None and Message.objects.filter(client=client).exists():
            return self._stays(request, client)
        try:
            answer: HttpResponse = super().delete_view(request, object_id, extra_context)
        except (ProtectedError, IntegrityError):
            assert client is not None
            return self._stays(request, client)
        return answer

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[Any, Any, set[str], Any]:
        """Its keys and flows go with it: whoever may delete the client needs no permission of theirs."""
        to_delete, counts, _, protected = super().get_deleted_objects(objs, request)
        return to_delete, counts, set(), protected

    def _stays(self, request: HttpRequest, client: Client) -> HttpResponse:
        text = f"{client} has messages, so it cannot be deleted. Disable it: its keys open nothing then."
        self.message_user(request, text, messages.ERROR)
        return redirect("admin:otp_messages_client_change", client.pk)

    def has_new_key_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """For the button."""
        return request.user.has_perm("otp_messages.add_apikey")

    @action(  # type: ignore[untyped-decorator]  # unfold has no types
        description="New key", icon="key", url_path="new-key", permissions=["new_key"]
    )
    def new_key(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Asks what it may do; shows it in the answer to the POST that makes it, and never again."""
        client = self.get_object(request, object_id)
        if client is None:
            raise Http404("There is no such client.")
        if not self.has_view_permission(request, client):
            raise PermissionDenied
        title = f"New key of {client}"
        form = NewKeyForm(request.POST if request.method == "POST" else None, initial={"seen": _newest_key(client)})
        shown = self._issue(request, client, form) if form.is_valid() else None
        if shown is None:
            return page(self, request, "otp_messages/new_key.html", title=title, client=client, form=form)
        return page(self, request, "otp_messages/new_key_shown.html", title=title, client=client, shown=shown)

    def _issue(self, request: HttpRequest, client: Client, form: NewKeyForm) -> _NewKey | None:
        """Once for a page: of two clicks only one answer would be seen, and the other key stay open unseen."""
        now, days = utc_now(), form.cleaned_data["days"]
        with transaction.atomic():
            Client.objects.select_for_update(no_key=True).get(pk=client.pk)
            if _newest_key(client) != (form.cleaned_data["seen"] or 0):
                form.add_error(None, f"A key of {client} was made since this page was opened: look at its keys first.")
                return None
            key, text = api_keys.issue(
                client,
                map(Scope, form.cleaned_data["scopes"]),
                now=now,
                expires_at=None if days is None else now + timedelta(days=days),
                by=request.user.get_username(),
            )
        return _NewKey(key, text)


def _newest_key(client: Client) -> int:
    """Its row id; 0 of a client that has none."""
    return client.api_keys.order_by("-id").values_list("id", flat=True).first() or 0


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnly):
    """Made on the client's page, and ended here or there."""

    list_display = ("prefix", "client", "scopes", "created_at", "expires_at", "revoked_at")
    list_filter = ("client",)
    list_select_related = ("client",)
    search_fields = ("prefix", "client__name")
    ordering = ("-created_at", "-id")
    fields = list_display
    actions = ("revoke_selected",)
    actions_detail = ("revoke",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiKey]:
        found: QuerySet[ApiKey] = super().get_queryset(request)
        return found.defer("digest")

    def has_revoke_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """For the action of the list, and the button."""
        return request.user.has_perm("otp_messages.change_apikey")

    @admin.action(description="Revoke…", permissions=["revoke"])
    def revoke_selected(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> HttpResponse | None:
        """Asks first."""
        if "confirmed" not in request.POST:
            return self._ask(request, list(keys), "revoke_selected")
        self._revoke(request, keys)
        return None

    @action(  # type: ignore[untyped-decorator]  # unfold has no types
        description="Revoke…", icon="key_off", permissions=["revoke"]
    )
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Asks first, and leads back to the client's page."""
        key = self.get_object(request, object_id)
        if key is None:
            raise Http404("There is no such key.")
        if request.method != "POST":
            return self._ask(request, [key], "")
        self._revoke(request, [key])
        return redirect("admin:otp_messages_client_change", key.client_id)

    def _ask(self, request: HttpRequest, keys: list[ApiKey], action_name: str) -> HttpResponse:
        title = "Revoke keys" if len(keys) > 1 else "Revoke a key"
        return page(self, request, "otp_messages/revoke.html", title=title, keys=keys, action_name=action_name)

    def _revoke(self, request: HttpRequest, keys: QuerySet[ApiKey] | list[ApiKey]) -> None:
        now, by = utc_now(), request.user.get_username()
        for prefix in sorted(key.prefix for key in keys):
            if api_keys.revoke(prefix, now=now, by=by):
                self.message_user(request, f"{prefix} is revoked: it opens nothing any more.", messages.SUCCESS)
            else:
                self.message_user(request, f"{prefix} was revoked before.", messages.WARNING)
