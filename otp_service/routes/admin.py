"""Routes and dispatchers for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.db.models import Field, OuterRef, QuerySet, Subquery
from django.forms.fields import InvalidJSONInput
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget, UnfoldAdminTextareaWidget

from otp_service.core.clock import utc_now
from otp_service.messages.rules import Lane
from otp_service.routes.models import Dispatcher, Route, RouteDay
from otp_service.routes.route_rules import RouteKind
from otp_service.web.admin import NeverDeleted, ReadOnly

_SETTINGS_LENGTH = 300  # characters: far more than any settings, far less than a depth that cannot be parsed


class SettingsField(forms.JSONField):
    """A small JSON object; nothing at all is an empty one."""

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) > _SETTINGS_LENGTH:
            raise forms.ValidationError(f"Write at most {_SETTINGS_LENGTH} characters.")
        settings_given = super().to_python(value)
        return {} if settings_given is None else settings_given

    def prepare_value(self, value: Any) -> Any:
        """Half of a surrogate pair is shown as it is escaped: no page can hold it."""
        return str(super().prepare_value(value)).encode(errors="backslashreplace").decode()

    def bound_data(self, data: Any, initial: Any) -> Any:
        if isinstance(data, str) and len(data) > _SETTINGS_LENGTH:
            return InvalidJSONInput(data)
        return super().bound_data(data, initial)


@admin.register(Route)
class RouteAdmin(NeverDeleted):
    """Ways out and their limits. One that is not wanted any more is disabled: attempts name it."""

    list_display = (
        "name",
        "enabled",
        "is_used",
        "carries",
        "priority",
        "expected_ms",
        "in_flight_cap",
        "tps",
        "daily_quota",
        "used_today",
    )
    list_filter = ("enabled", "kind", "channel")
    search_fields = ("name",)
    ordering = ("channel", "-priority", "name")
    show_full_result_count = False

    def formfield_for_dbfield(self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        """The two that Django has no good input for."""
        match db_field.name:
            case "lanes":
                return forms.MultipleChoiceField(
                    choices=[(lane.value, lane.value) for lane in Lane],
                    required=False,
                    widget=UnfoldAdminCheckboxSelectMultipleWidget,
                    help_text=db_field.help_text,
                )
            case "settings":
                widget = UnfoldAdminTextareaWidget(attrs={"rows": 3})
                return SettingsField(required=False, initial=dict, widget=widget, help_text=db_field.help_text)
            case _:
                return super().formfield_for_dbfield(db_field, request, **kwargs)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Route]:
        routes: QuerySet[Route] = super().get_queryset(request)
        today = RouteDay.objects.filter(route=OuterRef("name"), day=utc_now().date())
        return routes.annotate(taken_today=Subquery(today.values("used")[:1]))

    @admin.display(description="in use", boolean=True)
    def is_used(self, route: Route) -> bool:
        """Whether dispatchers see it: not a simulated one where these are off."""
        return route.enabled and (route.kind != RouteKind.SIMULATED or settings.SIMULATED_ROUTES)

    @admin.display(description="lanes")
    def carries(self, route: Route) -> str:
        """Whose messages may take it."""
        return ", ".join(route.lanes) or "all"

    @admin.display(description="of its quota used today (UTC)")
    def used_today(self, route: Route) -> str:
        """Calls that were made, or are being made. Counted where there is a quota."""
        taken = getattr(route, "taken_today", None)
        return "" if route.daily_quota is None else str(taken or 0)

    def get_fields(self, request: HttpRequest, obj: Route | None = None) -> tuple[str, ...]:
        limits = ("enabled", "lanes", "priority", "expected_ms", "in_flight_cap", "tps", "daily_quota")
        if obj is None:
            return ("name", "kind", *limits, "settings")
        # What numbers go to which pools, and in which order, is for POOLS_BY_PREFIX to say.
        if obj.kind == RouteKind.IMESSAGE_POOL:
            return ("name", "kind", *(name for name in limits if name != "priority"), "used_today")
        return ("name", "kind", *limits, "used_today", "settings")

    def get_readonly_fields(self, request: HttpRequest, obj: Route | None = None) -> tuple[str, ...]:
        return () if obj is None else ("name", "kind", "used_today")


@admin.register(Dispatcher)
class DispatcherAdmin(ReadOnly):
    """Dispatcher processes of the last day, the last heard of first."""

    list_display = ("name", "last_seen", "started_at", "slots", "in_flight")
    search_fields = ("name", "id")
    ordering = ("-last_seen_at", "id")
    fields = ("name", "id", "last_seen", "started_at", "slots", "in_flight", "stats")
    sortable_by = ()

    @admin.display(description="last seen (UTC)")
    def last_seen(self, dispatcher: Dispatcher) -> str:
        """To the second: a heartbeat is due every few."""
        return f"{dispatcher.last_seen_at:%Y-%m-%d %H:%M:%S}"

    @admin.display(description="slots")
    def slots(self, dispatcher: Dispatcher) -> str:
        """How many calls it may have in flight."""
        return _pairs(dispatcher.stats.get("slots", {}))

    @admin.display(description="in flight, by lane")
    def in_flight(self, dispatcher: Dispatcher) -> str:
        """How many it had when it last said so."""
        return _pairs(dispatcher.stats.get("in_flight", {}))


def _pairs(figures: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in figures.items())
