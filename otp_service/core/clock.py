"""The clock and the dice. Only edges (views, tasks, commands, the dispatcher's loops) read them."""

from __future__ import annotations

import datetime as dt
import random

#: The process-wide source of draws; tests hand in `random.Random(seed)` instead.
rng = random.Random()  # noqa: S311 - spreads load and picks intervals; nothing secret is drawn from it


def utc_now() -> dt.datetime:
    """The current time, aware, UTC."""
    return dt.datetime.now(dt.UTC)  # noqa: TID251 - the one place that reads the clock
