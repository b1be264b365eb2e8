"""What people are told about a server: gathers the figures, in a few queries, and asks the rules for sentences."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Q

from servers import group_rules, outlook_next, outlook_rules, rules
from servers.evidence import RECOVERIES, newest_deliveries
from servers.groups import default_policy
from servers.models import Server, ServerStatusHistory, StormBrake
from servers.outlook_rules import Figures, HostSeen, Limits, Preheat, Taken
from servers.preheat import default_plan, sends_of
from servers.preheat_rules import Preheating
from servers.rules import Event, Status, WhyNot
from servers.selection import why_not_of

#: Which row tells that a server came to stand so.
_TAKEN_BY = {
    Status.NEED_CHECK: Event.NEED_CHECK,
    Status.LOST: Event.LOST,
    Status.DISABLED: Event.DISABLED,
    Status.DELETED: Event.DELETED,
}
_IN_ROTATION = frozenset({Status.ACTIVE, Status.NEW})


@dataclass(frozen=True, slots=True)
class Outlook:
    """Why it may not send; how it is, the group in force and why, what happens next (the nearest first), in words."""

    why_not: WhyNot | None
    state: str
    group: str
    next: tuple[str, ...]


def of(server: Server, *, now: datetime) -> Outlook:
    """What people are told about `server` at `now`. The number of queries follows its state, never its past."""
    return told(figures_of(server, now=now), now=now)


def told(figures: Figures, *, now: datetime) -> Outlook:
    """The sentences that figures of `now` are told in."""
    following = tuple(outlook_next.following(figures, now))
    group = outlook_rules.group(figures.groups, now)
    return Outlook(figures.why_not, outlook_rules.state(figures, now), group, following)


def figures_of(server: Server, *, now: datetime) -> Figures:
    """Everything that the sentences are made of."""
    groups = list(server.groups.all())
    policy = rules.policy_in_force(default_policy(), group_rules.group_in_force(groups, now))
    return Figures(
        server=server,
        why_not=why_not_of(server, now=now),
        policy=policy,
        deliveries=_deliveries(server, policy, now),
        groups=groups,
        host=HostSeen(server.host.number, server.host.last_seen_at),
        limits=_limits(),
        taken=_taken(server),
        lost_at=_lost_at(server),
        preheat=_preheat(server),
        braked=_is_braked(server),
    )


def _deliveries(server: Server, policy: rules.Policy, now: datetime) -> rules.Deliveries:
    needed = policy.deliveries_to_reset(preheating=server.preheating)
    times = newest_deliveries(server, needed)
    return rules.count_deliveries(times, now=now, window=policy.reset_window, released_at=server.released_at)


def _limits() -> Limits:
    return Limits(
        messages_per_day=settings.BUDGET_MESSAGES_PER_DAY,
        new_recipients_per_day=settings.BUDGET_NEW_RECIPIENTS_PER_DAY,
        release_pause=settings.RELEASE_PAUSE,
        sweep=settings.COOLDOWN_SWEEP + settings.COOLDOWN_SWEEP_JITTER,
    )


def _taken(server: Server) -> Taken | None:
    """By the newest row of how it stands now."""
    event = _TAKEN_BY.get(Status(server.status))
    if event is None:
        return None
    row = ServerStatusHistory.objects.filter(server=server, event=event).order_by("-at", "-id").first()
    if row is None:
        return None
    recovered_at = row.data.get("recovered_at")
    return Taken(
        at=row.at,
        path=row.data.get("path", ""),
        by=row.data.get("by", ""),
        reason=row.data.get("reason") or (row.note if event is Event.LOST else ""),
        recovered_at=datetime.fromisoformat(recovered_at) if recovered_at else None,
    )


def _lost_at(server: Server) -> datetime | None:
    """When one that is signed out is given up; one that a person put back meanwhile has the whole time again."""
    if server.signed_in or server.signed_out_at is None or server.status not in _IN_ROTATION:
        return None
    put_back = ServerStatusHistory.objects.filter(server=server, event__in=RECOVERIES, at__gt=server.signed_out_at)
    newest = put_back.order_by("-at").values_list("at", flat=True).first()
    return (newest or server.signed_out_at) + settings.SIGNED_OUT_LOST_AFTER


def _preheat(server: Server) -> Preheat | None:
    if server.preheat_started_at is None:
        return None
    stands = Preheating(
        started_at=server.preheat_started_at,
        repeats=server.preheat_repeats,
        asked=server.preheat_asked_at is not None,
        hour=0,  # what is told does not depend on the time of the day, nor on what is drawn
        haste=0,
        sends=sends_of([server])[server.pk],
    )
    return Preheat(default_plan(), stands)


def _is_braked(server: Server) -> bool:
    """Whether a storm of its host or region bends what a failure leads to."""
    if settings.STORM_BRAKE != "enforce":
        return False
    host = Q(scope=StormBrake.Scope.HOST, name=str(server.host.number))
    region = Q(scope=StormBrake.Scope.REGION, name=server.region)
    return StormBrake.objects.filter(host | region, off_at__isnull=True).exists()
