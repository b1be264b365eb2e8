"""When a storm begins and ends, at the exact edges."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers import storm_rules
from servers.rules import Policy
from servers.storm_rules import Figures, LetsGo, Limits, StaysOn
from tests.draws import Drawn, Lowest
from tests.factories import NOON

MINUTE = dt.timedelta(minutes=1)
SECOND = dt.timedelta(seconds=1)
HOST, REGION = Limits(minimum=5, on_share=0.3), Limits(minimum=20, on_share=0.3)


@dataclass(frozen=True)
class Brake:
    """On, with no calm yet."""

    share: float = 0.5
    calm_since: dt.datetime | None = None


@pytest.mark.parametrize(
    ("figures", "limits", "on"),
    [
        pytest.param(Figures(sent=4, reached=4), HOST, False, id="host, 4 servers"),
        pytest.param(Figures(sent=5, reached=2), HOST, True, id="host, 5 servers"),
        pytest.param(Figures(sent=5, reached=1), HOST, False, id="host, 20 %"),
        pytest.param(Figures(sent=19, reached=19), REGION, False, id="region, 19 servers"),
        pytest.param(Figures(sent=20, reached=6), REGION, True, id="region, 20 servers, 30 %"),
        pytest.param(Figures(sent=20, reached=5), REGION, False, id="region, 25 %"),
        pytest.param(Figures(sent=1_000, reached=300), REGION, True, id="30 %"),
        pytest.param(Figures(sent=1_000, reached=299), REGION, False, id="29.9 %"),
        pytest.param(Figures(), REGION, False, id="nobody sent"),
    ],
)
def test_a_large_part_of_enough_servers_is_a_storm(figures: Figures, limits: Limits, on: bool) -> None:
    assert storm_rules.in_storm(figures, limits) is on


@given(
    minimum=st.integers(1, 50), on_percent=st.integers(1, 100), sent=st.integers(1, 400), reached=st.integers(1, 400)
)
def test_what_is_not_counted_could_not_have_been_a_storm(
    minimum: int, on_percent: int, sent: int, reached: int
) -> None:
    limits = Limits(minimum, on_percent / 100)
    if reached * 100 >= on_percent * sent and sent >= minimum:
        assert storm_rules.may_be_in_storm(reached, limits)
        assert sent < storm_rules.senders_to_count(reached, limits)
    assert storm_rules.in_storm(Figures(sent, reached), limits) == (
        sent >= minimum and reached * 100 >= on_percent * sent
    )


@pytest.mark.parametrize(("reached", "may"), [(1, False), (2, True)])
def test_too_few_for_the_smallest_scope_are_no_storm_whoever_sent(reached: int, may: bool) -> None:
    assert storm_rules.may_be_in_storm(reached, HOST) is may


@pytest.mark.parametrize(
    ("brake", "share", "expected"),
    [
        pytest.param(Brake(), 0.1, StaysOn(0.5, None), id="10 %"),
        pytest.param(Brake(), 0.0999, StaysOn(0.5, NOON), id="just under: calm begins"),
        pytest.param(Brake(), 0.7, StaysOn(0.7, None), id="the largest share is kept"),
        pytest.param(
            Brake(calm_since=NOON - 15 * MINUTE + SECOND),
            0.0,
            StaysOn(0.5, NOON - 15 * MINUTE + SECOND),
            id="calm for 14:59",
        ),
        pytest.param(Brake(calm_since=NOON - 15 * MINUTE), 0.0999, LetsGo(), id="calm for 15:00"),
        pytest.param(Brake(calm_since=NOON - 15 * MINUTE), 0.1, StaysOn(0.5, None), id="it storms again"),
    ],
)
def test_a_brake_goes_off_after_a_window_of_calm(brake: Brake, share: float, expected: StaysOn | LetsGo) -> None:
    assert storm_rules.next_state(brake, share, off_share=0.1, window=15 * MINUTE, now=NOON) == expected


def test_no_failure_at_all_is_calm_even_where_no_share_is_small_enough() -> None:
    brake = Brake(calm_since=NOON - 15 * MINUTE)
    assert storm_rules.next_state(brake, 0.0, off_share=0.0, window=15 * MINUTE, now=NOON) == LetsGo()


@pytest.mark.parametrize("cooldown_times", [0, 3, 4])
def test_a_braked_cooldown_is_as_long_as_a_first_one_and_is_not_counted(cooldown_times: int) -> None:
    step = storm_rules.braked(cooldown_times, Policy(), now=NOON, rng=Drawn(119, 20))
    assert (step.number, step.minutes, step.drawn_from) == (cooldown_times, 119, (60, 120))
    assert (step.end, step.warmup_at) == (NOON + 119 * MINUTE, NOON + 20 * MINUTE)


def test_a_braked_cooldown_is_drawn_from_the_groups_range_if_one_is_in_force() -> None:
    step = storm_rules.braked(3, Policy(cooldown_range=(15, 45)), now=NOON, rng=Lowest())
    assert (step.minutes, step.drawn_from) == (15, (15, 45))
