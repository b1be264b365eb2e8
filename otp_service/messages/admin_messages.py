"""Flows and messages, for operators: masked, without texts. Who may see more is asked why, and leaves an Event."""

from __future__ import annotations

import enum
import uuid
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import action

from otp_service.core.clock import utc_now
from otp_service.core.crypto import CryptoError
from otp_service.core.phone_numbers import PhoneNumberError, mask, mask_within, parse
from otp_service.messages import explanation
from otp_service.messages.forms import RevealForm
from otp_service.messages.models import Attempt, Flow, Message
from otp_service.messages.reveal import Revealed, Unreadable, reveal
from otp_service.messages.rules import Lane, MessageStatus
from otp_service.web.admin import ReadOnly, ReadOnlyInline, page
from otp_service.web.fields import recipient_hashes


@admin.register(Flow)
class FlowAdmin(ReadOnly):
    """What is queued together."""

    list_display = ("__str__", "client", "lane", "pools", "channels", "campaign", "weight", "state")
    list_filter = ("lane", "state")
    list_select_related = ("client", "campaign")
    search_fields = ("client__name",)
    fields = ("client", "lane", "pools", "channels", "campaign", "weight", "state")


class AttemptInline(ReadOnlyInline):
    """The attempts of a message, for whoever may see the message. What hosts answered is not read."""

    model = Attempt
    ordering = ("number",)
    fields = (
        *("number", "route", "sender", "state", "error_class", "error_code", "possible_duplicate"),
        *("claimed_at", "settled_at", "finished_at", "took", "parts", "price"),
    )
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Attempt]:
        found: QuerySet[Attempt] = super().get_queryset(request)
        return found.select_related("server").defer("raw_reply")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("otp_messages.view_message")

    @admin.display(description="server")
    def sender(self, attempt: Attempt) -> str:
        """A link to its page."""
        if attempt.server is None:
            return ""
        return format_html(
            '<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>',
            reverse("admin:servers_server_change", args=[attempt.server.pk]),
            attempt.server,
        )

    @admin.display(description="call took")
    def took(self, attempt: Attempt) -> str:
        """How long the host was talked to."""
        return "" if attempt.duration_ms is None else f"{attempt.duration_ms} ms"

    @admin.display(description="cost")
    def price(self, attempt: Attempt) -> str:
        """With its currency."""
        return "" if attempt.cost is None else f"{attempt.cost} {attempt.currency}"


class AmongTheNewest(admin.SimpleListFilter):
    """By a column that no index serves: a value that is rare would be looked for in millions of rows.

    Looks at the newest messages only, unless something is searched for: that is found by an index.
    """

    MOST = 100_000
    values: type[enum.StrEnum]

    def __init__(self, *given: Any) -> None:
        self.title = f"{self.parameter_name} (of the newest {self.MOST:,})"
        super().__init__(*given)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(one.value, one.value) for one in self.values]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        if not self.value():
            return queryset
        found = queryset.filter(**{str(self.parameter_name): self.value()})
        if request.GET.get(SEARCH_VAR, "").strip():
            return found
        newest = Message.objects.order_by("-id").values_list("id", flat=True).first() or 0
        return found.filter(id__gt=newest - self.MOST)


class LaneFilter(AmongTheNewest):
    """By lane."""

    parameter_name = "lane"
    values = Lane


class StatusFilter(AmongTheNewest):
    """By status."""

    parameter_name = "status"
    values = MessageStatus


