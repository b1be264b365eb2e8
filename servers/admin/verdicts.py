"""A person's verdicts on servers in the admin: a page that says what would happen and asks why, then it happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin

from otp_service.core.clock import utc_now
from otp_service.web.admin import page
from servers import recovery
from servers.admin.chosen import Chosen, NothingChosen, back, chosen_in
from servers.admin.forms import VerdictForm
from servers.admin.pages import Shown, who
from servers.hosts import online_hosts
from servers.models import ChatPreheat, Server
from servers.recovery_rules import Change, NoChange, PersonVerdict, Refused, Talk, decide


@dataclass(frozen=True, slots=True)
class Words:
    """How people read a verdict."""

    label: str
    meaning: str


WORDS: Mapping[PersonVerdict, Words] = {
    PersonVerdict.RECOVER: Words(
        "Recover 🩹", "Out of Need Check, into rotation, with nothing counted against it. Mend the cause first."
    ),
    PersonVerdict.MARK_ACTIVE: Words(
        "Mark active ✅", "Into rotation from wherever it stands, out of a running cooldown too; its counters go to 0."
    ),
    PersonVerdict.START_PREHEAT: Words(
        "Start preheat 🔥",
        "The slow start of a new server: internal sends for some days, and few client messages; its counters go to 0.",
    ),
    PersonVerdict.START_CHAT_PREHEAT: Words(
        "Start chat-preheat 💬",
        "It talks with another server in turns, and gets no client messages meanwhile; its counters go to 0.",
    ),
    PersonVerdict.NEED_CHECK: Words("Need Check 🚨", "Out of rotation until a person decides."),
    PersonVerdict.LOST: Words("Lost", "Given up, as its account or its device is gone. It leaves the rotation."),
    PersonVerdict.DISABLE: Words("Disable", "Switched off. It leaves the rotation, its counters stay as evidence."),
    PersonVerdict.DELETE: Words("Delete (its history stays)", "Gone from the fleet; its row and its history stay."),
}


@dataclass(frozen=True, slots=True)
class Preview:
    """Which servers a verdict would change, and why it would not change the others."""

    changed: Shown[Server]
    unchanged: Shown[str]
    refused: Shown[str]


Action = Callable[[Any, HttpRequest, "QuerySet[Server]"], HttpResponse]


def verdict_action(verdict: PersonVerdict) -> Action:
    """The list's action that leads to the page of a verdict."""

    @admin.action(description=WORDS[verdict].label, permissions=["change"])
    def act(model_admin: ModelAdmin, request: HttpRequest, servers: QuerySet[Server]) -> HttpResponse:
        return _ask(model_admin, request, verdict, Chosen.of_list(request, servers))

    act.__name__ = verdict.value
    return act


def verdict_view(model_admin: ModelAdmin, request: HttpRequest, verdict: str) -> HttpResponse:
    """The page of a verdict (GET), and the verdict (POST)."""
    if not model_admin.has_change_permission(request):
        raise PermissionDenied
    if verdict not in set(PersonVerdict):
        raise Http404("There is no such verdict.")
    try:
        chosen = chosen_in(request)
    except NothingChosen as fault:
        messages.error(request, fault.sentence)
        return back()
    if request.method == "POST":
        return _carry_out(model_admin, request, PersonVerdict(verdict), chosen)
    return _ask(model_admin, request, PersonVerdict(verdict), chosen)


def open_verdicts(server: Server, now: datetime) -> list[tuple[str, str]]:
    """The verdicts that would change something of a server: name and label."""
    return [
        (verdict.value, WORDS[verdict].label)
        for verdict in PersonVerdict
        if _preview(verdict, [server], now).changed.count
    ]


def _ask(
    model_admin: ModelAdmin,
    request: HttpRequest,
    verdict: PersonVerdict,
    chosen: Chosen,
    form: VerdictForm | None = None,
) -> HttpResponse:
    preview = _preview(verdict, chosen.servers(), utc_now())
    return page(
        model_admin,
        request,
        "servers/verdict.html",
        title=WORDS[verdict].label,
        verdict=verdict,
        words=WORDS[verdict],
        preview=preview,
        chosen=chosen,
        form=form or VerdictForm(initial={"ids": chosen.ids_text}),
    )


def _carry_out(model_admin: ModelAdmin, request: HttpRequest, verdict: PersonVerdict, chosen: Chosen) -> HttpResponse:
    form = VerdictForm(request.POST)
    if not form.is_valid():
        return _ask(model_admin, request, verdict, chosen, form)
    outcome = recovery.carry_out(
        verdict,
        chosen.ids,
        now=utc_now(),
        by=who(request),
        reason=form.cleaned_data["reason"],
        all_or_nothing=False,
    )
    _tell(request, WORDS[verdict].label, outcome)
    return back(chosen)


def _tell(request: HttpRequest, label: str, outcome: recovery.Outcome) -> None:
    parts = [f"{len(outcome.changed)} done"]
    if outcome.unchanged:
        parts.append(f"{len(outcome.unchanged)} unchanged")
    if outcome.refused:
        parts.append(f"{len(outcome.refused)} refused")
    level = messages.SUCCESS if outcome.changed and not outcome.refused else messages.WARNING
    refused = _lines(Shown([refusal.detail for refusal in outcome.refused]))
    unchanged = _lines(Shown(list(outcome.why_unchanged.values())))
    messages.add_message(request, level, format_html("{}: {}.{}{}", label, ", ".join(parts), refused, unchanged))


def _lines(sentences: Shown[str]) -> SafeString:
    """Each on a line of its own; of very many, the first ones."""
    more = [f"… and {sentences.more} more."] if sentences.more else []
    return format_html_join("", "<br>{}", ((sentence,) for sentence in [*sentences.first, *more]))


def _preview(verdict: PersonVerdict, servers: Sequence[Server], now: datetime) -> Preview:
    changed, unchanged, refused = [], [], []
    talks = _talks(servers, now) if verdict is PersonVerdict.START_CHAT_PREHEAT else {}
    for server in servers:
        match decide(verdict, server, now, talks.get(server.pk, Talk())):
            case Change():
                changed.append(server)
            case NoChange(detail):
                unchanged.append(detail)
            case Refused(_, detail):
                refused.append(detail)
    return Preview(Shown(changed), Shown(unchanged), Shown(refused))


def _talks(servers: Sequence[Server], now: datetime) -> dict[int, Talk]:
    """What a chat-preheat depends on beside the server, in two queries; whom it talks with is not asked before."""
    hosts = online_hosts(now)
    running = ChatPreheat.objects.filter(server__in=[server.pk for server in servers], ended_at__isnull=True)
    talking = set(running.values_list("server_id", flat=True))
    return {server.pk: Talk(server.pk in talking, server.host_id in hosts) for server in servers}
