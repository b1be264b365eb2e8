"""Relay hosts for people. A secret is shown once, when it is made: on a page that no cache keeps, and nowhere else."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import models
from django.db.models import Case, Count, QuerySet, Value, When
from django.forms import ModelForm
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from otp_service.core.clock import utc_now
from otp_service.web.admin import NeverDeleted, page
from servers import creation
from servers.admin.forms import HostForm
from servers.admin.pages import SavedByServices
from servers.creation import CreationRefused
from servers.hosts import online as hosts_online
from servers.hosts import webhook_path
from servers.models import Host
from servers.rules import RelayProtocol


@admin.register(Host)
class HostAdmin(SavedByServices, NeverDeleted):
    """Where hosts listen and whether they are heard of. Their secrets are no fields."""

    form = HostForm
    list_display = ("number", "name", "base_url", "enabled", "is_online", "last_seen_at", "server_count")
    list_filter = ("enabled", "protocol")
    search_fields = ("=number", "name", "base_url")
    ordering = ("number",)
    show_full_result_count = False
    fields = (
        ("number", "name"),
        ("base_url", "protocol"),
        ("enabled", "is_online"),
        ("last_seen_at", "offline_since"),
        "previous_secret_until",
        "server_count",
    )
    add_fieldsets = ((None, {"fields": ("number", "name", "base_url", "protocol")}),)
    readonly_fields = ("is_online", "last_seen_at", "offline_since", "previous_secret_until", "server_count")
    formfield_overrides = {models.URLField: {"assume_scheme": "https"}}
    actions = ("choose_new_secret",)
    change_form_outer_before_template = "servers/host_buttons.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Host]:
        hosts: QuerySet[Host] = super().get_queryset(request)
        online = Case(When(hosts_online(utc_now()), then=Value(True)), default=Value(False))
        return hosts.annotate(servers_on_it=Count("servers"), online=online)

    def get_readonly_fields(self, request: HttpRequest, obj: Host | None = None) -> tuple[str, ...]:
        """What a host speaks stays: what is in flight would be asked about in words that it does not know."""
        return (*self.readonly_fields, "protocol") if obj else self.readonly_fields

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.new_secret_view)
        urls: list[URLPattern] = super().get_urls()
        return [path("<int:host_id>/new-secret/", view, name="servers_host_new_secret"), *urls]

    @admin.display(description="online now", boolean=True)
    def is_online(self, host: Host) -> bool:
        """Enabled, and heard of lately."""
        return bool(getattr(host, "online"))  # noqa: B009 - an annotation

    @admin.display(description="servers", ordering="servers_on_it")
    def server_count(self, host: Host) -> SafeString:
        """How many there are, and the way to them."""
        address = f"{reverse('admin:servers_server_changelist')}?host__id__exact={host.pk}"
        count = getattr(host, "servers_on_it")  # noqa: B009 - an annotation
        return format_html('<a href="{}" class="text-link">{}</a>', address, count)

    def save_model(self, request: HttpRequest, obj: Host, form: ModelForm[Host], change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
            return
        protocol = RelayProtocol(obj.protocol)
        made = creation.create_host(obj.number, obj.base_url, name=obj.name, protocol=protocol)
        obj.pk, obj.secret = made.pk, made.secret

    def response_add(self, request: HttpRequest, obj: Host, post_url_continue: str | None = None) -> HttpResponse:
        """Its secret, instead of the list: a message on the list would be kept in a cookie or the session."""
        return self._show_secret(request, obj, title=f"{obj} is made")

    @admin.action(description="New secret", permissions=["change"])
    def choose_new_secret(self, request: HttpRequest, hosts: QuerySet[Host]) -> HttpResponse | None:
        """The page that asks, for one host: each secret has to be carried to its host at once."""
        ids = list(hosts.order_by("pk").values_list("pk", flat=True)[:2])
        if len(ids) != 1:
            messages.error(request, "Choose one host: its new secret is shown once, and has to be given to it then.")
            return None
        return HttpResponseRedirect(reverse("admin:servers_host_new_secret", args=ids))

    def new_secret_view(self, request: HttpRequest, host_id: int) -> HttpResponse:
        """Ask, and when the answer is yes, make a new secret and show it."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        host = Host.objects.filter(pk=host_id).first()
        if host is None:
            raise Http404("There is no such host.")
        if request.method == "POST":
            return self._rotate(request, host)
        return self._ask(request, host)

    def _ask(self, request: HttpRequest, host: Host) -> HttpResponse:
        until = host.previous_secret_until
        return page(
            self,
            request,
            "servers/new_secret.html",
            title=f"A new secret for {host}?",
            host=host,
            seen=_stamp(host),
            ends_now=f"The one before the present one is accepted until {until:%Y-%m-%d %H:%M} UTC. It would end now."
            if until and until > utc_now()
            else "",
            hours=creation.PREVIOUS_SECRET_FOR // timedelta(hours=1),
        )

    def _rotate(self, request: HttpRequest, host: Host) -> HttpResponse:
        if request.POST.get("seen") != _stamp(host):
            return self._back(request, host, f"Somebody gave {host} a new secret since: look at it again.")
        try:
            fresh = creation.rotate_secret(host.pk, now=utc_now(), previous_until=host.previous_secret_until)
        except CreationRefused as refusal:
            return self._back(request, host, refusal.detail)
        self.log_change(request, fresh, "Made a new secret.")
        return self._show_secret(request, fresh, title=f"{fresh} has a new secret")

    def _back(self, request: HttpRequest, host: Host, sentence: str) -> HttpResponse:
        messages.error(request, sentence)
        return HttpResponseRedirect(reverse("admin:servers_host_change", args=[host.pk]))

    def _show_secret(self, request: HttpRequest, host: Host, *, title: str) -> HttpResponse:
        # Functions: templates write their whole context into the log, at DEBUG, and it shows no secret.
        answer = page(
            self,
            request,
            "servers/secret.html",
            title=title,
            host=host,
            secret=lambda: host.secret,
            webhooks=lambda: request.build_absolute_uri(webhook_path(host)),
        )
        answer["Cache-Control"] = "no-store"
        return answer


def _stamp(host: Host) -> str:
    """Which rotation the page shows: another one changes it."""
    return host.previous_secret_until.isoformat() if host.previous_secret_until else ""