@admin.register(Message)
class MessageAdmin(ReadOnly):
    """Found by its uuid, by the client's reference, or by its recipient."""

    list_display = ("uuid", "client", "lane", "status", "recipient", "named", "created_at", "finished_at")
    list_filter = (LaneFilter, StatusFilter, "client")
    sortable_by = ()  # sorting millions of rows by what no index has costs more than the page
    search_fields = ("uuid", "reference")  # shows the search box; get_search_results decides
    search_help_text = "A whole uuid, a whole reference, or a whole number, as in +34600000000"
    ordering = ("-id",)
    inlines = (AttemptInline,)
    actions_detail = ("show_content",)
    fieldsets = (
        ("What happened and why (times are UTC)", {"fields": ("explained",)}),
        (None, {"fields": (("uuid", "client"), ("lane", "status"), ("recipient", "named"), ("superseding",))}),
        (
            "Times",
            {"fields": (("created_at", "event_at"), ("expires_at", "finished_at"), ("run_after", "on_late_first"))},
        ),
        (
            "Ways out",
            {
                "fields": (
                    *(("flow", "region"), ("channels", "sender_name"), ("attempts_made", "attempts_charged")),
                    *(("max_attempts", "max_routes"), ("on_unknown", "copies_left")),
                )
            },
        ),
        ("End", {"fields": (("final_reason", "final_error_code"), ("final_route", "final_server"))}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        found: QuerySet[Message] = super().get_queryset(request)
        return found.select_related("client", "final_server", "flow").defer("text", "metadata", "addresses")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Message], search_term: str
    ) -> tuple[QuerySet[Message], bool]:
        """By equality, which indexes serve, and not word by word."""
        term = search_term.strip()
        return (queryset.filter(_named(term)) if term else queryset), False

    @admin.display(description="to")
    def recipient(self, message: Message) -> str:
        """Masked."""
        try:
            return mask(message.to)
        except CryptoError:
            return "no key opens it"

    @admin.display(description="reference")
    def named(self, message: Message) -> str:
        """The client's name for it. Numbers in it are masked; what is whole is found by the search."""
        return mask_within(message.reference)

    @admin.display(description="supersede key")
    def superseding(self, message: Message) -> str:
        """What messages of one purpose share, as the client names it; numbers in it are masked."""
        return mask_within(message.supersede_key)

    @admin.display(description="in words")
    def explained(self, message: Message) -> SafeString:
        """Sentence by sentence."""
        sentences = explanation.of(message, now=utc_now())
        return format_html("<ol>{}</ol>", format_html_join("", "<li>{}</li>", ((line,) for line in sentences)))

    def has_reveal_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """For the button. Unfold would look a permission's own name up in the database, which a check may not."""
        return request.user.has_perm("otp_messages.reveal_message")

    @action(  # type: ignore[untyped-decorator]  # unfold has no types
        description="Show text and recipient",
        icon="visibility",
        url_path="show",
        permissions=["reveal"],
    )
    def show_content(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Asks for the reason; shows the message in answer to a POST only, so that no link and no reload does."""
        message = self.get_object(request, object_id)
        if message is None:
            raise Http404("There is no such message.")
        if not self.has_view_permission(request, message):
            raise PermissionDenied
        form = RevealForm(request.POST or None)
        if request.method != "POST" or not form.is_valid():
            return self._page(request, "reveal", message, form=form)
        try:
            shown = self._reveal(request, message, form.cleaned_data["reason"])
        except Unreadable as unreadable:
            return self._page(request, "unreadable", message, detail=unreadable.detail)
        return self._page(request, "revealed", message, shown=shown)

    def _reveal(self, request: HttpRequest, message: Message, reason: str) -> Revealed:
        return reveal(message.pk, now=utc_now(), by=request.user.get_username(), reason=reason)

    def _page(self, request: HttpRequest, name: str, message: Message, **context: Any) -> HttpResponse:
        title = f"Message {message.uuid}"
        return page(self, request, f"otp_messages/{name}.html", title=title, message=message, **context)


def _named(term: str) -> Q:
    """What a person typed who looks for a message. Clients take uuids and numbers for references, too."""
    named = Q(reference=term)
    try:
        return named | Q(uuid=uuid.UUID(term))
    except ValueError:
        pass
    try:
        return named | Q(to_hash__in=recipient_hashes(parse(term)))
    except PhoneNumberError:
        return named
