"""Figures of boring servers, to be told in sentences; a test states only what matters to it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from servers.outlook_rules import Figures, HostSeen, Limits
from servers.rules import Deliveries, Policy, Status, WhyNot

NOON = dt.datetime(2026, 9, 1, 12, 0, 0, tzinfo=dt.UTC)
NONE_DELIVERED = Deliveries(in_window=0, since_release=0)
MINUTE, HOUR = dt.timedelta(minutes=1), dt.timedelta(hours=1)


@dataclass(frozen=True)
class Seen:
    """A server, as the sentences see it: active, nothing counted."""

    status: str = Status.ACTIVE
    signed_in: bool = True
    signed_out_at: dt.datetime | None = None
    cooldown: bool = False
    preheating: bool = False
    failed_in_row: int = 0
    cooldown_times: int = 0
    fail_open_streak: int = 0
    cooldown_end_date: dt.datetime | None = None
    cooldown_reason: str = ""
    cooldown_warmup_at: dt.datetime | None = None
    cooldown_warmup_sent_date: dt.datetime | None = None
    cooldown_warmup_delivered: bool = False
    cooldown_extensions: int = 0
    next_send_date: dt.datetime = NOON
    sends_day: dt.date | None = dt.date(2026, 9, 1)
    sends_today: int = 0
    new_recipients_today: int = 0


@dataclass(frozen=True)
class Window:
    """A group, as the sentences see it."""

    name: str
    priority: int
    from_time: dt.time = dt.time(0)
    to_time: dt.time = dt.time(23, 59, 59)


def in_cooldown(**columns: Any) -> Seen:
    """In cooldown #2 until 14:05, its slot at 13:40."""
    values: dict[str, Any] = {
        "cooldown": True,
        "cooldown_times": 2,
        "cooldown_end_date": NOON + 125 * MINUTE,
        "cooldown_reason": "failed in row",
        "cooldown_warmup_at": NOON + 100 * MINUTE,
    }
    return Seen(**(values | columns))


def figures(server: Seen | None = None, why_not: WhyNot | None = None, **more: Any) -> Figures:
    """On host 3, heard of at noon, no groups, no budgets."""
    values: dict[str, Any] = {
        "policy": Policy(),
        "deliveries": NONE_DELIVERED,
        "groups": (),
        "host": HostSeen(3, NOON),
        "limits": Limits(0, 0, release_pause=10 * MINUTE, sweep=7 * MINUTE),
    }
    return Figures(server=server or Seen(), why_not=why_not, **(values | more))
