"""What the lab plays: how slow each provider is, how much there is to send, and for how long. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import timedelta

#: otp goes by SMS, promo by push.
SMS_HEALTHY, SMS_SLOW = timedelta(milliseconds=300), timedelta(seconds=1.5)
PUSH_HEALTHY = timedelta(milliseconds=50)
PUSH_HUNG = timedelta(seconds=3)  # the call ends by its time-out
PUSH_HUNG_RAISED = timedelta(seconds=30)  # somebody raised that time-out


class Scenario(enum.StrEnum):
    """What is wrong with the providers."""

    HEALTHY = "healthy"
    PUSH_HANGS = "push-hangs"
    SMS_SLOW = "sms-slow"
    PUSH_HANGS_LONG = "push-hangs-long"
    BOTH = "both"

    @property
    def words(self) -> str:
        """For people."""
        return _WORDS[self]

    @property
    def sms(self) -> timedelta:
        """How long an SMS call takes."""
        return SMS_SLOW if self in {Scenario.SMS_SLOW, Scenario.BOTH} else SMS_HEALTHY

    @property
    def push(self) -> timedelta:
        """How long a push call takes."""
        return _HUNG.get(self, PUSH_HEALTHY)

    @property
    def push_hangs(self) -> bool:
        """Whether a push call ends by its time-out."""
        return self in _HUNG


_HUNG = {
    Scenario.PUSH_HANGS: PUSH_HUNG,
    Scenario.PUSH_HANGS_LONG: PUSH_HUNG_RAISED,
    Scenario.BOTH: PUSH_HUNG,
}
_WORDS = {
    Scenario.HEALTHY: "all healthy",
    Scenario.PUSH_HANGS: f"push hangs {PUSH_HUNG.total_seconds():g} s",
    Scenario.SMS_SLOW: f"SMS takes {SMS_SLOW.total_seconds():g} s",
    Scenario.PUSH_HANGS_LONG: f"push hangs {PUSH_HUNG_RAISED.total_seconds():g} s",
    Scenario.BOTH: "SMS slow, push hangs",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """How many slots there are, and how much is sent."""

    floor: int
    shared: int
    otp_per_s: int
    promo_rows: int

    @property
    def reserve(self) -> int:
        """The shared slots that promo never holds under D: 30 %."""
        return self.shared * 3 // 10


SMALL = Scale(floor=6, shared=14, otp_per_s=10, promo_rows=20_000)
FULL = Scale(floor=60, shared=1140, otp_per_s=200, promo_rows=500_000)


@dataclass(frozen=True, slots=True)
class Timing:
    """When otp come in. The run starts with the first call for promo; its last part is for what has piled up."""

    seconds: float = 25.0

    @property
    def otp_from(self) -> float:
        """Seconds after the start at which the first otp is accepted.

        In the default run half a second after push calls that hang have taken the slots anew: the first otp are
        to meet slots that were just taken, not slots that are about to be freed.
        """
        return self.seconds * 0.14

    @property
    def otp_for(self) -> float:
        """Seconds over which otp are accepted."""
        return self.seconds * 0.6

    def otp_due(self, per_s: int) -> list[float]:
        """Seconds after the start at which each otp is accepted: steadily, so many a second."""
        return [self.otp_from + number / per_s for number in range(round(per_s * self.otp_for))]
