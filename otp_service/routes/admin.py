"""Routes and dispatchers for people."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import structlog
from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import Field, Model, OuterRef, QuerySet, Subquery
from django.forms.fields import InvalidJSONInput
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_post_parameters
from unfold.decorators import action, display
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminPasswordWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from otp_service.core.clock import utc_now
from otp_service.core.crypto import CryptoError
from otp_service.messages.rules import Lane
from otp_service.routes.breaker_models import Breaker
from otp_service.routes.breaker_rules import BreakerState
from otp_service.routes.models import Dispatcher, Route, RouteDay
from otp_service.routes.parts import Encoding
from otp_service.routes.providers import checks, registry
from otp_service.routes.providers.base import Health
from otp_service.routes.route_rules import RouteKind
from otp_service.routes.route_verdicts import COLOURS, ENABLE, ISOLATE, sentence, verdict_action
from otp_service.web.admin import NeverDeleted, ReadOnly, RemembersWhatItShowed

log = structlog.get_logger(__name__)

_SETTINGS_LENGTH = 10_000  # characters
_SETTINGS_DEPTH = 10  # levels of objects and lists, the settings themselves the first
_CREDENTIAL_LENGTH = 4_000  # characters: a private key is shorter
_CREDENTIAL = "credential_"  # begins the name of each input

#: A page's sections: headings and fields. The inputs of credentials follow the last one.
_SECTIONS = (
    (None, ("name", "kind", "enabled", "breaker", "priority", "weight")),
    ("What it may carry", ("lanes", "prefixes", "sender_names", "encodings", "max_parts", "opens_at", "closes_at")),
    ("Limits", ("tps", "daily_quota", "used_today", "in_flight_cap", "expected_ms", "delivery_s")),
    ("Reports", ("has_receipts", "receipt_wait_s", "can_query")),
    ("Price", ("cost_per_part", "currency")),
    ("Provider", ("settings", "credentials_set")),
)
_ONCE_SAVED = ("breaker", "used_today", "credentials_set")
#: Its servers have no names, its texts no parts, and POOLS_BY_PREFIX says what numbers go to it, and in which order.
_OF_POOLS = (
    *("name", "kind", "enabled", "breaker", "lanes", "tps", "daily_quota", "used_today", "in_flight_cap"),
    *("expected_ms", "delivery_s"),
)


class SettingsField(forms.JSONField):
    """A small JSON object that a database can hold; nothing at all is an empty one."""

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) > _SETTINGS_LENGTH:
            raise forms.ValidationError(f"Write at most {_SETTINGS_LENGTH} characters.")
        try:
            settings_given = super().to_python(value)
        except (ValueError, RecursionError):  # thousands of digits, or of brackets
            raise forms.ValidationError(self.error_messages["invalid"], code="invalid") from None
        if sentence := _json_fault(settings_given, _SETTINGS_DEPTH):
            raise forms.ValidationError(sentence)
        return {} if settings_given is None else settings_given

    def bound_data(self, data: Any, initial: Any) -> Any:
        try:
            self.to_python(data)
        except forms.ValidationError:
            return InvalidJSONInput(data)
        return super().bound_data(data, initial)


def _json_fault(value: Any, levels: int) -> str:
    """Why a database would not take it, or a page could not show it; "" where it may be."""
    match value:
        case dict() | list() if levels == 0:
            return f"Nest objects and lists at most {_SETTINGS_DEPTH} deep."
        case dict():
            inner = [*value, *value.values()]
        case list():
            inner = value
        case str() if "\0" in value or value != value.encode(errors="ignore").decode():
            return "Null characters and halves of surrogate pairs are not allowed."
        case float() if not math.isfinite(value):
            return "Numbers must be finite."
        case _:
            return ""
    return next(filter(None, (_json_fault(each, levels - 1) for each in inner)), "")


class RouteForm(RemembersWhatItShowed):
    """A route, its settings as its provider reads them, and inputs that only take credentials in."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stored = _stored_credentials(self.instance)
        self._names = _credential_names(self.instance)
        for name in self._names:
            self.fields[_CREDENTIAL + name] = forms.CharField(
                label=f"{name} (credential)",
                required=False,
                strip=False,
                max_length=_CREDENTIAL_LENGTH,
                widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
                help_text=f"{'set' if name in self._stored else 'not set'}; what is written here takes its place",
            )
        if self._stored:
            self.fields["forget"] = forms.MultipleChoiceField(
                label="forget credentials",
                choices=[(name, name) for name in sorted(self._stored)],
                required=False,
                widget=UnfoldAdminCheckboxSelectMultipleWidget,
                help_text="those chosen are removed",
            )

    def given_credentials(self) -> dict[str, str]:
        """What was written into the inputs, by name; "" for what is to be forgotten."""
        forgotten = dict.fromkeys(self.cleaned_data.get("forget", ()), "")
        inputs = ((name, self.cleaned_data.get(_CREDENTIAL + name)) for name in self._names)
        return forgotten | {name: value for name, value in inputs if value}

    def _post_clean(self) -> None:
        super()._post_clean()
        kind = self.instance.kind
        if self.errors or kind not in list(RouteKind):
            return
        if sentence := self._fault(RouteKind(kind)):
            self.add_error("settings" if "settings" in self.fields else None, sentence)

    def _fault(self, kind: RouteKind) -> str:
        """Credentials are judged of an enabled route only: they are given on its page, once it is saved."""
        route = self.instance
        if route.pk is not None and not route.enabled and "settings" not in self.changed_data:
            return ""  # whatever its settings are, it may be switched off
        if (sentence := registry.settings_fault(kind, route.settings)) or not route.enabled:
            return sentence
        sentence = registry.fault(kind, route.settings, _merged(self._stored, self.given_credentials()))
        if sentence and route.pk is None:
            return f"{sentence} Save it without `enabled` first: its credentials are given on its page."
        return sentence


