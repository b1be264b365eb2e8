"""Campaigns, for operators: how far each is, what was refused of it, and its pause, resume and cancel."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import action

from otp_service.core.clock import utc_now
from otp_service.core.errors import ServiceError
from otp_service.messages import campaigns
from otp_service.messages.campaigns import Change
from otp_service.messages.models import Campaign, CampaignRefusal
from otp_service.web.admin import ReadOnly, page

_MOST_REFUSALS = 20  # on the page; the client downloads those that are kept


@admin.register(Campaign)
class CampaignAdmin(ReadOnly):
    """Written by uploads. Whoever may change campaigns may pause, resume and cancel them."""

    list_display = ("__str__", "client", "state", "weight", "accepted", "refused", "created_at", "loaded_at")
    list_filter = ("state",)
    list_select_related = ("client",)
    search_fields = ("=uuid", "name", "client__name")
    ordering = ("-id",)
    actions_detail = ("pause", "resume", "cancel")
    fieldsets = (
        (None, {"fields": (("uuid", "client"), ("name", "state"), ("weight", "starts"))}),
        (
            "Upload",
            {"fields": (("form", "lines_read"), ("accepted", "refused"), ("created_at", "loaded_at"), "refused_lines")},
        ),
        ("Messages", {"fields": ("where_they_stand",)}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Campaign]:
        found: QuerySet[Campaign] = super().get_queryset(request)
        return found.defer("fingerprint")

    @admin.display(description="where they stand")
    def where_they_stand(self, campaign: Campaign) -> SafeString:
        """The statuses at which there are any."""
        counts = campaigns.counts([campaign])[campaign.pk]
        return format_html_join(", ", "{}: {}", ((status, f"{n:,}") for status, n in counts.items() if n))

    @admin.display(description=f"refused (first {_MOST_REFUSALS})")
    def refused_lines(self, campaign: Campaign) -> SafeString:
        """Line, field and what to do."""
        rows = CampaignRefusal.objects.filter(campaign=campaign).order_by("line")[:_MOST_REFUSALS]
        told = rows.values_list("line", "field", "detail")
        return format_html_join("", "<p>Line {} {}: {}</p>", told)

    def has_steer_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """For the buttons."""
        return request.user.has_perm("otp_messages.change_campaign")

    @action(  # type: ignore[untyped-decorator]  # unfold has no types
        description="Pause…", icon="pause", permissions=["steer"]
    )
    def pause(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Asks first."""
        return self._change(request, object_id, Change.PAUSE)

    @action(  # type: ignore[untyped-decorator]  # unfold has no types
        description="Resume…", icon="play_arrow", permissions=["steer"]
    )
    def resume(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Asks first."""
        return self._change(request, object_id, Change.RESUME)

    @action(  # type: ignore[untyped-decorator]  # unfold has no types
        description="Cancel…", icon="cancel", permissions=["steer"]
    )
    def cancel(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Asks first."""
        return self._change(request, object_id, Change.CANCEL)

    def _change(self, request: HttpRequest, object_id: str, asked: Change) -> HttpResponse:
        campaign = self.get_object(request, object_id)
        if campaign is None:
            raise Http404("There is no such campaign.")
        if not self.has_view_permission(request, campaign):
            raise PermissionDenied
        if request.method != "POST":
            title = f"{asked.capitalize()} {campaign}"
            return page(self, request, "otp_messages/campaign_change.html", title=title, campaign=campaign, asked=asked)
        text, level = self._outcome(request, campaign, asked)
        self.message_user(request, text, level)
        return redirect(reverse("admin:otp_messages_campaign_change", args=[campaign.pk]))

    def _outcome(self, request: HttpRequest, campaign: Campaign, asked: Change) -> tuple[str, Any]:
        own = Campaign.objects.filter(pk=campaign.pk)
        try:
            changed = campaigns.change(own, asked, now=utc_now(), by=request.user.get_username())
        except ServiceError as refused:
            return refused.detail, messages.ERROR
        return ("Done.", messages.SUCCESS) if changed else ("It was so before.", messages.WARNING)
