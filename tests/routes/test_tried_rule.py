"""What a message's earlier attempts say of its routes."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.core.outcomes import ErrorClass
from otp_service.messages.rules import Channel
from otp_service.routes.tried import NOWHERE, Past, Tried, last_error, tried

SMS = Past("sms:one", Channel.SMS, None, None, None)


def sms(error: ErrorClass | None, route: str = "sms:one") -> Past:
    return Past(route, Channel.SMS, None, None, error)


def away(route: str = "sms:one") -> Past:
    return Past(route, Channel.SMS, None, None, ErrorClass.TEMPORARY, error_code=30003)


def by_server(server: int, error: ErrorClass | None, host: int = 7) -> Past:
    return Past("imessage:es", Channel.IMESSAGE, server, host, error)


@pytest.mark.parametrize(
    ("attempts", "out", "last", "channels"),
    [
        pytest.param([], set(), set(), set(), id="nothing was tried"),
        pytest.param([sms(None)], set(), set(), set(), id="nothing bad is known"),
        pytest.param([sms(ErrorClass.THROTTLED)] * 2, set(), set(), set(), id="too fast: the same after a pause"),
        pytest.param([sms(ErrorClass.THROTTLED)] * 3, set(), {"sms:one"}, set(), id="too fast for too long"),
        pytest.param([sms(ErrorClass.EXPIRED)], set(), set(), set(), id="our own lateness says nothing of it"),
        pytest.param([sms(ErrorClass.EXPIRED)] * 2, set(), {"sms:one"}, set(), id="it needs more life than is left"),
        pytest.param([sms(ErrorClass.CONNECTION_REFUSED)], set(), set(), set(), id="one more try"),
        pytest.param([sms(ErrorClass.CONNECTION_REFUSED)] * 2, set(), {"sms:one"}, set(), id="then the others first"),
        pytest.param([sms(ErrorClass.TEMPORARY)], set(), set(), set(), id="the same route once more"),
        pytest.param([sms(ErrorClass.TEMPORARY)] * 2, set(), {"sms:one"}, set(), id="then the next one"),
        pytest.param(
            [sms(ErrorClass.TEMPORARY), sms(ErrorClass.TEMPORARY, "sms:two")], set(), set(), set(), id="each for itself"
        ),
        pytest.param(
            [sms(ErrorClass.TEMPORARY), sms(ErrorClass.CONNECTION_REFUSED)], set(), set(), set(), id="by kind of error"
        ),
        pytest.param([sms(ErrorClass.ROUTE_REJECTED)], {"sms:one"}, set(), set(), id="it refuses us"),
        pytest.param([by_server(1, ErrorClass.ROUTE_REJECTED)], set(), set(), set(), id="one host refuses us"),
        pytest.param([sms(ErrorClass.TIMEOUT_AFTER_SUBMIT)], {"sms:one"}, set(), set(), id="a copy may be on its way"),
        pytest.param([sms(ErrorClass.RECIPIENT_UNREACHABLE)], set(), set(), {Channel.SMS}, id="not on this channel"),
        pytest.param([away()], set(), set(), set(), id="a phone that is off"),
        pytest.param([away(), away("sms:two")], set(), set(), {Channel.SMS}, id="still off"),
        pytest.param(
            [by_server(1, ErrorClass.SENDER_FAULT)], set(), set(), set(), id="another server of the same pool"
        ),
        pytest.param(
            [by_server(1, ErrorClass.SENDER_FAULT), by_server(2, ErrorClass.SENDER_FAULT)],
            set(),
            {"imessage:es"},
            set(),
            id="two servers failed: then the next route",
        ),
    ],
)
def test_which_routes_are_out_and_which_come_last(
    attempts: list[Past], out: AbstractSet[str], last: AbstractSet[str], channels: AbstractSet[Channel]
) -> None:
    found = tried(attempts)
    assert (found.out, found.last, found.channels) == (out, last, channels)
    assert found.used == {attempt.route for attempt in attempts}


@pytest.mark.parametrize(
    ("error", "servers"),
    [
        pytest.param(ErrorClass.SENDER_FAULT, {1}, id="it was the reason"),
        pytest.param(ErrorClass.TEMPORARY, {1}, id="it may have been the reason"),
        pytest.param(None, {1}, id="a copy is on its way over it"),
        pytest.param(ErrorClass.THROTTLED, set(), id="it was only busy"),
        pytest.param(ErrorClass.CONNECTION_REFUSED, set(), id="its host was away"),
    ],
)
def test_which_servers_are_out(error: ErrorClass | None, servers: set[int]) -> None:
    found = tried([by_server(1, error)])
    assert found.servers == servers
    assert found.hosts == {7}


_PAST = st.builds(
    Past,
    st.sampled_from(["sms:one", "sms:two", "imessage:es"]),
    st.sampled_from(Channel),
    st.none() | st.integers(1, 3),
    st.none() | st.integers(1, 2),
    st.none() | st.sampled_from(ErrorClass),
    error_code=st.sampled_from([None, 30003, 30008]),
)


@given(st.lists(_PAST, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_the_attempts_says_nothing(attempts: list[Past], rng: object) -> None:
    shuffled = list(attempts)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis' own random
    assert tried(shuffled) == tried(attempts)


@given(st.lists(_PAST, max_size=8), _PAST)
def test_one_more_attempt_never_brings_a_route_back(attempts: list[Past], one: Past) -> None:
    before, after = tried(attempts), tried([*attempts, one])
    for part in Tried.__dataclass_fields__:
        assert getattr(before, part) <= getattr(after, part)


@pytest.mark.parametrize(
    ("attempts", "error"),
    [
        pytest.param([away()], ErrorClass.TEMPORARY, id="once"),
        pytest.param([away(), away()], ErrorClass.RECIPIENT_UNREACHABLE, id="twice"),
        pytest.param([away(), away(), sms(ErrorClass.THROTTLED)], ErrorClass.THROTTLED, id="twice, and something else"),
        pytest.param([away(), sms(None)], None, id="nothing yet"),
    ],
)
def test_what_came_of_the_newest(attempts: list[Past], error: ErrorClass | None) -> None:
    assert last_error(attempts) is error


def test_nothing_is_held_against_what_was_not_tried() -> None:
    assert tried([]) == NOWHERE
