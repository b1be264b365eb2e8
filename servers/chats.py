"""Chat-preheat: two servers talk in turns. Each turn is one internal send; the next follows when it has arrived."""

from __future__ import annotations

import enum
import random
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from servers.groups import default_policy
from servers.models import ChatPreheat, InternalSend, Server

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


def end_unanswered(now: datetime) -> int:
    """End the chats whose last message was waited for long enough; returns how many."""
    silent = ChatPreheat.objects.filter(ended_at__isnull=True, awaited=True, due_at__lte=now).order_by("id")
    return _end_all(silent, Outcome.UNANSWERED, now)


def stop(server: Server, now: datetime) -> None:
    """End the chats of a server that leaves the rotation, whichever of the two it is."""
    either = Q(server=server) | Q(partner=server)
    _end_all(ChatPreheat.objects.filter(either, ended_at__isnull=True).order_by("id"), Outcome.STOPPED, now)


def _end_all(chats: QuerySet[ChatPreheat], outcome: Outcome, now: datetime) -> int:
    with transaction.atomic():
        held = list(chats.select_for_update(no_key=True))
        for chat in held:
            end(chat, outcome, now)
    return len(held)
