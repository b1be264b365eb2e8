"""When a sweep works next. Beat ticks more often than that; the time stands in the database, drawn anew each time.

A drawn pause cannot be a task's countdown: that would sit in a worker's memory, and be lost or run twice with it.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from django.db.models import Q

from otp_service.core import clock
from servers.models import SweepTime


def take_turn(
    name: str, *, now: datetime, pause: timedelta, jitter: timedelta, tick: timedelta, rng: random.Random = clock.rng
) -> bool:
    """Whether the sweep is to work now; of several that ask at once, one. The next turn is drawn with the answer.

    It comes after `pause` and up to `jitter` more: less is drawn, as the tick that finds it adds up to its own length.
    """
    next_at = now + pause + max(jitter - tick, timedelta()) * rng.random()
    # A time further away than any that is drawn was written by a clock that ran ahead.
    is_due = Q(next_at__lte=now) | Q(next_at__gt=now + pause + jitter)
    turn = SweepTime.objects.filter(is_due, name=name)
    # The condition is part of the statement: losing means that another process works already.
    if turn.update(next_at=next_at, last_at=now):
        return True
    _, is_first = SweepTime.objects.get_or_create(name=name, defaults={"next_at": next_at, "last_at": now})
    return is_first
