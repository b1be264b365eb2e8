"""A person's verdicts on servers, many at once. Each changed server gets one row of history, with who decided and why.

The number of queries does not depend on how many servers there are, but for what a chat-preheat asks: one more for
each region that they are of.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from otp_service.core import clock
from otp_service.core.errors import ServiceError
from otp_service.events import log
from servers import chats, evidence, history, receivers
from servers.groups import default_policy
from servers.hosts import online_hosts
from servers.models import ChatPreheat, Server
from servers.preheat_rules import pick_receiver
from servers.recovery_rules import Change, Decision, NoChange, PersonVerdict, Refused, Talk, decide, no_partner
from servers.rules import NeedCheckPath


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a verdict is not carried out on one server, and what to do instead. `code` is stable, for programs."""

    server_id: int
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Row ids, ascending: those that a verdict changed, those that were so already (and in which way), the refused."""

    changed: tuple[int, ...]
    unchanged: tuple[int, ...]
    refused: tuple[Refusal, ...]
    why_unchanged: Mapping[int, str] = field(default_factory=dict)


class VerdictRefused(ServiceError):
    """Some of the servers are not in a state for this verdict, so nothing was changed on any."""

    status = 409
    code = "verdict_refused"
    title = "The verdict cannot be carried out"

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        first, *others = refusals
        more = f" So it is with {len(others)} more: errors has a row for each." if others else ""
        rows = [{"code": refusal.code, "detail": refusal.detail} for refusal in refusals]
        super().__init__(f"Nothing was changed. {first.detail}{more}", errors=rows)
        self.refusals = tuple(refusals)


#: What goes into a server's row of history beside who decided and why.
Told = Mapping[int, Mapping[str, Any]]


def carry_out(
    verdict: PersonVerdict,
    server_ids: Collection[int],
    *,
    now: datetime,
    by: str,
    reason: str = "",
    rng: random.Random = clock.rng,
    all_or_nothing: bool = True,
) -> Outcome:
    """Carry out a verdict on servers, by row id; on those that it changes nothing of, nothing is written.

    Raises VerdictRefused, and changes nothing, if any of them is not in a state for it or is unknown. With
    `all_or_nothing=False` the others are done, and the outcome names those that are refused.
    """
    with transaction.atomic():
        servers = _locked(server_ids)
        partners: dict[int, Server] = {}
        if verdict is PersonVerdict.START_CHAT_PREHEAT:
            decided, partners = _decide_talks(servers, now, rng)
        else:
            decided = {server: decide(verdict, server, now) for server in servers}
        refused = _refusals(decided) + _unknown(server_ids, servers)
        if refused and all_or_nothing:
            raise VerdictRefused(refused)
        changes = {server: decision for server, decision in decided.items() if isinstance(decision, Change)}
        _write(verdict, changes, partners, now=now, by=by, reason=reason)
    kept = {server.pk: decision.detail for server, decision in decided.items() if isinstance(decision, NoChange)}
    return Outcome(tuple(server.pk for server in changes), tuple(kept), tuple(refused), kept)


def _locked(server_ids: Collection[int]) -> list[Server]:
    servers = Server.objects.filter(id__in=set(server_ids)).order_by("id").select_related("host")
    return list(servers.select_for_update(no_key=True, of=("self",)))


def _refusals(decided: Mapping[Server, Decision]) -> list[Refusal]:
    return [
        Refusal(server.pk, decision.code, decision.detail)
        for server, decision in decided.items()
        if isinstance(decision, Refused)
    ]


def _unknown(server_ids: Collection[int], servers: Collection[Server]) -> list[Refusal]:
    missing = sorted(set(server_ids) - {server.pk for server in servers})
    detail = "There is no such server any more: look it up again."
    return [Refusal(server_id, "unknown_server", detail) for server_id in missing]


def _write(
    verdict: PersonVerdict,
    changes: Mapping[Server, Change],
    partners: Mapping[int, Server],
    *,
    now: datetime,
    by: str,
    reason: str,
) -> None:
    if not changes:
        return
    note, told = reason, _told(verdict, list(changes), partners, now)
    if verdict is PersonVerdict.NEED_CHECK:
        note = evidence.need_check_note(NeedCheckPath.ADMIN, reason)
        log.record_many([evidence.need_check_event(server, NeedCheckPath.ADMIN, now) for server in changes])
    data = {"by": by, "reason": reason}
    history.change_many(
        [
            history.ServerChange(server, change.event, change.new, note, data | dict(told.get(server.pk, {})))
            for server, change in changes.items()
        ],
        at=now,
    )
    _begin_talks(partners, now)
    chats.stop([server for server, change in changes.items() if change.ends_talks], now)


def _told(verdict: PersonVerdict, servers: Sequence[Server], partners: Mapping[int, Server], now: datetime) -> Told:
    """Evidence is gathered before anything is written: the servers of a host are told as they were."""
    if verdict is PersonVerdict.NEED_CHECK:
        path = {"path": NeedCheckPath.ADMIN.value}
        return {server_id: path | found for server_id, found in evidence.collected(servers, now).items()}
    messages = settings.CHAT_PREHEAT_MESSAGES
    return {server_id: {"partner": str(p.uuid), "messages": messages} for server_id, p in partners.items()}


# --- chat-preheat --------------------------------------------------------------------------------------


def _decide_talks(
    servers: Sequence[Server], now: datetime, rng: random.Random
) -> tuple[dict[Server, Decision], dict[int, Server]]:
    """What is decided, and whom each server that begins to talk will talk with."""
    hosts = online_hosts(now)
    talks = _talks(servers, hosts)
    decided = {s: decide(PersonVerdict.START_CHAT_PREHEAT, s, now, talks[s.pk]) for s in servers}
    beginning = [server for server, decision in decided.items() if isinstance(decision, Change)]
    partners = _partners(beginning, hosts, now, rng)
    alone = {server: no_partner(server) for server in beginning if server.pk not in partners}
    return decided | alone, partners


def _talks(servers: Sequence[Server], hosts: Collection[int]) -> dict[int, Talk]:
    ids = [server.pk for server in servers]
    running = set(ChatPreheat.objects.filter(server__in=ids, ended_at__isnull=True).values_list("server_id", flat=True))
    longest = settings.CHAT_PREHEAT_MESSAGES * max(settings.CHAT_PREHEAT_PAUSE_MINUTES) * default_policy().minute
    return {s.pk: Talk(running=s.pk in running, host_online=s.host_id in hosts, longest=longest) for s in servers}


def _partners(
    servers: Sequence[Server], hosts: Collection[int], now: datetime, rng: random.Random
) -> dict[int, Server]:
    """By server. Where there are fewer partners than servers, some talk with several."""
    if not servers:
        return {}
    pairs = receivers.pair(servers, hosts=hosts, now=now, rng=rng)
    partners = {server.pk: partner for server, partner in pairs}
    given = list(partners.values())
    for server in servers:
        if server.pk not in partners and (shared := pick_receiver(server, given, rng)):
            partners[server.pk] = shared
    return partners


def _begin_talks(partners: Mapping[int, Server], now: datetime) -> None:
    if partners:
        planned = settings.CHAT_PREHEAT_MESSAGES
        ChatPreheat.objects.bulk_create(
            ChatPreheat(server_id=server_id, partner=partner, planned=planned, due_at=now, started_at=now)
            for server_id, partner in partners.items()
        )
