"""All routes of a message: who is left, in which order, and what becomes of the message where nobody is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.messages.rules import Channel, Lane, RefusalReason
from otp_service.routes.eligibility import (
    PASSING,
    Hours,
    Offer,
    Outlook,
    Standing,
    Terms,
    Verdict,
    Wanted,
    judge,
    sender_of,
)
from otp_service.routes.parts import Encoding, Measure
from otp_service.routes.route_rules import RouteKind, RouteSpec

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MESSAGE = Wanted(
    to="+34600000000",
    lane=Lane.OTP,
    channels=(Channel.IMESSAGE, Channel.SMS),
    pools=("es", "pt"),
    size=Measure(Encoding.GSM7, 1),
    expires_at=NOON + timedelta(minutes=5),
)


FINE = Standing()


def account(name: str, *, priority: int = 0, standing: Standing = FINE, **terms: Any) -> Offer:
    spec = RouteSpec(name, Channel(name.partition(":")[0]), RouteKind.HTTP_JSON, priority=priority)
    return Offer(spec, Terms(**terms), standing)


def pool(region: str, *, priority: int = 0) -> Offer:
    return Offer(RouteSpec(f"imessage:{region}", Channel.IMESSAGE, RouteKind.IMESSAGE_POOL, priority=priority))


def names(verdict: Verdict) -> list[str]:
    return [offer.spec.name for offer in verdict.eligible]


def decide(offers: list[Offer], wanted: Wanted = MESSAGE) -> Verdict:
    return judge(offers, wanted, now=NOON, rng=random.Random(1))


def firsts(*offers: Offer) -> Counter[str]:
    """How often each is the first of 2,000 draws."""
    rng = random.Random(7)
    return Counter(judge(offers, MESSAGE, now=NOON, rng=rng).eligible[0].spec.name for _ in range(2_000))


@pytest.mark.parametrize(
    ("offers", "channels", "expected"),
    [
        pytest.param(
            [account("sms:one"), pool("pt"), pool("es")],
            ["imessage", "sms"],
            ["imessage:es", "imessage:pt", "sms:one"],
            id="channels, then pools as they come",
        ),
        pytest.param(
            [account("sms:one"), pool("es")], ["sms", "imessage"], ["sms:one", "imessage:es"], id="sms before"
        ),
        pytest.param(
            [pool("pt", priority=9), pool("es")], ["imessage"], ["imessage:es", "imessage:pt"], id="pools have no tier"
        ),
        pytest.param(
            [account("sms:one"), account("sms:two", priority=1, weight=1, standing=Standing(quality=0.1))],
            ["sms"],
            ["sms:two", "sms:one"],
            id="a tier before any score",
        ),
        pytest.param(
            [account("sms:a", weight=1, standing=Standing(quality=0)), account("sms:b", weight=1_000)],
            ["sms"],
            ["sms:b", "sms:a"],
            id="a score within a tier",
        ),
    ],
)
def test_order(offers: list[Offer], channels: list[str], expected: list[str]) -> None:
    assert names(decide(offers, replace(MESSAGE, channels=tuple(map(Channel, channels))))) == expected


@pytest.mark.parametrize(
    ("better", "share"),
    [
        pytest.param({}, 1 / 2, id="alike"),
        pytest.param({"weight": 3}, 3 / 4, id="a weight"),
        pytest.param({"standing": Standing(quality=1.0)}, 1 / 2, id="quality that is full already"),
    ],
)
def test_shares_of_a_tier(better: dict[str, Any], share: float) -> None:
    assert firsts(account("sms:a", **better), account("sms:b"))["sms:a"] / 2_000 == pytest.approx(share, abs=0.04)


@pytest.mark.parametrize(
    "worse",
    [
        pytest.param({"standing": Standing(quality=0.5)}, id="it delivers half"),
        pytest.param({"standing": Standing(health=0.5)}, id="its breaker halves it"),
        pytest.param({"cost_per_part": Decimal("0.1"), "currency": "EUR"}, id="it costs twice as much"),
    ],
)
def test_half_as_good_is_first_one_time_in_three(worse: dict[str, Any]) -> None:
    one = account("sms:a", cost_per_part=Decimal("0.05"), currency="EUR")
    assert firsts(one, account("sms:b", **worse))["sms:b"] / 2_000 == pytest.approx(1 / 3, abs=0.04)


@pytest.mark.parametrize(
    ("price", "currency"),
    [
        pytest.param("0.1", "USD", id="another currency is not compared"),
        pytest.param("0.05", "EUR", id="the same price"),
    ],
)
def test_prices_that_make_no_difference(price: str, currency: str) -> None:
    one = account("sms:a", cost_per_part=Decimal("0.05"), currency="EUR")
    other = account("sms:b", cost_per_part=Decimal(price), currency=currency)
    assert firsts(one, other)["sms:b"] / 2_000 == pytest.approx(1 / 2, abs=0.04)


def test_a_price_of_another_tier_is_not_compared() -> None:
    gift = account("sms:gift", priority=-1, cost_per_part=Decimal(0), currency="EUR")
    dear = account("sms:dear", cost_per_part=Decimal(5), currency="EUR")
    assert firsts(gift, dear, account("sms:plain"))["sms:dear"] / 2_000 == pytest.approx(1 / 2, abs=0.04)


def test_whoever_looks_bad_still_gets_a_little() -> None:
    assert 0 < firsts(account("sms:a"), account("sms:b", standing=Standing(quality=0)))["sms:b"] < 100


AWAY, OPEN = Standing(isolated=True), Standing(breaker_open=True)
LATE: dict[str, Any] = {"delivery": timedelta(hours=1)}
ELSEWHERE: dict[str, Any] = {"prefixes": ("+1",)}


@pytest.mark.parametrize(
    ("offers", "outlook"),
    [
        pytest.param([account("sms:a", **LATE), account("sms:b")], Outlook.GO, id="one is left"),
        pytest.param([account("sms:a", **LATE), account("sms:b", standing=AWAY)], Outlook.WAIT, id="one is taken out"),
        pytest.param([account("sms:a", standing=OPEN)], Outlook.WAIT, id="a breaker may close"),
        pytest.param([account("sms:a", hours=Hours(time(1), time(2)))], Outlook.WAIT, id="it opens again"),
        pytest.param([account("sms:a", **LATE, standing=OPEN)], Outlook.TOO_LATE, id="too late, open or not"),
        pytest.param([account("sms:a", **LATE), account("sms:b", **ELSEWHERE)], Outlook.TOO_LATE, id="too late"),
        pytest.param([account("sms:a", **ELSEWHERE)], Outlook.NO_WAY, id="nobody serves it"),
        pytest.param([], Outlook.NO_WAY, id="no route at all"),
    ],
)
def test_what_becomes_of_the_message(offers: list[Offer], outlook: Outlook) -> None:
    assert decide(offers).outlook is outlook


NAMES, PREFIXES = ["ACME", "Shop", "Bank"], ["+34", "+346", "+1", "+351", "+3"]
NUMBERS = ["+34600000000", "+12025550100", "+351912000000", "+380500000000"]


def some(rng: random.Random, items: Iterable[Any], most: int = 3) -> list[Any]:
    """A few of them, in any order; more often none than all."""
    every = list(items)
    return rng.sample(every, min(rng.randint(0, most), len(every)))


def random_offer(rng: random.Random, number: int) -> Offer:
    channel = rng.choice([Channel.IMESSAGE, Channel.SMS, Channel.PUSH])
    kind = RouteKind.IMESSAGE_POOL if channel is Channel.IMESSAGE else RouteKind.HTTP_JSON
    return Offer(
        RouteSpec(
            f"{channel}:{number}",
            channel,
            kind,
            enabled=rng.random() < 0.9,
            lanes=frozenset(rng.sample(list(Lane), rng.choice([0, 2]))),
            priority=rng.randint(-1, 1),
            sender_names=tuple(some(rng, NAMES)),
        ),
        Terms(
            prefixes=tuple(some(rng, PREFIXES, 2)),
            encodings=frozenset(some(rng, Encoding, 1)),
            max_parts=rng.choice([None, 1, 2, 3]),
            delivery=timedelta(seconds=rng.randint(0, 300)),
            weight=rng.randint(1, 1_000),
            cost_per_part=rng.choice([None, Decimal(0), Decimal("0.007"), Decimal("0.05")]),
            currency="EUR",
        ),
        Standing(
            isolated=rng.random() < 0.1,
            breaker_open=rng.random() < 0.1,
            quality=rng.random(),
            health=rng.random(),
        ),
    )


def random_message(rng: random.Random) -> Wanted:
    return Wanted(
        to=rng.choice(NUMBERS),
        lane=rng.choice(list(Lane)),
        channels=tuple(rng.sample(list(Channel), 3)),
        pools=tuple(rng.sample("01234567", 6)),
        size=Measure(rng.choice(list(Encoding)), rng.randint(1, 3)),
        expires_at=NOON + timedelta(seconds=rng.randint(1, 900)),
        sender_name=rng.choice(["", "", *NAMES, "Nobody"]),
        tried=frozenset(some(rng, (f"sms:{number}" for number in range(8)), 1)),
        refused_channels=frozenset(some(rng, Channel, 1)),
    )


def anything(seed: int) -> tuple[list[Offer], Wanted]:
    """A table of up to eight routes of all kinds, with all kinds of terms, in all kinds of states; and a message."""
    rng = random.Random(seed)
    return [random_offer(rng, number) for number in range(rng.randint(0, 8))], random_message(rng)


seeds = st.integers(0, 2**32)


def test_random_messages_find_routes_often_enough_to_show_something() -> None:
    eligible = [len(decide(*anything(seed)).eligible) for seed in range(500)]
    assert sum(count > 0 for count in eligible) > 50
    assert sum(count > 1 for count in eligible) > 10


@given(seed=seeds)
def test_nobody_sends_under_a_name_that_it_may_not_use(seed: int) -> None:
    offers, wanted = anything(seed)
    for offer in decide(offers, wanted).eligible:
        name = sender_of(offer.spec, wanted.sender_name)
        if offer.spec.kind is RouteKind.IMESSAGE_POOL:
            assert name == ""
            continue
        assert name in {"", *offer.spec.sender_names}
        assert not wanted.sender_name or name == wanted.sender_name


@given(seed=seeds)
def test_nobody_sends_into_a_network_that_it_does_not_serve(seed: int) -> None:
    offers, wanted = anything(seed)
    for offer in decide(offers, wanted).eligible:
        prefixes = offer.terms.prefixes
        assert not prefixes or any(wanted.to[: len(prefix)] == prefix for prefix in prefixes)


@given(seed=seeds)
def test_nobody_delivers_after_the_end(seed: int) -> None:
    offers, wanted = anything(seed)
    for offer in decide(offers, wanted).eligible:
        assert NOON + offer.terms.delivery <= wanted.expires_at


@given(seed=seeds)
def test_every_route_is_either_eligible_or_refused(seed: int) -> None:
    offers, wanted = anything(seed)
    verdict = decide(offers, wanted)
    assert sorted([*names(verdict), *verdict.refused]) == sorted(offer.spec.name for offer in offers)


@given(seed=seeds)
def test_the_order_follows_channels_then_pools_and_tiers(seed: int) -> None:
    offers, wanted = anything(seed)
    eligible = decide(offers, wanted).eligible
    channels = [wanted.channels.index(offer.spec.channel) for offer in eligible]
    assert channels == sorted(channels)
    pools = [wanted.pools.index(offer.spec.pool) for offer in eligible if offer.spec.pool]
    assert pools == sorted(pools)
    for channel in set(channels):
        tiers = [o.spec.priority for o, c in zip(eligible, channels, strict=True) if c == channel and not o.spec.pool]
        assert tiers == sorted(tiers, reverse=True)


@given(seed=seeds)
def test_a_message_waits_if_it_could_go_were_all_routes_well(seed: int) -> None:
    offers, wanted = anything(seed)
    well = [replace(offer, standing=Standing()) for offer in offers]
    may_go = decide(well, wanted).outlook is Outlook.GO
    assert (decide(offers, wanted).outlook in {Outlook.GO, Outlook.WAIT}) is may_go


def test_what_passes_and_what_does_not() -> None:
    assert {RefusalReason.TTL, RefusalReason.COUNTRY, RefusalReason.SENDER_NAME}.isdisjoint(PASSING)
