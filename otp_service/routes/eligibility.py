"""Which routes may carry a message now, why the others may not, and in which order they are tried. Pure.

It is asked when a message is dequeued, and again for each attempt.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

from otp_service.messages.rules import Channel, Lane, RefusalReason
from otp_service.routes.parts import Encoding, Measure
from otp_service.routes.route_rules import RouteKind, RouteSpec

#: These pass by themselves, or by a person's hand: a message that meets one may wait.
PASSING = frozenset(
    {
        RefusalReason.ISOLATED,
        RefusalReason.BREAKER_OPEN,
        RefusalReason.HOURS,
    }
)


@dataclass(frozen=True, slots=True)
class Hours:
    """From when to when a route may be used each day, UTC; over midnight where it closes before it opens."""

    opens: time
    closes: time

    def hold(self, now: datetime) -> bool:
        """Whether it is open: from the first moment on, and not at the last any more."""
        at = now.astimezone(UTC).time()
        if self.opens < self.closes:
            return self.opens <= at < self.closes
        return at >= self.opens or at < self.closes


@dataclass(frozen=True, slots=True)
class Terms:
    """What a route may carry, and at what price."""

    prefixes: tuple[str, ...] = ()  # beginnings of the numbers that it serves; none: all
    encodings: frozenset[Encoding] = frozenset()  # empty: all
    max_parts: int | None = None
    delivery: timedelta = timedelta(seconds=10)  # from the call to the phone, when all is well
    has_receipts: bool = True
    receipt_wait: timedelta | None = None  # until it is asked or given up; None: as RECEIPT_WAIT_S says
    can_query: bool = False
    hours: Hours | None = None  # None: always
    cost_per_part: Decimal | None = None
    currency: str = ""
    weight: int = 1  # its share beside others of the same priority

    def serves(self, number: str) -> bool:
        """Whether it delivers to this number (E.164)."""
        return not self.prefixes or number.startswith(self.prefixes)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a route does at this moment. What nothing is known of is fine."""

    isolated: bool = False
    breaker_open: bool = False
    quality: float = 1.0  # share delivered of late, 0 to 1
    health: float = 1.0  # the breaker's weight, 0 to 1


@dataclass(frozen=True, slots=True)
class Offer:
    """A route, its terms, and how it does now."""

    spec: RouteSpec
    terms: Terms = Terms()
    standing: Standing = Standing()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a message needs of a route. Its repr does not show the number."""

    to: str = field(repr=False)  # E.164
    lane: Lane
    channels: Sequence[Channel]  # in order of preference
    pools: Sequence[str]  # of regions, in order of preference
    size: Measure
    expires_at: datetime
    sender_name: str = ""  # "": the route's own
    tried: frozenset[str] = frozenset()  # routes that are not tried again
    used: frozenset[str] = frozenset()  # routes that it has been over
    max_routes: int | None = None  # that it may be tried over; None: any number
    refused_channels: frozenset[Channel] = frozenset()


class Outlook(enum.Enum):
    """What becomes of a message by what its routes say."""

    GO = enum.auto()  # one may carry it
    WAIT = enum.auto()  # none may now, one may later
    TOO_LATE = enum.auto()  # the only ones that are left would deliver after its end: it expires unsent
    NO_WAY = enum.auto()  # none can ever


@dataclass(frozen=True, slots=True)
class Verdict:
    """Routes in the order in which they are tried, and why each of the others is not."""

    eligible: tuple[Offer, ...]
    refused: Mapping[str, RefusalReason]  # by the route's name

    @property
    def outlook(self) -> Outlook:
        """A route that is only busy may be free in time; one that is too slow will not get faster."""
        reasons = set(self.refused.values())
        if self.eligible:
            return Outlook.GO
        if reasons & PASSING:
            return Outlook.WAIT
        return Outlook.TOO_LATE if RefusalReason.TTL in reasons else Outlook.NO_WAY


def judge(offers: Iterable[Offer], wanted: Wanted, *, now: datetime, rng: random.Random) -> Verdict:
    """Filter first, then order by channel, tier and score."""
    eligible, refused = [], {}
    for offer in offers:
        if reason := refusal(offer, wanted, now=now):
            refused[offer.spec.name] = reason
        else:
            eligible.append(offer)
    return Verdict(tuple(_in_order(eligible, wanted, rng)), refused)


def refusal(offer: Offer, wanted: Wanted, *, now: datetime) -> RefusalReason | None:
    """Why a route may not carry the message, None where it may. What never passes is named before what does."""
    return _never(offer.spec, offer.terms, wanted) or _too_late(offer, wanted, now) or _not_now(offer, now)


def sender_of(spec: RouteSpec, sender_name: str) -> str:
    """The name that a message which asks for this one is sent under over a route; "": the provider's own."""
    if spec.kind is RouteKind.IMESSAGE_POOL:
        return ""
    return sender_name or next(iter(spec.sender_names), "")


