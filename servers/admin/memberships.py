"""Groups of many servers at once in the admin: a page that asks which and how, then it is done."""

from __future__ import annotations

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.admin import ModelAdmin

from otp_service.core.clock import utc_now
from otp_service.core.errors import ServiceError
from otp_service.web.admin import page
from servers import memberships
from servers.admin.chosen import Chosen, NothingChosen, back, chosen_in
from servers.admin.forms import MembershipForm
from servers.admin.pages import Shown, who
from servers.models import Server


@admin.action(description="Groups…", permissions=["change"])
def choose_groups(model_admin: ModelAdmin, request: HttpRequest, servers: QuerySet[Server]) -> HttpResponse:
    """The list's action that leads to the page."""
    return _ask(model_admin, request, Chosen.of_list(request, servers))


def memberships_view(model_admin: ModelAdmin, request: HttpRequest) -> HttpResponse:
    """The page (GET), and the change (POST)."""
    if not model_admin.has_change_permission(request):
        raise PermissionDenied
    try:
        chosen = chosen_in(request)
    except NothingChosen as fault:
        messages.error(request, fault.sentence)
        return back()
    if request.method != "POST":
        return _ask(model_admin, request, chosen)
    form = MembershipForm(request.POST)
    if not form.is_valid():
        return _ask(model_admin, request, chosen, form)
    return _change(model_admin, request, chosen, form)


def _ask(
    model_admin: ModelAdmin, request: HttpRequest, chosen: Chosen, form: MembershipForm | None = None
) -> HttpResponse:
    return page(
        model_admin,
        request,
        "servers/memberships.html",
        title="Groups of servers",
        shown=Shown(chosen.servers()),
        chosen=chosen,
        form=form or MembershipForm(initial={"ids": chosen.ids_text}),
    )


def _change(model_admin: ModelAdmin, request: HttpRequest, chosen: Chosen, form: MembershipForm) -> HttpResponse:
    groups = [group.pk for group in form.cleaned_data["groups"]]
    how = memberships.How(form.cleaned_data["how"])
    try:
        done = memberships.change_groups(chosen.ids, groups, how, now=utc_now(), by=who(request))
    except ServiceError as refusal:
        form.add_error(None, refusal.detail)
        return _ask(model_admin, request, chosen, form)
    messages.success(request, f"Groups: {done.changed} of {done.servers} servers changed; the others were so already.")
    return back(chosen)
