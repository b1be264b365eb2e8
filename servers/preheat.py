"""Messages that our own servers send each other: warm-ups of cooldowns, preheats of new servers, chats.

Each run claims in one transaction, calls the hosts outside of any, and settles: two runs at once, or one that
dies in the middle, send no warm-up twice.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from otp_service.core import clock
from otp_service.events import log as events
from servers import chats, gate_rules, history, receivers
from servers.groups import default_policy
from servers.hosts import online_hosts
from servers.internal_sends import IMESSAGE, RELAYS, Outgoing, begin, hand_over, on_their_way
from servers.models import ChatPreheat, InternalSend, Server
from servers.preheat_rules import (
    AskPerson,
    Finish,
    Judged,
    Preheating,
    PreheatPlan,
    PreheatStep,
    RepeatDay,
    Rest,
    SendOne,
    Sent,
    preheat_step,
)
from servers.recovery_rules import NO_PREHEAT
from servers.relay.base import RelayAdapter
from servers.rules import Event, InternalKind, Status

State = InternalSend.State


# --- warm-ups ------------------------------------------------------------------------------------------


def preheat_otp_sender_names(
    *, now: datetime, rng: random.Random = clock.rng, adapter: RelayAdapter = RELAYS, batch: int = 200
) -> int:
    """Send the warm-up of every server in cooldown whose slot has come; returns how many their hosts took.

    A server that there is no receiver for, or whose host is away, is left for the next run.
    """
    hosts = online_hosts(now)
    taken = 0
    for ids, at in _in_batches(_wanting_warm_up(hosts, now), batch, now):
        taken += hand_over(_claim_warm_ups(ids, hosts, at, rng), now=at, rng=rng, adapter=adapter)
    return taken


def _in_batches(ids: Sequence[int], size: int, now: datetime) -> Iterator[tuple[Sequence[int], datetime]]:
    """Lots of `size`, each with the time when its turn comes: hosts that are slow to answer make a run last."""
    started = time.monotonic()
    for start in range(0, len(ids), size):
        elapsed = timedelta(seconds=time.monotonic() - started) if start else timedelta()
        yield ids[start : start + size], now + elapsed


def _wanting_warm_up(hosts: Collection[int], now: datetime) -> list[int]:
    """The rule says the last word, under the lock; this reads the index of cooldowns that end soon."""
    ending = Server.objects.filter(
        cooldown=True, cooldown_end_date__gt=now, cooldown_end_date__lte=now + settings.WARMUP_LEAD
    )
    wanting = ending.filter(
        status=Status.ACTIVE,
        signed_in=True,
        cooldown_warmup_at__lte=now,
        cooldown_warmup_sent_date__isnull=True,
        cooldown_warmup_delivered=False,
        host_id__in=hosts,
    )
    return list(wanting.order_by("cooldown_end_date").values_list("id", flat=True))


def _claim_warm_ups(ids: Sequence[int], hosts: Collection[int], now: datetime, rng: random.Random) -> list[Outgoing]:
    policy = default_policy()
    with transaction.atomic():
        held = _held(ids).filter(cooldown=True)
        due = [server for server in held if gate_rules.may_send_warm_up(server, policy, now)]
        return _begin(InternalKind.WARM_UP, due, hosts, now, rng)


def _held(ids: Collection[int]) -> QuerySet[Server]:
    """Active servers, locked, with their hosts; those that somebody holds are left for the next run."""
    servers = Server.objects.filter(id__in=ids, status=Status.ACTIVE, signed_in=True).order_by("id")
    return servers.select_related("host").select_for_update(no_key=True, skip_locked=True, of=("self",))


def _begin(
    kind: InternalKind, senders: Sequence[Server], hosts: Collection[int], now: datetime, rng: random.Random
) -> list[Outgoing]:
    # Asked in a statement of its own, with the rows held: what another run has begun is seen by now.
    busy = on_their_way(kind, senders)
    pairs = receivers.pair([server for server in senders if server.pk not in busy], hosts=hosts, now=now, rng=rng)
    return begin(kind, pairs, now=now, rng=rng)


# --- preheat -------------------------------------------------------------------------------------------


def default_plan() -> PreheatPlan:
    """What the settings give."""
    return PreheatPlan(
        per_day=settings.PREHEAT_PLAN,
        repeats=settings.PREHEAT_REPEATS,
        confirmed_share=settings.PREHEAT_CONFIRMED_SHARE,
        hours=settings.PREHEAT_HOURS,
        day=timedelta(days=1) / settings.HEALTH_SPEED,
    )


def send_preheats(
    *, now: datetime, rng: random.Random = clock.rng, adapter: RelayAdapter = RELAYS, batch: int = 200
) -> int:
    """Send what the plans of servers in preheat want now, and end the plans that are over; returns how many left."""
    hosts = online_hosts(now)
    preheating = Server.objects.filter(
        preheating=True, preheat_asked_at__isnull=True, status=Status.ACTIVE, signed_in=True, cooldown=False
    )
    taken = 0
    for ids, at in _in_batches(list(preheating.order_by("id").values_list("id", flat=True)), batch, now):
        taken += hand_over(_claim_preheats(ids, hosts, at, rng), now=at, rng=rng, adapter=adapter)
    return taken


def _claim_preheats(ids: Sequence[int], hosts: Collection[int], now: datetime, rng: random.Random) -> list[Outgoing]:
    plan, senders = default_plan(), []
    with transaction.atomic():
        held = list(_held(ids).filter(preheating=True, cooldown=False))
        sends = sends_of(held)
        for server in held:
            step = preheat_step(_preheating(server, sends[server.pk], now), plan, now)
            if isinstance(step, SendOne):
                senders.append(server)
            else:
                _end_day(server, step, now)
        return _begin(InternalKind.PREHEAT, [s for s in senders if s.host_id in hosts], hosts, now, rng)


def sends_of(servers: Sequence[Server]) -> dict[int, list[Sent]]:
    """What each server has sent since its preheat began."""
    sends: dict[int, list[Sent]] = defaultdict(list)
    rows = InternalSend.objects.filter(
        sender__in=[server.pk for server in servers],
        kind=InternalKind.PREHEAT,
        created_at__gte=F("sender__preheat_started_at"),
    )
    for sender_id, at, state, service in rows.values_list("sender_id", "created_at", "state", "service"):
        arrived = state in {State.SENT, State.DELIVERED} and service == IMESSAGE
        sends[sender_id].append(Sent(at, arrived, left=state != State.NOT_SUBMITTED))
    return sends


def _preheating(server: Server, sends: Sequence[Sent], now: datetime) -> Preheating:
    assert server.preheat_started_at is not None  # the database sees to it
    zones = settings.REGION_TIME_ZONES
    return Preheating(
        started_at=server.preheat_started_at,
        repeats=server.preheat_repeats,
        asked=server.preheat_asked_at is not None,
        hour=now.astimezone(ZoneInfo(zones.get(server.region, zones[""]))).hour,
        sends=sends,
        # Drawn once for each send, not at each look, which would favour the shortest pause.
        haste=random.Random(f"{server.uuid}/{len(sends)}").random(),  # noqa: S311 - nothing secret is drawn from it
    )


def _end_day(server: Server, step: PreheatStep, now: datetime) -> None:
    match step:
        case Finish():
            _note(server, Event.PREHEAT_FINISHED, NO_PREHEAT, step, now)
        case RepeatDay():
            new = {"preheat_repeats": server.preheat_repeats + 1}
            _note(server, Event.PREHEAT_UNPROVEN, new, step, now, outcome="repeated")
        case AskPerson(planned, confirmed):
            _note(server, Event.PREHEAT_UNPROVEN, {"preheat_asked_at": now}, step, now, outcome="asked")
            subject = {"region": server.region, "unit": server.unit, "planned": planned, "confirmed": confirmed}
            events.record("server.preheat_unproven", at=now, subject_uuid=server.uuid, data=subject)
        case Rest() | SendOne():
            pass


def _note(
    server: Server, event: Event, new: Mapping[str, Any], judged: Judged, now: datetime, *, outcome: str = "done"
) -> None:
    note = f"{outcome}: {judged.confirmed} of {judged.planned} confirmed"
    data = {"outcome": outcome, "planned": judged.planned, "confirmed": judged.confirmed}
    history.change(server, event, new, at=now, note=note, data=data)


# --- chat-preheat --------------------------------------------------------------------------------------


def take_turns(
    *, now: datetime, rng: random.Random = clock.rng, adapter: RelayAdapter = RELAYS, batch: int = 200
) -> int:
    """Send the next message of every chat-preheat that is due, and end those that are not answered."""
    chats.end_those_that_cannot_go_on(now)
    hosts = online_hosts(now)
    both_online = Q(server__host__in=hosts, partner__host__in=hosts)
    due = ChatPreheat.objects.filter(both_online, ended_at__isnull=True, awaited=False, due_at__lte=now)
    outgoing = [
        turn
        for chat_id in due.order_by("due_at").values_list("id", flat=True)[:batch]
        for turn in _turn(chat_id, now, rng)
    ]
    return hand_over(outgoing, now=now, rng=rng, adapter=adapter)


def _turn(chat_id: int, now: datetime, rng: random.Random) -> list[Outgoing]:
    """The next message of one chat; nothing if somebody else sees to it."""
    server_id, partner_id, made = ChatPreheat.objects.values_list("server_id", "partner_id", "made").get(pk=chat_id)
    ids = (server_id, partner_id) if made % 2 == 0 else (partner_id, server_id)
    with transaction.atomic():
        servers = {s.pk: s for s in _locked_pair(ids)}
        sender, receiver = servers[ids[0]], servers[ids[1]]
        chat = ChatPreheat.objects.select_for_update(no_key=True).get(pk=chat_id)
        if chat.ended_at is not None or chat.awaited or chat.made != made:
            return []
        if not all(_can_talk(server) for server in (sender, receiver)):
            chats.end(chat, ChatPreheat.Outcome.STOPPED, now)
            return []
        if on_their_way(InternalKind.CHAT_PREHEAT, [sender]):
            return []
        chat.awaited, chat.due_at = True, now + settings.CHAT_PREHEAT_PATIENCE
        chat.save(update_fields=["awaited", "due_at"])
        return begin(InternalKind.CHAT_PREHEAT, [(sender, receiver)], now=now, rng=rng, chat=chat)


def _locked_pair(ids: tuple[int, int]) -> QuerySet[Server]:
    servers = Server.objects.filter(id__in=ids).order_by("id").select_related("host")
    return servers.select_for_update(no_key=True, of=("self",))


def _can_talk(server: Server) -> bool:
    return server.status == Status.ACTIVE and server.signed_in and not server.cooldown
