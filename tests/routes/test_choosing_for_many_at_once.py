"""Several messages of one flow choose at once: each gets the way that its own judgement names. No database."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otp_service.messages.rules import Channel, Lane
from otp_service.routes import route_rules
from otp_service.routes.choose import Chosen, Ways, choose
from otp_service.routes.eligibility import Hours, Offer, Standing, Terms, Verdict, Wanted, judge
from otp_service.routes.parts import Encoding, measure
from otp_service.routes.route_rules import RouteKind, RouteSpec
from tests.factories import NOON

FLOW = 1
SECOND = dt.timedelta(seconds=1)
TEXTS = ("Your code is 123456", "Код 123456", "1" * 200)  # GSM-7, UCS-2, two parts
NUMBERS = ("+34600000000", "+1900000000")
NAMES = ("", "ACME", "BANK")
DELIVERIES = (SECOND, 10 * SECOND)
CHANNELS = (Channel.SMS, Channel.VOICE)
#: What tells messages and routes apart. All else is the same for all of them: there, a flow shares its judgement.
TRAITS = ("sender names", "prefixes", "encodings", "parts", "hours", "lifetimes", "refused channels")


@dataclass(frozen=True)
class Sent:
    """What a message tells of itself."""

    id: int
    to: str
    text: str
    sender_name: str
    expires_at: dt.datetime
    to_hash: bytes
    lane: Lane
    flow_id: int = FLOW
    first_attempt_by: dt.datetime | None = None
    attempts_made: int = 0
    max_routes: int = 3


@dataclass(frozen=True)
class Flow:
    """Its messages, and the routes that they may take."""

    messages: list[Sent]
    offers: list[Offer]
    channels: list[Channel]
    lane: Lane
    refused: Mapping[bytes, frozenset[Channel]] = field(default_factory=dict)


class Same(random.Random):
    """Every draw is the same: weights and scores alone decide."""

    def expovariate(self, lambd: float = 1.0) -> float:
        return 1.0


@st.composite
def offers(draw: st.DrawFn, number: int, traits: Sequence[str]) -> Offer:
    def one_of(trait: str, usual: object, *others: object) -> object:
        return draw(st.sampled_from([usual, *others])) if trait in traits else usual

    channel = draw(st.sampled_from(CHANNELS))
    spec = RouteSpec(
        name=f"{channel}:r{number}",
        channel=channel,
        kind=RouteKind.SIMULATED,
        lanes=frozenset(draw(st.sampled_from([(), (), (Lane.OTP,), (Lane.OTP, Lane.PROMO)]))),
        priority=draw(st.integers(0, 9)),
        sender_names=one_of("sender names", ("ACME",), (), ("BANK",), ("ACME", "BANK")),  # type: ignore[arg-type]  # as listed
    )
    terms = Terms(
        prefixes=one_of("prefixes", (), ("+34",), ("+1", "+44")),  # type: ignore[arg-type]  # as listed
        encodings=one_of("encodings", frozenset(), frozenset({Encoding.GSM7})),  # type: ignore[arg-type]  # as listed
        max_parts=one_of("parts", None, 1),  # type: ignore[arg-type]  # as listed
        hours=one_of("hours", None, Hours(dt.time(8), dt.time(12)), Hours(dt.time(12), dt.time(13))),  # type: ignore[arg-type]  # as listed
        delivery=draw(st.sampled_from(DELIVERIES)),
        weight=draw(st.integers(1, 3)),
    )
    standing = Standing(isolated=draw(st.integers(0, 9)) == 0, health=draw(st.sampled_from([1.0, 0.5])))
    return Offer(spec, terms, standing)


@st.composite
def flows(draw: st.DrawFn, traits: Sequence[str]) -> Flow:
    """One lane and one list of channels; messages that differ in these traits, and in nothing else."""
    lane = draw(st.sampled_from(Lane))
    channels = draw(st.permutations(CHANNELS))
    table = {offer.spec.name: offer for n in range(draw(st.integers(1, 4))) for offer in [draw(offers(n, traits))]}
    names = route_rules.possible([o.spec for o in table.values()], channels=channels, pools=["es"], lane=lane)
    lifetimes = [*DELIVERIES, dt.timedelta(minutes=5)] if "lifetimes" in traits else [dt.timedelta(minutes=5)]
    messages = [
        Sent(
            id=number,
            to=draw(st.sampled_from(NUMBERS if "prefixes" in traits else NUMBERS[:1])),
            text=draw(st.sampled_from(TEXTS if {"encodings", "parts"} & set(traits) else TEXTS[:1])),
            sender_name=draw(st.sampled_from(NAMES if "sender names" in traits else NAMES[:1])),
            expires_at=NOON + draw(st.sampled_from(lifetimes)) - draw(st.sampled_from([0, 1])) * SECOND / 1000,
            to_hash=bytes([number]) * 32,
            lane=lane,
        )
        for number in range(1, draw(st.integers(3, 6)) + 1)
    ]
    wishes = st.frozensets(st.sampled_from(CHANNELS), min_size=1)
    refusing = [m for m in messages if "refused channels" in traits and draw(st.booleans())]
    refused = {message.to_hash: draw(wishes) for message in refusing}
    return Flow(messages, [table[name] for name in names], list(channels), lane, refused)


def alone(flow: Flow, message: Sent) -> Verdict:
    """What its own judgement says, with nobody else there."""
    wanted = Wanted(
        to=message.to,
        lane=flow.lane,
        channels=flow.channels,
        pools=["es"],
        size=measure(message.text),
        expires_at=message.expires_at,
        sender_name=message.sender_name,
        max_routes=message.max_routes,
        refused_channels=flow.refused.get(message.to_hash, frozenset()),
    )
    return judge(flow.offers, wanted, now=NOON, rng=Same())


def together(flow: Flow, rng: random.Random) -> Chosen:
    ways = Ways(
        {FLOW: tuple(offer.spec for offer in flow.offers)},
        {offer.spec.name: dict.fromkeys(Lane, 1_000) for offer in flow.offers},
        {offer.spec.name: offer.terms for offer in flow.offers},
        {offer.spec.name: offer.standing for offer in flow.offers},
    )
    return choose(flow.messages, ways, now=NOON, rng=rng, refused_channels=flow.refused)


CASES = [*((trait,) for trait in TRAITS), TRAITS]


@pytest.mark.parametrize("traits", CASES, ids=[*TRAITS, "all at once"])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_each_goes_as_if_it_were_alone(traits: Sequence[str], data: st.DataObject) -> None:
    flow = data.draw(flows(traits))
    chosen = together(flow, Same())
    verdicts = {message.id: alone(flow, message) for message in flow.messages}

    assert {message_id: way.route.name for message_id, way in chosen.ways.items()} == {
        message_id: verdict.eligible[0].spec.name for message_id, verdict in verdicts.items() if verdict.eligible
    }
    assert chosen.refusals == {
        message_id: verdict.refused for message_id, verdict in verdicts.items() if verdict.refused
    }
    if flow.offers:  # without any, it waits for one to be set up
        assert chosen.outlook == {
            message_id: verdict.outlook for message_id, verdict in verdicts.items() if not verdict.eligible
        }


class Alternating(random.Random):
    """The first of two routes draws the lower number, then the second one does, and so on."""

    def __init__(self) -> None:
        super().__init__(0)
        self._numbers = [1.0, 2.0, 2.0, 1.0]

    def expovariate(self, lambd: float = 1.0) -> float:
        self._numbers.append(self._numbers.pop(0))
        return self._numbers[-1]


def test_routes_of_one_priority_are_drawn_for_each_message() -> None:
    later = NOON + dt.timedelta(minutes=5)
    messages = [Sent(number, NUMBERS[0], TEXTS[0], "", later, bytes(32), Lane.OTP) for number in range(1, 5)]
    specs = [RouteSpec(f"sms:{name}", Channel.SMS, RouteKind.SIMULATED) for name in ("one", "two")]
    flow = Flow(messages, [Offer(spec) for spec in specs], [Channel.SMS], Lane.OTP)

    chosen = together(flow, Alternating())

    assert [chosen.ways[message.id].route.name for message in messages] == ["sms:one", "sms:two"] * 2
