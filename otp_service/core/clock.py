"""The clock and the dice. Only edges (views, tasks, commands, the dispatcher's loops) read them."""

from __future__ import annotations

import datetime as dt
import random

#: The process-wide source of draws; tests hand in `random.Random(seed)` instead.
rng = random.Random()  # noqa: S311 - spreads load and picks intervals; nothing secret is drawn from it


def utc_now() -> dt.datetime:
    """The current time, aware, UTC."""
    return dt.datetime.now(dt.UTC)  # noqa: TID251 - the one place that reads the clock


def time_of_day(at: dt.datetime, now: dt.datetime, *, seconds: bool = False) -> str:
    """A moment for people: the time of the day (UTC), with its date when that is not today."""
    at, now = at.astimezone(dt.UTC), now.astimezone(dt.UTC)
    return f"{at:{'' if at.date() == now.date() else '%Y-%m-%d '}{'%H:%M:%S' if seconds else '%H:%M'}}"
