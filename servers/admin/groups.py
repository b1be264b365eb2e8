"""Groups for people. A change of one is an Event, with who did it; the services see to that."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected as ask_before_deleting
from django.db import transaction
from django.db.models import Count, Prefetch, QuerySet, prefetch_related_objects
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from otp_service.core.clock import utc_now
from servers.admin.forms import GroupForm
from servers.admin.pages import SavedByServices, who
from servers.group_rules import group_warnings, window_covers
from servers.groups import change_group, create_group, default_policy, delete_group
from servers.models import WHOLE_DAY_FROM, WHOLE_DAY_TO, Group, Server

#: Servers that a group's form names; the list shows the rest.
SERVERS_SHOWN = 200


class _GoneBefore(Exception):
    """A group that was to be deleted is not there any more. The sentence names it."""


@admin.register(Group)
class GroupAdmin(SavedByServices):
    """Cooldown and send-interval parameters, and whose they are."""

    form = GroupForm
    list_display = (
        "name",
        "priority",
        "window",
        "is_active_now",
        "server_count",
        "delay",
        "interval",
        "threshold",
        "rule_of_reset",
    )
    search_fields = ("name", "=uuid")
    ordering = ("-priority",)
    show_full_result_count = False
    actions = ("delete_selected",)
    readonly_fields = ("uuid", "is_active_now", "its_servers")
    fieldsets = (
        (None, {"fields": ("name", "priority", ("from_time", "to_time"), "is_active_now")}),
        (
            "Cooldown",
            {"fields": ("failed_in_row", ("cooldown_delay_from", "cooldown_delay_to"), "reset_rule")},
        ),
        ("Pace", {"fields": (("send_from_message_interval", "send_to_message_interval"),)}),
        ("Servers", {"fields": ("its_servers", "uuid")}),
    )
    add_fieldsets = (
        (None, {"fields": ("name", "priority", ("from_time", "to_time"))}),
        *fieldsets[1:3],
    )
    change_form_outer_before_template = "servers/group_warnings.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Group]:
        groups: QuerySet[Group] = super().get_queryset(request)
        return groups.annotate(servers_in_it=Count("servers"))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Group | None:
        """With its first servers, once: the page asks for what it shows again and again."""
        group: Group | None = super().get_object(request, object_id, from_field)
        if group is not None:
            first = Server.objects.order_by("region", "unit").only("region", "unit")[:SERVERS_SHOWN]
            prefetch_related_objects([group], Prefetch("servers", first, to_attr="first_servers"))
        return group

    @admin.display(description="window", ordering="from_time")
    def window(self, group: Group) -> str:
        """When it is in force."""
        if (group.from_time, group.to_time) == (WHOLE_DAY_FROM, WHOLE_DAY_TO):
            return "always"
        return f"{_time(group.from_time)}–{_time(group.to_time)} UTC"  # noqa: RUF001 - a dash between two times

    @admin.display(description="active now", boolean=True)
    def is_active_now(self, group: Group) -> bool:
        """Whether its window covers this moment."""
        return window_covers(group.from_time, group.to_time, utc_now())

    @admin.display(description="servers", ordering="servers_in_it")
    def server_count(self, group: Group) -> SafeString:
        """How many there are, and the way to them."""
        return _link(_list_of_servers(group), str(getattr(group, "servers_in_it")))  # noqa: B009 - an annotation

    @admin.display(description="cooldown", ordering="cooldown_delay_from")
    def delay(self, group: Group) -> str:
        """What every cooldown is drawn from."""
        return _minutes(group.cooldown_delay_from, group.cooldown_delay_to) or "the ladder"

    @admin.display(description="send interval", ordering="send_from_message_interval")
    def interval(self, group: Group) -> str:
        """The pause between two client messages."""
        return _minutes(group.send_from_message_interval, group.send_to_message_interval) or "default"

    @admin.display(description="threshold", ordering="failed_in_row")
    def threshold(self, group: Group) -> str:
        """Failures in a row that start a cooldown."""
        return str(group.failed_in_row or "default")

    @admin.display(description="reset rule", ordering="reset_rule")
    def rule_of_reset(self, group: Group) -> str:
        """What brings the count of cooldowns back to 0."""
        return group.reset_rule or "default"

    @admin.display(description="servers")
    def its_servers(self, group: Group) -> SafeString:
        """Links to its servers; of very many, to their list."""
        first: list[Server] = getattr(group, "first_servers", [])
        links = [_link(reverse("admin:servers_server_change", args=[server.pk]), str(server)) for server in first]
        if (more := getattr(group, "servers_in_it", 0) - len(first)) > 0:
            links.append(_link(_list_of_servers(group), f"and {more} more"))
        return format_html_join(", ", "{}", ((link,) for link in links)) if links else SafeString("none")

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], **form: Any) -> HttpResponse:
        warnings = group_warnings(form["obj"], default_policy()) if form["obj"] else []
        answer: HttpResponse = super().render_change_form(request, context | {"group_warnings": warnings}, **form)
        return answer

    def save_model(self, request: HttpRequest, obj: Group, form: ModelForm[Group], change: bool) -> None:
        values = {name: form.cleaned_data[name] for name in (form.changed_data if change else form.cleaned_data)}
        saved = obj
        if not change:
            saved = create_group(values, now=utc_now(), by=who(request))
            obj.pk, obj.uuid = saved.pk, saved.uuid
        elif values:
            saved = change_group(obj.uuid, values, now=utc_now(), by=who(request))
        for warning in group_warnings(saved, default_policy()):
            messages.warning(request, warning)

    def get_deleted_objects(
        self, objs: Iterable[Group], request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """What the confirmation says: the groups, and how many servers leave them. No row of theirs is deleted."""
        groups = list(Group.objects.filter(pk__in=[group.pk for group in objs]).annotate(n=Count("servers")))
        lines = [f"{group}: {_servers(group.n)} will be detached from it" for group in groups]
        return lines, {"groups": len(groups), "servers detached": sum(group.n for group in groups)}, set(), []

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One that is gone by the time that it is to be deleted is not said to be deleted now."""
        try:
            answer: HttpResponse = super().delete_view(request, object_id, extra_context)
        except _GoneBefore as gone:
            messages.warning(request, str(gone))
            return HttpResponseRedirect(reverse("admin:servers_group_changelist"))
        return answer

    def delete_model(self, request: HttpRequest, obj: Group) -> None:
        try:
            detached = delete_group(obj.uuid, now=utc_now(), by=who(request))
        except Group.DoesNotExist:
            raise _GoneBefore(f"Somebody deleted {obj} before.") from None
        messages.info(request, f"{obj}: {_servers(detached)} detached.")

    @admin.action(description="Delete selected groups", permissions=["delete"])
    def delete_selected(self, request: HttpRequest, groups: QuerySet[Group]) -> HttpResponse | None:
        """In place of Django's, which asks the same, and then says that all of them were deleted now."""
        if not request.POST.get("post"):
            answer: HttpResponse | None = ask_before_deleting(self, request, groups)
            return answer
        self._delete(request, list(groups.order_by("pk")))
        return None

    def _delete(self, request: HttpRequest, groups: Sequence[Group]) -> None:
        deleted, detached, gone = 0, 0, []
        for group in groups:
            try:
                with transaction.atomic():
                    self.log_deletions(request, [group])
                    detached += delete_group(group.uuid, now=utc_now(), by=who(request))
                deleted += 1
            except Group.DoesNotExist:
                gone.append(group.name)
        sentence = f"{deleted} deleted, {_servers(detached)} detached."
        if gone:
            sentence += f" Somebody deleted before: {', '.join(gone)}."
        messages.add_message(request, messages.SUCCESS if deleted and not gone else messages.WARNING, sentence)


def _time(at: dt.time) -> str:
    return f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"


def _minutes(low: int, high: int) -> str:
    return f"{low}–{high} min" if low and high else ""  # noqa: RUF001 - a dash between two numbers


def _servers(count: int) -> str:
    return "1 server" if count == 1 else f"{count} servers"


def _list_of_servers(group: Group) -> str:
    return f"{reverse('admin:servers_server_changelist')}?groups__id__exact={group.pk}"


def _link(address: str, text: str) -> SafeString:
    return format_html('<a href="{}" class="text-link">{}</a>', address, text)