def _stored_credentials(route: Route) -> dict[str, str]:
    """Those that a row has; none where they cannot be opened: to write new ones mends it."""
    try:
        return route.given_credentials
    except CryptoError:
        return {}


def _credential_names(route: Route | None) -> tuple[str, ...]:
    """Those that the page of a row asks for; none while it is being made: its kind is not known yet."""
    if route is None or route.pk is None:
        return ()
    return registry.credential_names(RouteKind(route.kind), route.settings)


def _merged(stored: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in {**stored, **given}.items() if value}


@admin.register(Route)
class RouteAdmin(NeverDeleted):
    """Ways out and their limits. One that is not wanted any more is disabled: attempts name it."""

    list_display = (
        "name",
        "enabled",
        "is_used",
        "breaker_state",
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
    actions = (verdict_action(ISOLATE), verdict_action(ENABLE))
    show_full_result_count = False
    actions_detail = ("check_now",)

    def formfield_for_dbfield(self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        """Those that Django has no good input for."""
        if db_field.name in {"name", "kind"}:
            kwargs["help_text"] = f"{db_field.help_text}. It cannot be changed later"
        match db_field.name:
            case "lanes":
                return _boxes(Lane, db_field)
            case "encodings":
                return _boxes(Encoding, db_field)
            case "settings":
                widget = UnfoldAdminTextareaWidget(attrs={"rows": 3})
                told = f"{db_field.help_text}. {registry.names()} Credentials are asked for once the route is saved"
                return SettingsField(required=False, initial=dict, widget=widget, help_text=told)
            case "prefixes" | "sender_names":
                field = super().formfield_for_dbfield(db_field, request, widget=UnfoldAdminTextInputWidget, **kwargs)
                # The model would find the same faults, but the form cuts its sentences off.
                field.base_field.validators += db_field.base_field.validators  # type: ignore[attr-defined]  # arrays
                return field
            case "kind":
                kinds = [(kind.value, kind.value) for kind in RouteKind if registry.is_available(kind)]
                return super().formfield_for_dbfield(db_field, request, choices=kinds, **kwargs)
            case _:
                return super().formfield_for_dbfield(db_field, request, **kwargs)

    def get_form(
        self, request: HttpRequest, obj: Model | None = None, change: bool = False, **kwargs: Any
    ) -> type[forms.ModelForm[Any]]:
        """The form adds the inputs of credentials by itself: they are no columns."""
        route = obj if isinstance(obj, Route) else None
        inputs = self._inputs(request, route)
        kwargs["fields"] = [name for name in self.get_fields(request, route) if name not in inputs]
        form = super().get_form(request, obj, change=change, **kwargs)
        return type(form.__name__, (RouteForm, form), {})

    @method_decorator(sensitive_post_parameters())
    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """No error page shows what was written into the inputs."""
        answer: HttpResponse = super().changeform_view(request, *args, **kwargs)
        return answer

    def save_model(self, request: HttpRequest, obj: Route, form: forms.ModelForm[Any], change: bool) -> None:
        assert isinstance(form, RouteForm)
        if not change:
            obj.save()
            return
        columns = {field.name for field in Route._meta.fields}
        obj.save(update_fields=[name for name in form.changed_data if name in columns])
        if given := form.given_credentials():
            _write_credentials(obj, given)
            names = ", ".join(sorted(given))
            log.info("route_credentials_changed", route=obj.name, credentials=names, user=request.user.pk)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Route]:
        routes: QuerySet[Route] = super().get_queryset(request)
        today = RouteDay.objects.filter(route=OuterRef("name"), day=utc_now().date())
        breaker = Breaker.objects.filter(route=OuterRef("name"))
        return routes.annotate(
            taken_today=Subquery(today.values("used")[:1]), breaker_now=Subquery(breaker.values("state")[:1])
        )

    @display(description="breaker", ordering="breaker_now", label=COLOURS)  # type: ignore[untyped-decorator]  # unfold has no types
    def breaker_state(self, route: Route) -> str:
        """Whether it is left alone, by its breaker or by a person."""
        return getattr(route, "breaker_now", None) or BreakerState.CLOSED.value

    @admin.display(description="breaker")
    def breaker(self, route: Route) -> str:
        """How it stands, since when, and why."""
        return sentence(route, utc_now())

    def has_check_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """For the button: of outside routes, for who may change them."""
        route = self.get_object(request, object_id) if object_id else None
        is_asked = route is None or registry.is_outside(RouteKind(route.kind))
        return is_asked and self.has_change_permission(request, route)

    @action(  # type: ignore[untyped-decorator]  # unfold has no types
        description="Check now", icon="network_check", url_path="check-now", permissions=["check"]
    )
    def check_now(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Asks the provider whether the route could be used; changes nothing."""
        route = self.get_object(request, object_id)
        if route is None or not registry.is_outside(RouteKind(route.kind)):
            raise Http404("There is no such route of a provider.")
        # Of SMPP a dispatcher is asked, and none holds a route whose settings cannot be read.
        kind = RouteKind(route.kind)
        fault = registry.fault(kind, route.settings, _stored_credentials(route)) if kind is RouteKind.SMPP else ""
        health = Health(False, fault) if fault else checks.check(route.name)
        self.message_user(request, health.detail, messages.SUCCESS if health.ok else messages.ERROR)
        return redirect("admin:routes_route_change", route.pk)

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

    @admin.display(description="credentials")
    def credentials_set(self, route: Route) -> str:
        """Which there are; never what they are."""
        try:
            names = sorted(route.given_credentials)
        except CryptoError:
            return "cannot be opened: give them again"
        return ", ".join(f"{name}: set" for name in names) or "none set"

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """A new route is enabled once its credentials are given."""
        return {"enabled": False, **super().get_changeform_initial_data(request)}

    def get_fieldsets(self, request: HttpRequest, obj: Route | None = None) -> list[tuple[str | None, dict[str, Any]]]:
        sections = [(heading, [name for name in names if _is_shown(name, obj)]) for heading, names in _SECTIONS]
        sections[-1][1].extend(self._inputs(request, obj))
        return [(heading, {"fields": names}) for heading, names in sections if names]

    def get_fields(self, request: HttpRequest, obj: Route | None = None) -> list[str]:
        return [name for _, options in self.get_fieldsets(request, obj) for name in options["fields"]]

    def _inputs(self, request: HttpRequest, obj: Route | None) -> tuple[str, ...]:
        """Those of credentials that the page of a row has, for who may write into them."""
        if obj is None or not self.has_change_permission(request, obj):
            return ()
        forget = ("forget",) if _stored_credentials(obj) else ()
        return (*(_CREDENTIAL + name for name in _credential_names(obj)), *forget)

    def get_readonly_fields(self, request: HttpRequest, obj: Route | None = None) -> tuple[str, ...]:
        return () if obj is None else ("name", "kind", "breaker", "used_today", "credentials_set")


def _is_shown(name: str, route: Route | None) -> bool:
    if route is None:
        return name not in _ONCE_SAVED
    if route.kind == RouteKind.IMESSAGE_POOL:
        return name in _OF_POOLS
    return name != "credentials_set" or registry.is_outside(RouteKind(route.kind))


def _boxes(members: type[StrEnum], db_field: Field[Any, Any]) -> forms.MultipleChoiceField:
    return forms.MultipleChoiceField(
        choices=[(member.value, member.value) for member in members],
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=db_field.help_text,
    )


def _write_credentials(route: Route, given: Mapping[str, str]) -> None:
    """Put them in among those that the row has now; in the transaction of the page."""
    row = Route.objects.select_for_update(no_key=True).get(pk=route.pk)
    merged = _merged(_stored_credentials(row), given)
    Route.objects.filter(pk=row.pk).update(credentials=json.dumps(merged) if merged else None)


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
