"""The end of cooldowns: the proof that a server is alive, and the sweep that gives each one its verdict."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from otp_service.core import clock
from servers import gate_rules, history, rules
from servers.deliverability_limits import set_need_check
from servers.groups import default_policy
from servers.models import InternalSend, Server, ServerStatusHistory
from servers.recovery_rules import NO_COOLDOWN
from servers.rules import Event

Released = tuple[Server, gate_rules.Release]


def check_cooldown_servers(*, now: datetime, rng: random.Random = clock.rng, batch: int = 200) -> int:
    """Give every server whose cooldown is over its verdict, and carry it out; returns how many were looked at.

    Safe to run at any time and several at once: a server that somebody holds is left for the next run.
    """
    done = 0
    while (looked_at := _check_batch(now, rng, batch)) == batch:
        done += looked_at
    return done + looked_at


def due_servers(now: datetime) -> QuerySet[Server]:
    """Servers whose cooldown is over at `now`, the oldest first, locked; those that somebody holds are left out.

    One whose warm-up left a moment ago waits for its confirmation: it would be the first of every batch.
    """
    sent = Q(cooldown_warmup_sent_date__isnull=True) | Q(cooldown_warmup_sent_date__lte=now - settings.VERDICT_DELAY)
    due = Server.objects.filter(sent | Q(cooldown_warmup_delivered=True), cooldown=True, cooldown_end_date__lte=now)
    return due.order_by("cooldown_end_date").select_for_update(skip_locked=True, no_key=True)


def _check_batch(now: datetime, rng: random.Random, batch: int) -> int:
    released: list[Released] = []
    policy = default_policy()
    with transaction.atomic():
        due = due_servers(now)[:batch]
        for server in due:
            match decision := gate_rules.verdict(server, policy, now=now, rng=rng):
                case gate_rules.Release():
                    released.append((server, decision))
                case gate_rules.Extend():
                    _extend(server, decision, now)
                case rules.NeedCheck(path, streak):
                    if not set_need_check(server.pk, now=now, path=path, fail_open_streak=streak):
                        released.append((server, gate_rules.Release(rules.Verdict.FAIL_OPEN, streak or 0)))
                case gate_rules.Wait():
                    pass
        _release(released, now)
    return len(due)


def _extend(server: Server, decision: gate_rules.Extend, now: datetime) -> None:
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
            otp_in_hour=0,
            fail_open_streak=streak,
            released_at=now,
            next_send_date=F("cooldown_end_date") + settings.RELEASE_PAUSE,  # the end as it was before this statement
        )
    ServerStatusHistory.objects.bulk_create(_released_row(server, decision, now) for server, decision in released)


def _released_row(server: Server, decision: gate_rules.Release, now: datetime) -> ServerStatusHistory:
    assert server.cooldown_start_date is not None
    assert server.cooldown_end_date is not None
    new = NO_COOLDOWN | {
        "failed_in_row": 0,
        "otp_in_hour": 0,
        "fail_open_streak": decision.fail_open_streak,
        "released_at": now,
        "next_send_date": server.cooldown_end_date + settings.RELEASE_PAUSE,
    }
    data = {
        "verdict": decision.verdict.value,
        "number": server.cooldown_times,
        "start": server.cooldown_start_date.isoformat(),
        "end": server.cooldown_end_date.isoformat(),
        "extensions": server.cooldown_extensions,
        "reason": server.cooldown_reason,
    }
    note = f"cooldown #{server.cooldown_times}: {decision.verdict.value}"
    row, _ = history.told(server, Event.COOLDOWN_FINISHED, new, at=now, note=note, data=data)
    return row


def confirm_cooldown_warmup_delivery(server_id: int, *, now: datetime, uuid: UUID | None = None, via: str) -> bool:
    """Something that the server sent to another of ours arrived: proof of life, once a round. True when it counted.

    Any internal send of the running cooldown will do, whichever `uuid` is named, if it left no longer ago than
    WARMUP_PROOF_WINDOW. `via` says what told of it: `message_sent`, `inbound`, `query`.
    """
    with transaction.atomic(savepoint=False):
        server = history.locked(server_id)
        if not server.cooldown or server.cooldown_warmup_delivered:
            return False
        sent_at = _when_sent(server, uuid)
        if sent_at is None or not gate_rules.proves_life(sent_at, default_policy(), now):
            return False
        data = {"via": via, "uuid": str(uuid) if uuid else None, "sent_at": sent_at.isoformat()}
        new = {"cooldown_warmup_delivered": True}
        history.change(server, Event.WARMUP_CONFIRMED, new, at=now, note=f"via {via}", data=data)
        return True


def _when_sent(server: Server, uuid: UUID | None) -> datetime | None:
    """When that internal send left; without a known one, the newest of the cooldown. None: there was none in it."""
    sends = InternalSend.objects.filter(sender=server).exclude(state=InternalSend.State.NOT_SUBMITTED)
    named = sends.filter(uuid=uuid).values_list("created_at", flat=True).first() if uuid else None
    if named is not None:
        return named if server.cooldown_start_date and named >= server.cooldown_start_date else None
    newest = sends.filter(created_at__gte=server.cooldown_start_date).order_by("-created_at")
    known = (
        newest.values_list("created_at", flat=True).first(),
        None if _was_refused(server) else server.cooldown_warmup_sent_date,
    )
    return max((at for at in known if at is not None), default=None)


def _was_refused(server: Server) -> bool:
    """A warm-up that its host refused for the server's sake counts as sent at the verdict, and left never."""
    named = InternalSend.objects.filter(uuid=server.cooldown_warmup_uuid) if server.cooldown_warmup_uuid else None
    return named is not None and named.filter(state=InternalSend.State.NOT_SUBMITTED).exists()
