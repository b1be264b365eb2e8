"""The ways of sharing slots that the lab sets side by side, each made of the dispatcher's own sizes. Pure."""

from __future__ import annotations

import enum

from otp_service.messages.rules import Lane
from scheduler.lab.scenarios import Scale
from scheduler.rules import LANE_ORDER, SlotSizes

_NOT_OTP = tuple(lane for lane in LANE_ORDER if lane is not Lane.OTP)


class Scheme(enum.StrEnum):
    """How otp and promo share the slots."""

    FIFO = "FIFO"  # one queue for all, first come, first served
    A = "A"  # priority: otp is claimed first, and waits for a slot like everybody
    B = "B"  # reserved: otp has slots of its own, and no others
    C = "C"  # floor and borrowing: otp has slots of its own, and borrows shared ones
    D = "D"  # bulkheads: C, with a cap on each route and a reserve that promo never holds

    @property
    def has_one_queue(self) -> bool:
        """Whether everything stands in one lane and one flow, in the order in which it was accepted."""
        return self is Scheme.FIFO

    @property
    def has_caps(self) -> bool:
        """Whether the calls in flight of each route are capped adaptively."""
        return self is Scheme.D


def dispatchers(scheme: Scheme, scale: Scale) -> tuple[tuple[tuple[Lane, ...], SlotSizes], ...]:
    """The lanes and slots of each dispatcher that makes up a scheme; together all slots of the scale."""
    match scheme:
        case Scheme.FIFO | Scheme.A:
            return ((LANE_ORDER, _sizes(0, scale.floor + scale.shared)),)
        case Scheme.B:
            return ((Lane.OTP,), _sizes(scale.floor, 0)), (_NOT_OTP, _sizes(0, scale.shared))
        case Scheme.C:
            return ((LANE_ORDER, _sizes(scale.floor, scale.shared)),)
        case Scheme.D:
            return ((LANE_ORDER, _sizes(scale.floor, scale.shared, scale.reserve)),)


def _sizes(floor: int, shared: int, reserve: int = 0) -> SlotSizes:
    return SlotSizes(floor=floor, shared=shared, reserve=reserve, promo_floor=0)
