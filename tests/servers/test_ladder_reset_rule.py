"""When deliveries bring `cooldown_times` back to 0."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pytest

from servers import rules
from servers.rules import Deliveries, NoChange, Policy, ResetCause, ResetRule, ResetTimes, Status
from tests.draws import Lowest

NOON = dt.datetime(2026, 9, 1, 12, 0, 0, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
SECOND = dt.timedelta(seconds=1)
WINDOW, RELEASE, EITHER = ResetRule.CALENDAR_WINDOW, ResetRule.SINCE_RELEASE, ResetRule.EITHER


@dataclass(frozen=True)
class Counters:
    """A server with three cooldowns behind it, one failure since."""

    status: str = Status.ACTIVE
    cooldown: bool = False
    preheating: bool = False
    failed_in_row: int = 1
    cooldown_times: int = 3


def after_failure(server: Counters, rule: ResetRule, deliveries: Deliveries, threshold: int = 2) -> object:
    policy = Policy(reset_rule=rule, threshold=threshold)
    return rules.decide_after_failure(server, policy, deliveries, now=NOON, rng=Lowest())


@pytest.mark.parametrize(
    ("rule", "deliveries", "cause"),
    [
        pytest.param(WINDOW, Deliveries(11, 0), ResetCause.WINDOW, id="calendar_window, 11 in 14 h"),
        pytest.param(WINDOW, Deliveries(10, 11), None, id="calendar_window, 10 in 14 h"),
        pytest.param(RELEASE, Deliveries(0, 11), ResetCause.RELEASE, id="since_release, 11 since"),
        pytest.param(RELEASE, Deliveries(11, 10), None, id="since_release, 10 since"),
        pytest.param(EITHER, Deliveries(11, 10), ResetCause.WINDOW, id="either, 11 in 14 h"),
        pytest.param(EITHER, Deliveries(10, 11), ResetCause.RELEASE, id="either, 11 since"),
        pytest.param(EITHER, Deliveries(10, 10), None, id="either, 10 and 10"),
    ],
)
def test_a_failure_below_the_threshold_resets_by_the_rule(
    rule: ResetRule, deliveries: Deliveries, cause: ResetCause | None
) -> None:
    assert after_failure(Counters(), rule, deliveries) == (ResetTimes(cause) if cause else NoChange())


@pytest.mark.parametrize(
    ("rule", "deliveries", "cause"),
    [
        pytest.param(WINDOW, Deliveries(99, 99), None, id="calendar_window: never on a delivery"),
        pytest.param(RELEASE, Deliveries(11, 11), ResetCause.RELEASE, id="since_release"),
        pytest.param(RELEASE, Deliveries(10, 10), None, id="since_release, 10"),
        pytest.param(EITHER, Deliveries(11, 1), ResetCause.WINDOW, id="either, by the window"),
        pytest.param(EITHER, Deliveries(10, 11), ResetCause.RELEASE, id="either, by the release"),
        pytest.param(EITHER, Deliveries(10, 10), None, id="either, 10 and 10"),
    ],
)
def test_a_delivery_resets_by_the_rules_that_look_at_deliveries(
    rule: ResetRule, deliveries: Deliveries, cause: ResetCause | None
) -> None:
    decision = rules.decide_after_delivery(Counters(failed_in_row=0), Policy(reset_rule=rule), deliveries)
    assert decision == (ResetTimes(cause) if cause else NoChange())


@pytest.mark.parametrize(
    ("server", "resets"),
    [
        pytest.param(Counters(), True, id="active"),
        pytest.param(Counters(cooldown_times=0), False, id="nothing to reset"),
        pytest.param(Counters(cooldown=True), False, id="in cooldown: it keeps its number"),
        pytest.param(Counters(status=Status.NEED_CHECK), False, id="in Need Check: a person decides"),
    ],
)
@pytest.mark.parametrize("on", ["failure", "delivery"])
def test_only_a_server_in_rotation_is_reset(on: str, server: Counters, resets: bool) -> None:
    deliveries = Deliveries(11, 11)
    policy = Policy(reset_rule=EITHER)
    decision = (
        after_failure(server, EITHER, deliveries)
        if on == "failure"
        else rules.decide_after_delivery(server, policy, deliveries)
    )
    assert decision == (ResetTimes(ResetCause.WINDOW) if resets else NoChange())


@pytest.mark.parametrize(("delivered", "resets"), [(1, False), (2, True)])
def test_two_deliveries_are_enough_while_preheating(delivered: int, resets: bool) -> None:
    decision = after_failure(Counters(preheating=True), WINDOW, Deliveries(delivered, 0))
    assert decision == (ResetTimes(ResetCause.WINDOW) if resets else NoChange())


def test_with_threshold_1_the_threshold_comes_first_and_nothing_is_reset() -> None:
    decision = after_failure(Counters(), WINDOW, Deliveries(11, 11), threshold=1)
    assert isinstance(decision, rules.StartCooldown)
    assert decision.number == 4


@pytest.mark.parametrize(
    ("at", "in_window"),
    [
        pytest.param(NOON - 14 * HOUR, 1, id="14 h ago to the second"),
        pytest.param(NOON - 14 * HOUR - SECOND, 0, id="a second longer ago"),
        pytest.param(NOON, 1, id="now"),
    ],
)
def test_the_window_includes_its_beginning(at: dt.datetime, in_window: int) -> None:
    counted = rules.count_deliveries([at], now=NOON, window=14 * HOUR, released_at=None)
    assert counted.in_window == in_window


@pytest.mark.parametrize(
    ("released_at", "since_release"),
    [
        pytest.param(None, 1, id="never released: all of them"),
        pytest.param(NOON, 1, id="released at that second"),
        pytest.param(NOON + SECOND, 0, id="released after it"),
    ],
)
def test_since_the_release_includes_its_second(released_at: dt.datetime | None, since_release: int) -> None:
    counted = rules.count_deliveries([NOON], now=NOON, window=HOUR, released_at=released_at)
    assert counted.since_release == since_release
