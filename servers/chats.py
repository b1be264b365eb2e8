"""Chat-preheat: two servers talk in turns. Each turn is one internal send; the next follows when it has arrived."""

from __future__ import annotations

import enum
import random
from collections.abc import Collection
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from servers.groups import default_policy
from servers.models import ChatPreheat, InternalSend, Server
from servers.rules import Status

Outcome = ChatPreheat.Outcome


class Turn(enum.Enum):
    """How a turn ended."""

    ARRIVED = enum.auto()
    SMS = enum.auto()
    FAILED = enum.auto()


def draw_pause(rng: random.Random) -> timedelta:
    """Between two turns."""
    return rng.uniform(*settings.CHAT_PREHEAT_PAUSE_MINUTES) * default_policy().minute


def end_turn(send: InternalSend, turn: Turn, *, now: datetime, rng: random.Random) -> None:
    """The turn that this send was is over. Nothing happens for a send of no chat, or of a turn that is over already."""
    if send.chat_id is None:
        return
    chat = ChatPreheat.objects.select_for_update(no_key=True).get(pk=send.chat_id)
    newest = InternalSend.objects.filter(chat=chat).order_by("-id").values_list("id", flat=True).first()
    if not chat.awaited or newest != send.pk:
        return  # it has ended, or this turn is over already
    match turn:
        case Turn.ARRIVED:
            _go_on(chat, now, rng)
        case Turn.SMS:
            end(chat, Outcome.SMS, now)
        case Turn.FAILED:
            end(chat, Outcome.FAILED, now)


def _go_on(chat: ChatPreheat, now: datetime, rng: random.Random) -> None:
    chat.made += 1
    if chat.made >= chat.planned:
        end(chat, Outcome.FINISHED, now)
        return
    chat.awaited, chat.due_at = False, now + draw_pause(rng)
    chat.save(update_fields=["made", "awaited", "due_at"])


def end(chat: ChatPreheat, outcome: Outcome, now: datetime) -> None:
    """End a chat whose row the caller holds."""
    chat.awaited, chat.due_at, chat.ended_at, chat.outcome = False, None, now, outcome.value
    chat.save(update_fields=["made", "awaited", "due_at", "ended_at", "outcome"])


def end_those_that_cannot_go_on(now: datetime) -> int:
    """End chats whose message was waited for long enough, or whose two cannot both talk; returns how many.

    Also those whose next message could not be handed over for that long, as a host stays away.
    """
    patience = settings.CHAT_PREHEAT_PATIENCE
    running = ChatPreheat.objects.filter(ended_at__isnull=True)
    out = ~Q(server__status=Status.ACTIVE) | ~Q(partner__status=Status.ACTIVE)
    stuck = Q(awaited=False, due_at__lte=now - patience)
    unanswered = _end_all(running.filter(awaited=True, due_at__lte=now), Outcome.UNANSWERED, now)
    return unanswered + _end_all(running.filter(out | stuck), Outcome.STOPPED, now)


def stop(servers: Collection[Server], now: datetime) -> None:
    """End the chats of servers that leave the rotation, whichever of the two they are."""
    if not servers:
        return
    ids = [server.pk for server in servers]
    either = Q(server__in=ids) | Q(partner__in=ids)
    _end_all(ChatPreheat.objects.filter(either, ended_at__isnull=True), Outcome.STOPPED, now)


def _end_all(chats: QuerySet[ChatPreheat], outcome: Outcome, now: datetime) -> int:
    # One that somebody holds is left to the next look: nobody waits for a chat who may hold a server.
    with transaction.atomic():
        rows = chats.order_by("id").select_for_update(no_key=True, skip_locked=True, of=("self",))
        held = list(rows.values_list("id", flat=True))
        new = {"awaited": False, "due_at": None, "ended_at": now, "outcome": outcome.value}
        return ChatPreheat.objects.filter(id__in=held).update(**new) if held else 0
