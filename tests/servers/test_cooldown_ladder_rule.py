"""What a failure leads to: threshold, ladder, Need Check."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers import rules
from servers.rules import Deliveries, NeedCheck, NeedCheckPath, NoChange, Policy, StartCooldown, Status
from tests.draws import Highest, Lowest

NOON = dt.datetime(2026, 9, 1, 12, 0, 0, tzinfo=dt.UTC)
NONE_DELIVERED = Deliveries(in_window=0, since_release=0)
FIVE_STEP = Policy(ladder=rules.LADDERS["five_step"])


@dataclass(frozen=True)
class Counters:
    """A server, as the rules see it."""

    status: str = Status.ACTIVE
    cooldown: bool = False
    preheating: bool = False
    failed_in_row: int = 2
    cooldown_times: int = 0


@dataclass(frozen=True)
class Params:
    """A group, as the rules see it."""

    failed_in_row: int = 0
    cooldown_delay_from: int = 0
    cooldown_delay_to: int = 0
    send_from_message_interval: int = 0
    send_to_message_interval: int = 0
    reset_rule: str = ""


def decide(server: Counters, policy: Policy, rng: random.Random) -> object:
    return rules.decide_after_failure(server, policy, NONE_DELIVERED, now=NOON, rng=rng)


@pytest.mark.parametrize(
    ("threshold", "failed_in_row", "starts"),
    [
        pytest.param(0, 1, False, id="not set, one failure"),
        pytest.param(0, 2, True, id="not set, two failures"),
        pytest.param(1, 0, False, id="1, none"),
        pytest.param(1, 1, True, id="1, one failure"),
        pytest.param(4, 3, False, id="4, three failures"),
        pytest.param(4, 4, True, id="4, four failures"),
        pytest.param(4, 9, True, id="4, many: the counter went past while nothing could start"),
    ],
)
def test_a_cooldown_starts_at_the_threshold_of_the_group(threshold: int, failed_in_row: int, starts: bool) -> None:
    policy = rules.policy_in_force(Policy(), Params(failed_in_row=threshold))
    decision = decide(Counters(failed_in_row=failed_in_row), policy, Lowest())
    assert isinstance(decision, StartCooldown) is starts


@pytest.mark.parametrize(
    ("policy", "cooldown_times", "shortest", "longest"),
    [
        pytest.param(Policy(), 0, 60, 120, id="standard #1"),
        pytest.param(Policy(), 1, 60, 120, id="standard #2"),
        pytest.param(Policy(), 2, 720, 840, id="standard #3"),
        pytest.param(Policy(), 3, 720, 840, id="standard #4"),
        pytest.param(FIVE_STEP, 2, 60, 120, id="five_step #3"),
        pytest.param(FIVE_STEP, 3, 720, 840, id="five_step #4"),
        pytest.param(FIVE_STEP, 4, 720, 840, id="five_step #5"),
    ],
)
def test_a_cooldown_is_as_long_as_its_step(policy: Policy, cooldown_times: int, shortest: int, longest: int) -> None:
    server = Counters(cooldown_times=cooldown_times)
    for rng, minutes in ((Lowest(), shortest), (Highest(), longest)):
        decision = decide(server, policy, rng)
        assert isinstance(decision, StartCooldown)
        assert decision.number == cooldown_times + 1
        assert decision.minutes == minutes
        assert decision.end == NOON + dt.timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("policy", "cooldown_times", "expected"),
    [
        pytest.param(Policy(), 3, StartCooldown, id="standard, one step left"),
        pytest.param(Policy(), 4, NeedCheck, id="standard, used up"),
        pytest.param(Policy(), 5, NeedCheck, id="standard, past it: it was five_step before"),
        pytest.param(FIVE_STEP, 4, StartCooldown, id="five_step, one step left"),
        pytest.param(FIVE_STEP, 5, NeedCheck, id="five_step, used up"),
        pytest.param(replace(Policy(), cooldown_range=(15, 45)), 4, NeedCheck, id="a group's range keeps the steps"),
    ],
)
def test_a_used_up_ladder_ends_in_need_check(policy: Policy, cooldown_times: int, expected: type) -> None:
    decision = decide(Counters(cooldown_times=cooldown_times), policy, Lowest())
    assert isinstance(decision, expected)
    if isinstance(decision, NeedCheck):
        assert decision.path is NeedCheckPath.LADDER


@pytest.mark.parametrize(
    ("delay", "drawn_from"),
    [
        pytest.param((15, 45), (15, 45), id="both set"),
        pytest.param((20, 20), (20, 20), id="both the same"),
        pytest.param((0, 45), (60, 120), id="no from: the ladder"),
        pytest.param((15, 0), (60, 120), id="no to: the ladder"),
        pytest.param((0, 0), (60, 120), id="neither: the ladder"),
    ],
)
def test_a_range_of_the_group_replaces_the_ladders_lengths(delay: tuple[int, int], drawn_from: tuple[int, int]) -> None:
    group = Params(cooldown_delay_from=delay[0], cooldown_delay_to=delay[1])
    decision = decide(Counters(), rules.policy_in_force(Policy(), group), Lowest())
    assert isinstance(decision, StartCooldown)
    assert decision.drawn_from == drawn_from
    assert decision.minutes == drawn_from[0]


@pytest.mark.parametrize(
    "server",
    [
        pytest.param(Counters(cooldown=True), id="in cooldown"),
        *(pytest.param(Counters(status=s), id=s.value) for s in Status if s is not Status.ACTIVE),
        pytest.param(Counters(cooldown=True, cooldown_times=4), id="in its last cooldown"),
    ],
)
def test_a_failure_starts_nothing_on_a_server_that_is_out_of_rotation(server: Counters) -> None:
    assert decide(server, Policy(), Lowest()) == NoChange()


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        pytest.param((3, 5), (3, 5), id="both set"),
        pytest.param((0, 5), (8, 12), id="no from: the default"),
        pytest.param((3, 0), (8, 12), id="no to: the default"),
    ],
)
def test_the_send_interval_is_the_groups_only_when_both_ends_are_set(
    interval: tuple[int, int], expected: tuple[int, int]
) -> None:
    group = Params(send_from_message_interval=interval[0], send_to_message_interval=interval[1])
    policy = rules.policy_in_force(Policy(), group)
    drawn = [rules.draw_send_interval(policy, random.Random(seed)) for seed in range(200)]
    assert dt.timedelta(minutes=expected[0]) <= min(drawn) < max(drawn) <= dt.timedelta(minutes=expected[1])


@pytest.mark.parametrize(
    ("ladder", "usable"),
    [
        *(pytest.param(ladder, True, id=name) for name, ladder in rules.LADDERS.items()),
        pytest.param(((1, 1),), True, id="one step of one length"),
        pytest.param((), False, id="empty"),
        pytest.param(((60, 120), (120, 60)), False, id="a step inverted"),
        pytest.param(((0, 120),), False, id="a step that may be nothing"),
    ],
)
def test_a_ladder_has_steps_that_can_be_drawn_from(ladder: rules.Ladder, usable: bool) -> None:
    assert (rules.ladder_faults(ladder) == []) is usable


@given(
    st.builds(
        Counters,
        status=st.sampled_from(list(Status)),
        cooldown=st.booleans(),
        preheating=st.booleans(),
        failed_in_row=st.integers(0, 12),
        cooldown_times=st.integers(0, 7),
    ),
    st.builds(
        Params,
        failed_in_row=st.integers(0, 5),
        cooldown_delay_from=st.integers(0, 50),
        cooldown_delay_to=st.integers(50, 900),
        reset_rule=st.sampled_from(["", *rules.ResetRule]),
    ),
    st.sampled_from(list(rules.LADDERS.values())),
    st.builds(Deliveries, in_window=st.integers(0, 15), since_release=st.integers(0, 15)),
    st.integers(),
)
def test_whatever_stands_there_a_decision_keeps_within_the_ladder(
    server: Counters, group: Params, ladder: rules.Ladder, deliveries: Deliveries, seed: int
) -> None:
    policy = rules.policy_in_force(Policy(ladder=ladder), group)
    match rules.decide_after_failure(server, policy, deliveries, now=NOON, rng=random.Random(seed)):
        case StartCooldown(number, minutes, drawn_from, end, warmup_at):
            assert 1 <= number <= len(ladder)
            assert drawn_from[0] <= minutes <= drawn_from[1]
            assert end == NOON + dt.timedelta(minutes=minutes)
            assert warmup_at is None or NOON < warmup_at <= end - policy.warmup_min_margin
        case NeedCheck():
            assert server.cooldown_times >= len(ladder)
        case rules.ResetTimes():
            assert server.cooldown_times > 0
            assert server.failed_in_row < policy.threshold
        case NoChange():
            assert rules.rests(server) or server.failed_in_row < policy.threshold
