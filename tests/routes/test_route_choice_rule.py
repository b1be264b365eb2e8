"""Which routes a message may take, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.messages.rules import Channel, Lane
from otp_service.routes.route_rules import RouteKind, RouteSpec, possible


def pool(region: str, **rest: Any) -> RouteSpec:
    return RouteSpec(f"imessage:{region}", Channel.IMESSAGE, RouteKind.IMESSAGE_POOL, **rest)


def account(name: str, **rest: Any) -> RouteSpec:
    return RouteSpec(name, Channel(name.partition(":")[0]), RouteKind.SIMULATED, **rest)


ES, PT, ONE, TWO, PUSH = pool("es"), pool("pt"), account("sms:one"), account("sms:two"), account("push:one")
EVERYTHING = [TWO, PUSH, PT, ONE, ES]


@pytest.mark.parametrize(
    ("specs", "channels", "pools", "lane", "expected"),
    [
        pytest.param(EVERYTHING, ["imessage"], ["es"], "otp", ["imessage:es"], id="the pools of the number only"),
        pytest.param(
            EVERYTHING, ["imessage"], ["pt", "es"], "otp", ["imessage:pt", "imessage:es"], id="pools as they come"
        ),
        pytest.param(
            [pool("es", priority=9), PT],
            ["imessage"],
            ["pt", "es"],
            "otp",
            ["imessage:pt", "imessage:es"],
            id="pools whatever their priority",
        ),
        pytest.param(EVERYTHING, ["sms"], ["es"], "otp", ["sms:one", "sms:two"], id="others by name"),
        pytest.param(
            [ONE, account("sms:two", priority=1)], ["sms"], ["es"], "otp", ["sms:two", "sms:one"], id="higher first"
        ),
        pytest.param(
            EVERYTHING,
            ["sms", "imessage"],
            ["es"],
            "otp",
            ["sms:one", "sms:two", "imessage:es"],
            id="channels in order",
        ),
        pytest.param(EVERYTHING, ["sms", "sms"], ["es"], "otp", ["sms:one", "sms:two"], id="a channel named twice"),
        pytest.param(EVERYTHING, ["imessage"], ["es", "es"], "otp", ["imessage:es"], id="a pool named twice"),
        pytest.param(EVERYTHING, ["voice"], ["es"], "otp", [], id="a channel without routes"),
        pytest.param(EVERYTHING, ["imessage"], ["ua"], "otp", [], id="a pool without a route"),
        pytest.param(EVERYTHING, [], ["es"], "otp", [], id="no channel"),
        pytest.param([pool("es", enabled=False), ONE], ["imessage"], ["es"], "otp", [], id="disabled"),
        pytest.param(
            [account("sms:one", lanes=frozenset({Lane.PROMO})), TWO],
            ["sms"],
            [],
            "otp",
            ["sms:two"],
            id="of another lane",
        ),
        pytest.param(
            [account("sms:one", lanes=frozenset({Lane.PROMO})), TWO],
            ["sms"],
            [],
            "promo",
            ["sms:one", "sms:two"],
            id="of its lane",
        ),
    ],
)
def test_routes_in_order(
    specs: list[RouteSpec], channels: list[str], pools: list[str], lane: str, expected: list[str]
) -> None:
    assert possible(specs, channels=channels, pools=pools, lane=Lane(lane)) == tuple(expected)


@given(
    specs=st.permutations(EVERYTHING),
    channels=st.lists(st.sampled_from(list(Channel))),
    pools=st.lists(st.sampled_from(["es", "pt", "ua"])),
    lane=st.sampled_from(list(Lane)),
)
def test_names_each_route_once_whatever_the_order_of_the_table(
    specs: list[RouteSpec], channels: list[Channel], pools: list[str], lane: Lane
) -> None:
    found = possible(specs, channels=channels, pools=pools, lane=lane)
    assert len(set(found)) == len(found)
    assert found == possible(EVERYTHING, channels=channels, pools=pools, lane=lane)
    places = [channels.index(Channel(name.partition(":")[0])) for name in found]
    assert places == sorted(places)


@pytest.mark.parametrize(("spec", "region"), [(ES, "es"), (ONE, "")], ids=["a pool", "an account"])
def test_only_a_pool_has_a_region(spec: RouteSpec, region: str) -> None:
    assert spec.pool == region
