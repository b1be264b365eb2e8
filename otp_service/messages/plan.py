"""What is decided about a message when it is accepted. Pure: settings and `now` are arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

from otp_service.core.errors import ServiceError
from otp_service.messages.rules import Channel, Lane

DEFAULT_CHANNELS = (Channel.IMESSAGE.value, Channel.SMS.value)
MAX_LIFETIME = timedelta(days=7)
CLOCK_SKEW = timedelta(seconds=5)  # a client's clock may be ahead of ours by so much
#: Names of senders: 1 to 20 characters of printable ASCII without commas, spaces inside only.
SENDER_NAME = "[!-+.-~-]([ -+.-~-]{0,18}[!-+.-~-])?"

LaneDefaults = Mapping[str, Any]  # a row of settings.LANE_DEFAULTS


@dataclass(frozen=True, slots=True, repr=False)
class NewMessage:
    """What a client asks for, checked. None: the lane decides. No repr: it would show the text."""

    to: str  # E.164
    text: str
    lane: str = Lane.TRANSACTIONAL.value
    channels: tuple[str, ...] = DEFAULT_CHANNELS
    addresses: Mapping[str, str] = field(default_factory=dict)  # by channel, where a number does not do
    sender_name: str = ""  # "": any
    region: str = ""
    ttl_s: int | None = None
    expires_at: datetime | None = None
    created_at: datetime | None = None
    first_attempt_within_s: int | None = None
    on_late_first: str | None = None
    max_attempts: int | None = None
    max_routes: int | None = None
    on_unknown: str | None = None
    reference: str = ""
    supersede_key: str = ""  # "": it takes no other's place
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def given(self) -> dict[str, Any]:
        """The fields that are not as they would be by default: what two requests must share to be the same."""
        by_default = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(self)}
        values = {name: getattr(self, name) for name in by_default}
        return {name: value for name, value in values.items() if value != by_default[name]}


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The times that bound a message."""

    event_at: datetime
    expires_at: datetime
    first_attempt_by: datetime | None

    @property
    def due_at(self) -> datetime:
        """Its place in the queue before the first attempt."""
        return min(self.first_attempt_by or self.expires_at, self.expires_at)


def refusal(field_name: str, code: str, detail: str) -> ServiceError:
    """A 400 that names one field."""
    return ServiceError(detail, code=code, errors=[{"field": field_name, "code": code, "detail": detail}])


def lifetime(request: NewMessage, lane: LaneDefaults, *, now: datetime) -> Lifetime:
    """When the message's life began, when it ends, and by when its first attempt is due.

    Time spent in the client's own queue counts: life begins at `created_at`. Raises a 400.
    """
    event_at = _event_at(request.created_at, now)
    expires_at = request.expires_at or event_at + timedelta(seconds=request.ttl_s or lane["ttl_s"])
    if expires_at <= now:
        raise refusal(
            "expires_at" if request.expires_at else "created_at",
            "already_expired",
            "Its lifetime is over already: nothing would be sent. Post a fresh message.",
        )
    least = timedelta(seconds=lane["min_ttl_s"])
    if not least <= expires_at - event_at <= MAX_LIFETIME:
        raise refusal("expires_at", "lifetime_out_of_range", lifetime_sentence(lane))
    within_s = request.first_attempt_within_s or lane["first_attempt_within_s"]
    first_attempt_by = None if within_s is None else event_at + timedelta(seconds=within_s)
    return Lifetime(event_at, expires_at, first_attempt_by)


def lifetime_sentence(lane: LaneDefaults) -> str:
    """How long a message of this lane may live."""
    most = int(MAX_LIFETIME.total_seconds())
    return (
        f"A message of this lane lives {lane['min_ttl_s']} to {most} seconds, counted from created_at if it is given."
    )


def _event_at(created_at: datetime | None, now: datetime) -> datetime:
    if created_at is None:
        return now
    if created_at > now + CLOCK_SKEW:
        raise refusal("created_at", "in_the_future", "created_at is later than now: check the clock and the offset.")
    return min(created_at, now)


def pools(request: NewMessage, pools_by_prefix: Mapping[str, Sequence[str]]) -> list[str]:
    """The regions that may serve the message, in order. Raises a 400."""
    if request.region:
        return [request.region]
    served = (prefix for prefix in pools_by_prefix if request.to.startswith(prefix) and pools_by_prefix[prefix])
    longest = max(served, key=len, default=None)
    if longest is None:
        raise refusal(
            "to", "no_pool", "No region serves numbers of this country; name one in region, if you know better."
        )
    return list(pools_by_prefix[longest])


def check_addresses(channels: Sequence[str], addresses: Mapping[str, str]) -> None:
    """Refuse a push that has nowhere to go, and an address that is not gone to."""
    if Channel.PUSH in channels and Channel.PUSH not in addresses:
        raise refusal("addresses", "address_missing", 'Push needs an address: {"push": "<token>"}.')
    if Channel.PUSH in addresses and Channel.PUSH not in channels:
        raise refusal("channels", "channel_missing", "There is an address for push: name push among the channels.")
