"""How times, lengths and counts are written in the sentences that people read about servers. Pure."""

from __future__ import annotations

import datetime as dt

from otp_service.core.clock import time_of_day

MINUTE = dt.timedelta(minutes=1)


def clock(at: dt.datetime, now: dt.datetime, *, seconds: bool = False) -> str:
    """A moment as `14:05 UTC`, with its date when that is not today's."""
    return f"{time_of_day(at, now, seconds=seconds)} UTC"


def minutes(low: int, high: int) -> str:
    """A range of minutes, both ends included; in hours where both are whole ones, from two of them on."""
    if low >= 120 and low % 60 == 0 and high % 60 == 0:
        return f"{_span(low // 60, high // 60)} h"
    return f"{_span(low, high)} min"


def length(time: dt.timedelta, minute: dt.timedelta = MINUTE) -> str:
    """A length of time in minutes that last `minute` each; in hours from two of them on, to the nearest."""
    whole = round(time / minute)
    return f"{round(whole / 60)} h" if whole >= 120 else f"{whole} min"


def count(number: int, one: str, many: str) -> str:
    """`1 group`, `3 groups`."""
    return f"{number} {one if number == 1 else many}"


def _span(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low}–{high}"  # noqa: RUF001 - the dash of a range
