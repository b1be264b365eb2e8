"""The figures in force for servers: the settings, and what their groups say otherwise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from otp_service.events import log
from servers import history, rules
from servers.models import Group, Server


def default_policy() -> rules.Policy:
    """What the settings give."""
    return rules.Policy(
        threshold=settings.FAILED_IN_ROW,
        ladder=rules.ladder_of(settings.COOLDOWN_LADDER),
        send_interval=settings.SEND_INTERVAL_MINUTES,
        reset_rule=rules.ResetRule(settings.RESET_RULE),
        reset_deliveries=settings.RESET_DELIVERIES,
        reset_deliveries_preheating=settings.RESET_DELIVERIES_PREHEATING,
        reset_window=settings.RESET_WINDOW,
        warmup_min_margin=settings.WARMUP_MIN_MARGIN,
        long_cooldown=settings.LONG_COOLDOWN_MINUTES,
        warmup_after_long=settings.WARMUP_AFTER_LONG_MINUTES,
        warmup_after_short=settings.WARMUP_AFTER_SHORT_MINUTES,
        warmup_lead=settings.WARMUP_LEAD,
        proof_window=settings.WARMUP_PROOF_WINDOW,
        verdict_delay=settings.VERDICT_DELAY,
        extension=settings.EXTENSION_MINUTES,
        max_extensions=settings.MAX_EXTENSIONS,
        fail_open_limit=settings.FAIL_OPEN_LIMIT,
        preheat_pace=settings.PREHEAT_PACE,
        minute=timedelta(minutes=1) / settings.HEALTH_SPEED,
    )


def policies_of(server_ids: Iterable[int], *, now: datetime) -> dict[int, rules.Policy]:
    """The policy of each server at `now`, in one query."""
    ids = list(server_ids)
    groups: dict[int, list[Group]] = defaultdict(list)
    for link in Server.groups.through.objects.filter(server_id__in=ids).select_related("group"):
        groups[link.server_id].append(link.group)
    default = default_policy()
    return {key: rules.policy_in_force(default, rules.group_in_force(groups[key], now)) for key in ids}


def record_group_change(
    group: Group, *, old: Mapping[str, Any], new: Mapping[str, Any], now: datetime, by: str
) -> None:
    """Tell that a group's parameters changed, so that reports can say that a rule changed inside their window."""
    log.record("group.changed", at=now, subject_uuid=group.uuid, data=history.old_and_new(old, new) | {"by": by})