def _never(spec: RouteSpec, terms: Terms, wanted: Wanted) -> RefusalReason | None:
    size = wanted.size
    is_pool = spec.kind is RouteKind.IMESSAGE_POOL  # its servers have handles and no names; a text has no parts there
    tests = {
        RefusalReason.DISABLED: not spec.enabled,
        RefusalReason.CHANNEL: spec.channel not in wanted.channels,
        RefusalReason.CHANNEL_REFUSED: spec.channel in wanted.refused_channels,
        RefusalReason.REGION: is_pool and spec.pool not in wanted.pools,
        RefusalReason.LANE: not spec.carries(wanted.lane),
        RefusalReason.COUNTRY: not terms.serves(wanted.to),
        RefusalReason.SENDER_NAME: not is_pool and wanted.sender_name not in {"", *spec.sender_names},
        RefusalReason.ENCODING: not is_pool and bool(terms.encodings) and size.encoding not in terms.encodings,
        RefusalReason.PARTS: not is_pool and terms.max_parts is not None and size.parts > terms.max_parts,
        RefusalReason.ALREADY_TRIED: spec.name in wanted.tried,
        RefusalReason.MAX_ROUTES: _is_one_too_many(spec.name, wanted),
    }
    return _first(tests)


def _is_one_too_many(route: str, wanted: Wanted) -> bool:
    return wanted.max_routes is not None and len(wanted.used) >= wanted.max_routes and route not in wanted.used


def _too_late(offer: Offer, wanted: Wanted, now: datetime) -> RefusalReason | None:
    # It is asked when the message's turn has come: there is no queue before the call any more.
    is_late = now + offer.terms.delivery > wanted.expires_at
    return RefusalReason.TTL if is_late else None


def _not_now(offer: Offer, now: datetime) -> RefusalReason | None:
    hours, standing = offer.terms.hours, offer.standing
    tests = {
        RefusalReason.ISOLATED: standing.isolated,
        RefusalReason.BREAKER_OPEN: standing.breaker_open,
        RefusalReason.HOURS: hours is not None and not hours.hold(now),
    }
    return _first(tests)


def _first(tests: Mapping[RefusalReason, bool]) -> RefusalReason | None:
    return next((reason for reason, fits in tests.items() if fits), None)


def _in_order(offers: Sequence[Offer], wanted: Wanted, rng: random.Random) -> list[Offer]:
    """By the client's channels; pools as they come, others by priority, then each drawn by its weight and score."""
    cheapest = _cheapest(offers)
    # One draw an offer: of two, the one of twice the weight is the first two times out of three.
    drawn = {offer.spec.name: rng.expovariate(1.0) / (offer.terms.weight * score(offer, cheapest)) for offer in offers}

    def place(offer: Offer) -> tuple[int, int, int, float, str]:
        spec = offer.spec
        channel = wanted.channels.index(spec.channel)
        if spec.kind is RouteKind.IMESSAGE_POOL:
            return channel, wanted.pools.index(spec.pool), 0, 0.0, spec.name
        return channel, len(wanted.pools), -spec.priority, drawn[spec.name], spec.name

    return sorted(offers, key=place)


_LEAST = 0.01  # of each part of a score: whoever looks bad still gets a little, and may show that it got better


def score(offer: Offer, cheapest: Mapping[tuple[Channel, int, str], Decimal]) -> float:
    """How good a choice it is, over 0 and up to 1: recent quality, state, and the cheapest one's price over its own.

    Prices are compared within a channel's tier and a currency; one that is not known is not held against it.
    """
    standing = offer.standing
    return max(_LEAST, standing.quality) * max(_LEAST, standing.health) * max(_LEAST, _cheapness(offer, cheapest))


def _cheapness(offer: Offer, cheapest: Mapping[tuple[Channel, int, str], Decimal]) -> float:
    price = offer.terms.cost_per_part
    return float(cheapest[_market(offer)] / price) if price else 1.0


def _cheapest(offers: Iterable[Offer]) -> dict[tuple[Channel, int, str], Decimal]:
    """The lowest price by channel, tier and currency."""
    lowest: dict[tuple[Channel, int, str], Decimal] = {}
    for offer in offers:
        if (price := offer.terms.cost_per_part) is not None:
            lowest[_market(offer)] = min(price, lowest.get(_market(offer), price))
    return lowest


def _market(offer: Offer) -> tuple[Channel, int, str]:
    return offer.spec.channel, offer.spec.priority, offer.terms.currency
