"""The end of cooldowns: the sweep that gives each one that is due its verdict."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet

from otp_service.core import clock
from servers import history, rules
from servers.deliverability_limits import NO_COOLDOWN, set_need_check
from servers.models import Server, ServerStatusHistory
from servers.rules import Event

Released = tuple[Server, rules.Release]


def check_cooldown_servers(*, now: datetime, rng: random.Random = clock.rng, batch: int = 200) -> int:
    """Give every server whose cooldown is over its verdict, and carry it out; returns how many were looked at.

    Safe to run at any time and several at once: a server that somebody holds is left for the next run.
    """
    done = 0
    while (looked_at := _check_batch(now, rng, batch)) == batch:
        done += looked_at
    return done + looked_at


def due_servers(now: datetime) -> QuerySet[Server]:
    """Servers whose cooldown is over at `now`, the oldest first, locked; those that somebody holds are left out."""
    due = Server.objects.filter(cooldown=True, cooldown_end_date__lte=now).order_by("cooldown_end_date")
    return due.select_for_update(skip_locked=True, no_key=True)


def _check_batch(now: datetime, rng: random.Random, batch: int) -> int:
    released: list[Released] = []
    with transaction.atomic():
        due = due_servers(now)[:batch]
        for server in due:
            match decision := _verdict(server, now, rng):
                case rules.Release():
                    released.append((server, decision))
                case rules.Extend():
                    _extend(server, decision, now)
                case rules.NeedCheck(path, streak):
                    set_need_check(server.pk, now=now, path=path, fail_open_streak=streak)
        _release(released, now)
    return len(due)


def _verdict(server: Server, now: datetime, rng: random.Random) -> rules.Release | rules.Extend | rules.NeedCheck:
    assert server.cooldown_end_date is not None  # the database sees to it: in cooldown iff it has dates
    proof = rules.warm_up(
        planned=server.cooldown_warmup_at is not None,
        sent=server.cooldown_warmup_sent_date is not None,
        confirmed=server.cooldown_warmup_delivered,
    )
    return rules.verdict(
        proof,
        extensions=server.cooldown_extensions,
        fail_open_streak=server.fail_open_streak,
        end=server.cooldown_end_date,
        now=now,
        rng=rng,
    )


def _extend(server: Server, decision: rules.Extend, now: datetime) -> None:
    """Stay in, with the warm-up of the new round still to be sent."""
    new = {
        "cooldown_end_date": decision.until,
        "cooldown_extensions": server.cooldown_extensions + 1,
        "cooldown_warmup_at": decision.warmup_at,
        "cooldown_warmup_uuid": None,
        "cooldown_warmup_sent_date": None,
        "cooldown_warmup_delivered": False,
    }
    note = f"extension {server.cooldown_extensions + 1} until {decision.until:%Y-%m-%d %H:%M:%S} UTC"
    history.change(server, Event.COOLDOWN_EXTENDED, new, at=now, note=note, data={"number": server.cooldown_times})


def _release(released: Sequence[Released], now: datetime) -> None:
    """Let servers out. One statement for all that end with the same streak, so that a large sweep stays short."""
    by_streak: dict[int, list[int]] = defaultdict(list)
    for server, decision in released:
        by_streak[decision.fail_open_streak].append(server.pk)
    for streak, ids in by_streak.items():
        Server.objects.filter(pk__in=ids).update(
            **NO_COOLDOWN,
            failed_in_row=0,
            fail_open_streak=streak,
            released_at=now,
            next_send_date=F("cooldown_end_date") + settings.RELEASE_PAUSE,  # the end as it was before this statement
        )
    ServerStatusHistory.objects.bulk_create(_released_row(server, decision, now) for server, decision in released)


def _released_row(server: Server, decision: rules.Release, now: datetime) -> ServerStatusHistory:
    assert server.cooldown_start_date is not None
    assert server.cooldown_end_date is not None
    old = {
        "cooldown": True,
        "failed_in_row": server.failed_in_row,
        "fail_open_streak": server.fail_open_streak,
        "next_send_date": server.next_send_date,
    }
    new = {
        "cooldown": False,
        "failed_in_row": 0,
        "fail_open_streak": decision.fail_open_streak,
        "next_send_date": server.cooldown_end_date + settings.RELEASE_PAUSE,
    }
    data = history.old_and_new(old, new) | {
        "verdict": decision.verdict.value,
        "number": server.cooldown_times,
        "start": server.cooldown_start_date.isoformat(),
        "end": server.cooldown_end_date.isoformat(),
        "extensions": server.cooldown_extensions,
        "reason": server.cooldown_reason,
    }
    note = f"cooldown #{server.cooldown_times}: {decision.verdict.value}"
    return ServerStatusHistory(server=server, event=Event.COOLDOWN_FINISHED, at=now, note=note, data=data)
