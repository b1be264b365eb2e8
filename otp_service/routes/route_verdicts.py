"""A person's verdicts on routes in the admin: chosen on the list, asked about, given with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminTextareaWidget

from otp_service.core.clock import time_of_day, utc_now
from otp_service.routes import breakers
from otp_service.routes.breaker_models import LONGEST_REASON, Breaker
from otp_service.routes.breaker_rules import BreakerState
from otp_service.routes.models import Route
from otp_service.web.admin import page

#: Of labels, by state.
COLOURS = {
    BreakerState.CLOSED.value: "success",
    BreakerState.OPEN.value: "danger",
    BreakerState.HALF_OPEN.value: "warning",
    BreakerState.ISOLATED.value: "danger",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a person may decide: its action, how people read it, and the service that carries it out."""

    action: str
    label: str
    meaning: str
    done: str
    carry_out: Callable[..., bool]


ISOLATE = Verdict(
    "isolate",
    "Isolate",
    "Nothing goes over these routes, not even a code that has no other way, until somebody enables them.",
    "isolated",
    breakers.isolate,
)
ENABLE = Verdict(
    "enable_again",
    "Enable again",
    "Everything may go over these routes at once, whatever shut them off; what fails from now on counts anew.",
    "enabled",
    breakers.enable,
)


class ReasonForm(forms.Form):
    """Why."""

    reason = forms.CharField(
        max_length=LONGEST_REASON,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text="it stands in the events, and beside an isolated route",
    )


Action = Callable[[Any, HttpRequest, "QuerySet[Route]"], HttpResponse | None]


def verdict_action(verdict: Verdict) -> Action:
    """The list's action: a page that asks why, and then the verdict."""

    @admin.action(description=verdict.label, permissions=["change"])
    def act(model_admin: ModelAdmin, request: HttpRequest, routes: QuerySet[Route]) -> HttpResponse | None:
        form = ReasonForm(request.POST if "reason" in request.POST else None)
        if not form.is_valid():
            found = list(routes.order_by("name"))
            template = "routes/verdict.html"
            return page(model_admin, request, template, title=verdict.label, verdict=verdict, routes=found, form=form)
        _carry_out(verdict, request, routes, form.cleaned_data["reason"])
        return None

    act.__name__ = verdict.action
    return act


def _carry_out(verdict: Verdict, request: HttpRequest, routes: QuerySet[Route], reason: str) -> None:
    by, now = request.user.get_username(), utc_now()
    changed: dict[bool, list[str]] = {True: [], False: []}
    for name in routes.order_by("name").values_list("name", flat=True):
        changed[verdict.carry_out(name, by=by, reason=reason, now=now)].append(name)
    if changed[True]:
        messages.success(request, f"{verdict.done.capitalize()}: {', '.join(changed[True])}.")
    if changed[False]:
        messages.warning(request, f"Unchanged, as nothing was to be done: {', '.join(changed[False])}.")


def sentence(route: Route, now: datetime) -> str:
    """How a route's breaker stands, for people. Times are UTC."""
    breaker = Breaker.objects.filter(route=route.name).first() or Breaker(route=route.name)
    since = f" since {time_of_day(breaker.since, now)}" if breaker.since else ""
    match BreakerState(breaker.state):
        case BreakerState.CLOSED:
            return f"closed{since}: it carries everything"
        case BreakerState.OPEN:
            probes = f", probes from {time_of_day(breaker.until, now)}" if breaker.until else ""
            return f"open{since}: it is left alone{probes}"
        case BreakerState.HALF_OPEN:
            return f"half open{since}: a few probes say whether it works again"
        case BreakerState.ISOLATED:
            return f"isolated{since} by {breaker.isolated_by}: {breaker.reason}"
