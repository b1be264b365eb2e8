"""How many slots given rates need, by Little's law: calls in flight = rate x how long a call takes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from otp_service.messages.rules import Lane
from scheduler.lab.scenarios import PUSH_HEALTHY, PUSH_HUNG, SMS_HEALTHY, SMS_SLOW
from scheduler.rules import SlotSizes

#: Columns of `sizing_rows` that hold words.
WORD_COLUMNS = frozenset({0, 1, 7})


@dataclass(frozen=True, slots=True)
class Call:
    """What one call of a lane is to its provider, in one state of it."""

    lane: Lane
    provider: str
    latency: timedelta


CALLS = (
    Call(Lane.OTP, "SMS healthy", SMS_HEALTHY),
    Call(Lane.OTP, "SMS slow", SMS_SLOW),
    Call(Lane.PROMO, "push healthy", PUSH_HEALTHY),
    Call(Lane.PROMO, "push hangs", PUSH_HUNG),
)


@dataclass(frozen=True, slots=True)
class Need:
    """What calls of one kind need at a rate; rates are messages a second.

    `sure_rate` is what the slots carry that no other lane may hold, `most_rate` what all slots carry that it may
    have while nobody else uses them.
    """

    call: Call
    rate: float
    slots: int
    sure_rate: float
    most_rate: float
    verdict: str


def slots_for(rate: float, latency: timedelta) -> int:
    """Calls in flight at `rate` a second: rounded up, as there is no half slot."""
    return math.ceil(round(rate * latency.total_seconds(), 6))


def needs(*, otp_rate: float, promo_rate: float, sizes: SlotSizes) -> list[Need]:
    """Each lane over its provider, healthy and slow, beside what `sizes` would hold."""
    rates = {Lane.OTP: otp_rate, Lane.PROMO: promo_rate}
    return [_need(call, rates[call.lane], sizes) for call in CALLS]


def _need(call: Call, rate: float, sizes: SlotSizes) -> Need:
    sure, most = _slots_of(call.lane, sizes)
    slots = slots_for(rate, call.latency)
    seconds = call.latency.total_seconds()
    return Need(call, rate, slots, sure / seconds, most / seconds, verdict(slots, sure=sure, most=most))


def _slots_of(lane: Lane, sizes: SlotSizes) -> tuple[int, int]:
    """Slots that no other lane may hold, and all that the lane may ever hold."""
    if lane is Lane.OTP:
        return sizes.floor + sizes.reserve, sizes.floor + sizes.shared
    return 0, sizes.shared - sizes.reserve


def verdict(slots: int, *, sure: int, most: int) -> str:
    """Whether so many slots are there."""
    if slots <= sure:
        return "held, whatever the others do"
    if slots <= most:
        return "held while others leave it shared slots"
    return f"not held: {slots - most:,} too few"


def sizing_rows(found: Sequence[Need]) -> list[tuple[str, ...]]:
    """A heading and a line for each need, for a table."""
    heading = ("lane", "over", "call takes", "rate/s", "slots needed", "sure rate/s", "most rate/s", "with these slots")
    return [heading, *(_row(need) for need in found)]


def _row(need: Need) -> tuple[str, ...]:
    return (
        need.call.lane.value,
        need.call.provider,
        f"{need.call.latency.total_seconds():g} s",
        f"{need.rate:,g}",
        f"{need.slots:,}",
        f"{need.sure_rate:,.0f}",
        f"{need.most_rate:,.0f}",
        need.verdict,
    )
