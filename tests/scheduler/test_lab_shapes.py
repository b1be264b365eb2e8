"""Which shapes are expected, and when one counts as shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.lab.figures import Figures, Wait
from scheduler.lab.scenarios import SMALL, Scale, Scenario
from scheduler.lab.schemes import Scheme
from scheduler.lab.shapes import is_held, verdicts

HELD = Figures(
    started=150,
    of=150,
    p50=Wait(0.01, at_least=False),
    p99=Wait(0.25, at_least=False),
    worst=Wait(0.3, at_least=False),
    promo_per_s=100,
)
NONE = replace(HELD, started=0, p50=Wait(14, at_least=True), p99=Wait(22, at_least=True), worst=Wait(22, at_least=True))
BEHIND = replace(HELD, started=149)


def waiting(worst: float) -> Figures:
    return replace(HELD, worst=Wait(worst, at_least=False))


def late(p99: float) -> Figures:
    return replace(HELD, p99=Wait(p99, at_least=False))


@pytest.mark.parametrize(
    ("found", "held"),
    [
        pytest.param(HELD, True, id="p99 at the limit"),
        pytest.param(late(0.2501), False, id="p99 just over it"),
        pytest.param(BEHIND, False, id="one was not started"),
        pytest.param(waiting(1.0), True, id="the last one at its limit"),
        pytest.param(waiting(1.0001), False, id="the last one just over it"),
    ],
)
def test_otp_are_held_up_by_nobody(found: Figures, held: bool) -> None:
    assert is_held(found) is held


@pytest.mark.parametrize(
    ("scheme", "scenario", "found", "shows"),
    [
        pytest.param(Scheme.FIFO, Scenario.HEALTHY, NONE, True, id="FIFO starts none"),
        pytest.param(Scheme.FIFO, Scenario.HEALTHY, replace(NONE, started=1), False, id="FIFO starts one"),
        pytest.param(Scheme.A, Scenario.PUSH_HANGS, waiting(1.5), True, id="A waits half a push call"),
        pytest.param(Scheme.A, Scenario.PUSH_HANGS, waiting(1.49), False, id="A waits less than that"),
        pytest.param(Scheme.A, Scenario.PUSH_HANGS, waiting(3.75), True, id="A waits a push call and a quarter"),
        pytest.param(Scheme.A, Scenario.PUSH_HANGS, waiting(3.76), False, id="A waits longer than that"),
        pytest.param(Scheme.A, Scenario.PUSH_HANGS_LONG, NONE, True, id="A starts none under a raised time-out"),
        pytest.param(Scheme.B, Scenario.SMS_SLOW, BEHIND, True, id="B falls behind"),
        pytest.param(Scheme.B, Scenario.SMS_SLOW, HELD, False, id="B does not"),
        pytest.param(Scheme.C, Scenario.PUSH_HANGS, HELD, True, id="C holds a push that hangs"),
        pytest.param(Scheme.C, Scenario.PUSH_HANGS, late(0.3), False, id="C does not hold it"),
        pytest.param(Scheme.C, Scenario.SMS_SLOW, HELD, True, id="C holds a slow SMS"),
        pytest.param(Scheme.C, Scenario.SMS_SLOW, BEHIND, False, id="C does not hold that"),
        pytest.param(Scheme.C, Scenario.BOTH, late(0.3), True, id="C waits too long with both"),
        pytest.param(Scheme.C, Scenario.BOTH, HELD, False, id="C does not"),
        pytest.param(Scheme.D, Scenario.PUSH_HANGS_LONG, HELD, True, id="D holds a raised time-out"),
        pytest.param(Scheme.D, Scenario.PUSH_HANGS_LONG, late(0.3), False, id="D does not hold it"),
        pytest.param(Scheme.D, Scenario.BOTH, HELD, True, id="D holds both at once"),
        pytest.param(Scheme.D, Scenario.BOTH, BEHIND, False, id="D does not hold both"),
    ],
)
def test_shape_of_one_cell(scheme: Scheme, scenario: Scenario, found: Figures, shows: bool) -> None:
    [verdict] = verdicts({(scheme, scenario): found}, SMALL)
    assert verdict.shows is shows
    assert scenario.words in verdict.words


@pytest.mark.parametrize(
    ("scheme", "scenario"),
    [
        pytest.param(Scheme.A, Scenario.SMS_SLOW, id="A with a slow SMS"),
        pytest.param(Scheme.B, Scenario.PUSH_HANGS, id="B with a push that hangs"),
        pytest.param(Scheme.C, Scenario.HEALTHY, id="C on a healthy day"),
    ],
)
def test_nothing_is_expected_of_other_cells(scheme: Scheme, scenario: Scenario) -> None:
    assert verdicts({(scheme, scenario): NONE}, SMALL) == []


def test_no_more_is_expected_than_the_slots_can_carry() -> None:
    few = Scale(floor=6, shared=10, otp_per_s=10, promo_rows=1)  # 15 for slow SMS, and two calls that hang: 17
    [cannot] = verdicts({(Scheme.D, Scenario.BOTH): BEHIND}, few)
    assert (cannot.shows, "15 slots are needed" in cannot.words) == (True, True)
    [could] = verdicts({(Scheme.D, Scenario.BOTH): BEHIND}, replace(few, shared=11))
    assert not could.shows


def test_says_what_was_expected_and_what_was_seen() -> None:
    [verdict] = verdicts({(Scheme.B, Scenario.SMS_SLOW): replace(HELD, started=88)}, SMALL)
    assert str(verdict) == "yes  B falls behind, SMS takes 1.5 s: 88 of 150 started (4/s of 10/s)"
