"""The storm brake: a host or a region whose servers fail at once does not fill Need Check with healthy ones.

What it does to a server is decided at the server's failure, by reading only: whoever handles that holds locks
of servers, and must not wait for a row that all of them write. The rows are kept by the sweep.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, Q, QuerySet

from otp_service.events import log as event_log
from servers import history, storm_rules
from servers.models import Server, ServerStatusHistory, StormBrake
from servers.rules import FAILED_IN_ROW_REASON, Event, Minutes, NeedCheck, NeedCheckPath, Policy, StartCooldown
from servers.storm_rules import Figures, LetsGo, Limits, StaysOn

log = structlog.get_logger(__name__)

Step = StartCooldown | NeedCheck
Scope = tuple[str, str]  # host or region, and its name: what tells open brakes apart

_LOCK = 0x73746F72  # "stor": the advisory lock of the sweep, apart from everybody else's
_SUBJECTS = uuid.UUID("5d1f3c52-6f0e-4b0b-9a56-3c2f3f1c7a10")  # the subject of a scope's events is made from it


@dataclass(frozen=True, slots=True)
class Storm:
    """A storm that a server is in. `share`: now, or the largest so far of a brake that is on."""

    scope: str
    name: str
    share: float


# --- at a server's failure -----------------------------------------------------------------------------


def brake(server: Server, step: Step, policy: Policy, *, now: datetime, rng: random.Random) -> Step:
    """The step that is taken of a server whose threshold is reached: another one in a storm, if that is enforced.

    In shadow nothing is changed or drawn. Either way a row on the server tells of both steps.
    """
    mode = settings.STORM_BRAKE
    if mode == "off" or (storm := storm_of(server, now=now)) is None:
        return step
    data = {
        "scope": storm.scope,
        "name": storm.name,
        "share": round(storm.share, 4),
        "mode": mode,
        "without_brake": _plain(step),
        "with_brake": _cooldown(server.cooldown_times, storm_rules.braked_range(policy)),
    }
    note = f"{storm.scope} {storm.name}: {storm.share:.0%} ({mode})"
    history.change(server, Event.STORM_BRAKE, {}, at=now, note=note, data=data)
    return storm_rules.braked(server.cooldown_times, policy, now=now, rng=rng) if mode == "enforce" else step


def _plain(step: Step) -> dict[str, Any]:
    match step:
        case StartCooldown():
            return _cooldown(step.number, step.drawn_from)
        case NeedCheck():
            return {"step": "need_check", "path": step.path.value}


def _cooldown(number: int, drawn_from: Minutes) -> dict[str, Any]:
    return {"step": "cooldown", "number": number, "drawn_from": list(drawn_from)}


def storm_of(server: Server, *, now: datetime) -> Storm | None:
    """The storm that a server is in whose threshold is reached now: its host's, else its region's. Reads only."""
    running = {
        (scope, name): share
        for scope, name, share in StormBrake.objects.filter(off_at__isnull=True).values_list("scope", "name", "share")
    }
    for scope, name in _scopes(server) if running else ():
        if (scope, name) in running:
            return Storm(scope, name, running[scope, name])
    return _beginning(server, now)


def _scopes(server: Server) -> list[Scope]:
    return [(StormBrake.Scope.HOST.value, str(server.host.number)), (StormBrake.Scope.REGION.value, server.region)]


def _beginning(server: Server, now: datetime) -> Storm | None:
    """A storm that the sweep has not seen yet. The server counts among those that sent, however long ago it was."""
    others = _reached(now).exclude(server=server)
    host, region = Q(server__host_id=server.host_id), Q(server__region=server.region)
    reached = others.filter(host | region).aggregate(
        host=Count("server_id", distinct=True, filter=host), region=Count("server_id", distinct=True, filter=region)
    )
    senders = _senders(now).exclude(pk=server.pk)
    of_scope = {"host": senders.filter(host_id=server.host_id), "region": senders.filter(region=server.region)}
    for scope, of_them in of_scope.items():
        figures = _figures(of_them, reached[scope] + 1, _limits(scope))
        if storm_rules.in_storm(figures, _limits(scope)):
            return Storm(scope, dict(_scopes(server))[scope], figures.share)
    return None


def _figures(others: QuerySet[Server], reached: int, limits: Limits) -> Figures:
    """Counted no further than is needed to know."""
    if not storm_rules.may_be_in_storm(reached, limits):
        return Figures()
    most = storm_rules.senders_to_count(reached, limits)
    return Figures(sent=len(others.values_list("pk")[:most]) + 1, reached=reached)


def _limits(scope: str) -> Limits:
    minimum = settings.STORM_MIN_HOST if scope == StormBrake.Scope.HOST else settings.STORM_MIN_REGION
    return Limits(minimum, settings.STORM_ON_SHARE)


def _senders(now: datetime) -> QuerySet[Server]:
    return Server.objects.filter(last_sent_at__gte=now - settings.STORM_WINDOW)


def _reached(now: datetime) -> QuerySet[ServerStatusHistory]:
    """Rows of the window that tell of a threshold reached, of servers that sent in it."""
    since = now - settings.STORM_WINDOW
    started = Q(event=Event.COOLDOWN_STARTED, data__reason=FAILED_IN_ROW_REASON)
    ended = Q(event=Event.NEED_CHECK, data__path=NeedCheckPath.LADDER.value)
    rows = ServerStatusHistory.objects.filter(event__in=(Event.COOLDOWN_STARTED, Event.NEED_CHECK), at__gte=since)
    return rows.filter(started | ended, server__last_sent_at__gte=since)


# --- the sweep -----------------------------------------------------------------------------------------


def watch_storms(*, now: datetime) -> int:
    """Put brakes on and let them go, by what happened in the window; returns how many did either.

    Safe to run at any time and several at once: the one that comes second leaves it to the first.
    """
    with transaction.atomic():
        if not _is_ours():
            return 0
        running = {(brake.scope, brake.name): brake for brake in StormBrake.objects.filter(off_at__isnull=True)}
        if settings.STORM_BRAKE == "off":
            return sum(_let_go(brake, 0.0, now) for brake in running.values())
        figures = _figures_by_scope(now)
        off = sum(_follow(brake, figures.get(key, Figures()).share, now) for key, brake in running.items())
        on = {key: found for key, found in figures.items() if key not in running}
        return off + sum(_put_on(key, found, now) for key, found in on.items())


def _is_ours() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        return bool(cursor.fetchone()[0])


def _figures_by_scope(now: datetime) -> dict[Scope, Figures]:
    pairs = _senders(now).values_list("host__number", "region").annotate(Count("pk")).order_by()
    reached = _reached(now).values_list("server__host__number", "server__region")
    hits = _by_scope(reached.annotate(Count("server_id", distinct=True)).order_by())
    return {key: Figures(sent, hits[key]) for key, sent in _by_scope(pairs).items()}


def _by_scope(counts: QuerySet[Any, tuple[int, str, int]]) -> Counter[Scope]:
    """Counts by host and region, added up for each host and for each region."""
    sums: Counter[Scope] = Counter()
    for host, region, count in counts:
        sums[StormBrake.Scope.HOST.value, str(host)] += count
        sums[StormBrake.Scope.REGION.value, region] += count
    return sums


def _put_on(key: Scope, figures: Figures, now: datetime) -> bool:
    scope, name = key
    if not storm_rules.in_storm(figures, _limits(scope)):
        return False
    brake = StormBrake.objects.create(scope=scope, name=name, mode=settings.STORM_BRAKE, share=figures.share, on_at=now)
    _tell("server.storm_on", brake, figures.share, now)
    return True


def _follow(brake: StormBrake, share: float, now: datetime) -> bool:
    off_share, window = settings.STORM_OFF_SHARE, settings.STORM_WINDOW
    match storm_rules.next_state(brake, share, off_share=off_share, window=window, now=now):
        case LetsGo():
            return _let_go(brake, share, now)
        case StaysOn(largest, calm_since):
            if (largest, calm_since) != (brake.share, brake.calm_since):
                StormBrake.objects.filter(pk=brake.pk).update(share=largest, calm_since=calm_since)
    return False


def _let_go(brake: StormBrake, share: float, now: datetime) -> bool:
    StormBrake.objects.filter(pk=brake.pk).update(off_at=now)
    _tell("server.storm_off", brake, share, now)
    return True


def _tell(event: str, brake: StormBrake, share: float, now: datetime) -> None:
    """To the log of events, and as the alert to whoever watches the logs once it is true."""
    data: Mapping[str, Any] = {
        "scope": brake.scope,
        "name": brake.name,
        "share": round(share, 4),
        "mode": brake.mode,
    }
    subject = uuid.uuid5(_SUBJECTS, f"{brake.scope}:{brake.name}")
    event_log.record(event, at=now, subject_uuid=subject, data=dict(data))
    transaction.on_commit(lambda: log.warning(event.removeprefix("server."), **data))
