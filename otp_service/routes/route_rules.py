"""Which ways out there are, and which of them a message may take. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from otp_service.messages.rules import Channel, Lane


class RouteKind(enum.StrEnum):
    """Who speaks a route's protocol."""

    IMESSAGE_POOL = "imessage_pool"  # the servers of one region, through their relay hosts
    TWILIO = "twilio"  # an API that speaks as Twilio's does
    KANNEL = "kannel"  # a Kannel gateway's sendsms
    SMPP = "smpp"  # an SMSC, over binds of our own
    HTTP_JSON = "http_json"  # any provider with a JSON API, described by the route's settings
    SIMULATED = "simulated"  # answers by itself and delivers nothing: for measuring and for drills


#: What follows the channel and the colon in a name. A pool's is its region.
_WORD = r"[a-z0-9][a-z0-9_-]*"
_REGION = r"[a-z0-9]{1,8}"


def name_pattern(kind: RouteKind, channel: Channel) -> str:
    """The names that a route may have, as a regular expression that Python and PostgreSQL read alike."""
    match kind:
        case RouteKind.IMESSAGE_POOL:
            return f"^{channel}:{_REGION}$"
        case _:
            return f"^{channel}:{_WORD}$"


def channels_of(kind: RouteKind) -> tuple[Channel, ...]:
    """What a route of this kind may be. Only pools carry iMessages: they go by the recipient's pools."""
    match kind:
        case RouteKind.IMESSAGE_POOL:
            return (Channel.IMESSAGE,)
        case RouteKind.TWILIO | RouteKind.KANNEL | RouteKind.SMPP:
            return (Channel.SMS,)
        case RouteKind.HTTP_JSON | RouteKind.SIMULATED:
            return tuple(channel for channel in Channel if channel is not Channel.IMESSAGE)


def channel_of(kind: RouteKind, name: str) -> Channel:
    """The channel that a name begins with. Raises ValueError: a sentence."""
    for channel in channels_of(kind):
        # fullmatch: `$` alone would let a line break through.
        if re.fullmatch(name_pattern(kind, channel), name):
            return channel
    if kind is RouteKind.IMESSAGE_POOL:
        raise ValueError("The name of a pool is imessage: and its region, 1 to 8 lower-case letters and digits.")
    begins = " or ".join(f"{channel}:" for channel in channels_of(kind))
    raise ValueError(f"Write {begins} and a word of lower-case letters, digits, - and _, as in sms:one.")


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """A route as the dispatcher knows it."""

    name: str  # "imessage:es", "sms:one"
    channel: Channel
    kind: RouteKind
    enabled: bool = True
    lanes: frozenset[Lane] = frozenset()  # empty: all
    expected: timedelta = timedelta(seconds=1)  # how long a call takes when all is well
    in_flight_cap: int | None = None  # calls at once, of all dispatchers
    tps: float | None = None  # calls a second, of all dispatchers
    daily_quota: int | None = None  # calls a day (UTC)
    priority: int = 0  # of a channel's routes the higher one is tried first; pools go by the message's own order
    settings: Mapping[str, Any] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    sender_names: tuple[str, ...] = ()  # those that it may use; the first one where a message asks for none
    receipts_url: str = ""  # where its provider posts receipts, as it sees the address; "": nowhere

    @property
    def pool(self) -> str:
        """The region of a pool, "" for others."""
        return self.name.partition(":")[2] if self.kind is RouteKind.IMESSAGE_POOL else ""

    def carries(self, lane: Lane) -> bool:
        """Whether messages of this lane may take it."""
        return self.enabled and (not self.lanes or lane in self.lanes)


#: Share of a route's ceiling, and of what its rate allows at once, that the other lanes leave to otp.
_OTP_KEEPS = 0.3


def kept_for_otp(spec: RouteSpec, most: float) -> int:
    """How many of at most so many calls the other lanes leave to otp.

    None where otp may not take the route, and none of a single one; else one at least.
    """
    if not spec.carries(Lane.OTP) or most < 2:
        return 0
    return max(1, int(most * _OTP_KEEPS))


def is_narrow(spec: RouteSpec, *ways: float | None) -> bool:
    """Whether one of its limits lets through so little that no part of it can be kept for otp. None: no limit."""
    return spec.carries(Lane.OTP) and any(most is not None and most < 2 for most in ways)


def possible(
    specs: Iterable[RouteSpec], *, channels: Sequence[str], pools: Sequence[str], lane: Lane
) -> tuple[str, ...]:
    """Names of enabled routes that may carry it: by channels in order; pools as they come, others by priority."""
    open_routes = [spec for spec in specs if spec.carries(lane)]
    return tuple(name for channel in dict.fromkeys(channels) for name in _of_channel(open_routes, channel, pools))


def _of_channel(specs: Collection[RouteSpec], channel: str, pools: Sequence[str]) -> list[str]:
    place = {pool: number for number, pool in reversed(list(enumerate(pools)))}
    fitting = [spec for spec in specs if spec.channel == channel and (not spec.pool or spec.pool in place)]
    fitting.sort(key=lambda spec: (place.get(spec.pool, len(pools)), -spec.priority, spec.name))
    return [spec.name for spec in fitting]


class SimulatedOutcome(enum.StrEnum):
    """How calls of a simulated route end, when they do not time out."""

    ACCEPTED = "accepted"
    UNKNOWN = "unknown"  # no clear answer: it may have been sent


@dataclass(frozen=True, slots=True)
class SimulatedAnswer:
    """What a simulated route does with every call: a call that would take longer than `timeout` is given up then."""

    latency: timedelta = timedelta(milliseconds=150)
    timeout: timedelta = timedelta(seconds=10)
    outcome: SimulatedOutcome = SimulatedOutcome.ACCEPTED


_LONGEST_MS = 120_000  # of a simulated call


def simulated_answer(settings: Mapping[str, Any]) -> SimulatedAnswer:
    """Read a simulated route's settings. Raises ValueError: a sentence that names the setting."""
    unknown = settings.keys() - {"latency_ms", "timeout_ms", "outcome"}
    if unknown:
        raise ValueError("Only latency_ms, timeout_ms and outcome are settings of a simulated route.")
    default = SimulatedAnswer()
    return SimulatedAnswer(
        latency=_milliseconds(settings, "latency_ms", 0, default.latency),
        timeout=_milliseconds(settings, "timeout_ms", 1, default.timeout),
        outcome=_outcome(settings, default.outcome),
    )


def _milliseconds(settings: Mapping[str, Any], name: str, least: int, default: timedelta) -> timedelta:
    value = settings.get(name)
    if name not in settings:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _LONGEST_MS:
        raise ValueError(f"{name} must be a whole number of milliseconds, from {least} to {_LONGEST_MS}.")
    return timedelta(milliseconds=value)


def _outcome(settings: Mapping[str, Any], default: SimulatedOutcome) -> SimulatedOutcome:
    value = settings.get("outcome", default.value)
    if value not in list(SimulatedOutcome):
        raise ValueError(f"outcome must be {' or '.join(SimulatedOutcome)}.")
    return SimulatedOutcome(value)
