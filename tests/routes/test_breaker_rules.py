"""When a breaker opens, lets probes through and closes, at the exact edges."""

from __future__ import annotations

import datetime as dt
import random

import pytest

from otp_service.core.outcomes import ErrorClass
from otp_service.routes import breaker_rules as rules
from otp_service.routes.breaker_rules import (
    Admission,
    BreakerState,
    Calls,
    Cause,
    Close,
    Enable,
    Ending,
    HalfOpen,
    Isolate,
    Limits,
    Open,
    Probes,
    Receipts,
    Sign,
    Standing,
    Stay,
    Step,
)
from tests.conftest import NOON

SECOND = dt.timedelta(seconds=1)
FIRST, SECOND_PAUSE, LAST = rules.PAUSES[0], rules.PAUSES[1], rules.PAUSES[-1]


class Draws(random.Random):
    """Always the same part of the way from the low end of a range to its high end."""

    def __init__(self, part: float) -> None:
        super().__init__(0)
        self.part = part

    def uniform(self, a: float, b: float) -> float:
        return a + self.part * (b - a)


def opened(generation: int = 1, until: dt.datetime = NOON, pause: dt.timedelta = FIRST) -> Standing:
    return Standing(BreakerState.OPEN, generation, NOON - pause, NOON - pause, pause, until)


def half_open(pause: dt.timedelta = FIRST) -> Standing:
    return Standing(BreakerState.HALF_OPEN, 2, NOON, NOON - pause, pause)


@pytest.mark.parametrize(
    ("error_class", "seconds", "expected"),
    [
        pytest.param(None, 2, Sign.GOOD, id="accepted at the limit"),
        pytest.param(None, 2.001, Sign.SLOW, id="accepted over the limit"),
        pytest.param(ErrorClass.RECIPIENT_INVALID, 1, Sign.GOOD, id="it answered: the number is wrong"),
        pytest.param(ErrorClass.CONTENT_REJECTED, 1, Sign.GOOD, id="it answered: the text is wrong"),
        pytest.param(ErrorClass.RECIPIENT_UNREACHABLE, 3, Sign.SLOW, id="it answered late"),
        pytest.param(ErrorClass.CONNECTION_REFUSED, 0, Sign.FAULT, id="never connected"),
        pytest.param(ErrorClass.TEMPORARY, 9, Sign.FAULT, id="a server's error, however slow"),
        pytest.param(ErrorClass.ROUTE_REJECTED, 9, Sign.REFUSED, id="it refuses us, however slow"),
        pytest.param(ErrorClass.TIMEOUT_AFTER_SUBMIT, 0, Sign.SLOW, id="no clear answer, however quick"),
        pytest.param(ErrorClass.THROTTLED, 9, Sign.NOTHING, id="we were too fast"),
        pytest.param(ErrorClass.SENDER_FAULT, 9, Sign.NOTHING, id="a server's fault"),
        pytest.param(ErrorClass.EXPIRED, 9, Sign.NOTHING, id="we were too late"),
    ],
)
def test_a_call_counts_by_whose_fault_it_was(error_class: ErrorClass | None, seconds: float, expected: Sign) -> None:
    assert rules.sign(error_class, seconds * SECOND, 2 * SECOND) is expected


OUR_FAULTS = {ErrorClass.CONNECTION_REFUSED, ErrorClass.ROUTE_REJECTED, ErrorClass.TIMEOUT_AFTER_SUBMIT}


@pytest.mark.parametrize("error_class", [None, *ErrorClass])
def test_terminal_failures_that_a_route_may_be_the_reason_of_count(error_class: ErrorClass | None) -> None:
    counts = error_class is None or error_class in OUR_FAULTS | {ErrorClass.TEMPORARY, ErrorClass.RECIPIENT_UNREACHABLE}
    assert rules.failed_ending(error_class) is (Ending.FAILED if counts else Ending.EXCUSED)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param(Calls(), Stay(), id="nothing happened"),
        pytest.param(Calls(slow=1), Stay(), id="one time-out"),
        pytest.param(Calls(faults=19), Stay(), id="all wrong, one call too few"),
        pytest.param(Calls(faults=20), Open(Cause.CALLS, 20, 20), id="all wrong, just enough calls"),
        pytest.param(Calls(good=10, faults=10), Open(Cause.CALLS, 10, 20), id="half of just enough"),
        pytest.param(Calls(good=11, faults=9), Stay(), id="less than half of just enough"),
        pytest.param(Calls(good=501, faults=499), Stay(), id="just less than half of many"),
        pytest.param(Calls(good=10, faults=4, refused=3, slow=3), Open(Cause.CALLS, 10, 20), id="signals add up"),
        pytest.param(Calls(good=10, refused=10), Open(Cause.CALLS, 10, 20), id="refusals alone"),
        pytest.param(Calls(good=10, slow=10), Open(Cause.CALLS, 10, 20), id="slow calls alone"),
        pytest.param(Calls(good=20, p95=10.0), Stay(), id="a long tail alone"),
    ],
)
def test_calls_open_a_breaker(calls: Calls, expected: Step | Stay) -> None:
    assert rules.decide(Standing(), calls, Receipts(), Probes(), NOON) == expected


@pytest.mark.parametrize(
    ("receipts", "expected"),
    [
        pytest.param(Receipts(volume=19), Stay(), id="all silent, one too few"),
        pytest.param(Receipts(volume=20), Open(Cause.RECEIPTS, 20, 20), id="all silent, just enough"),
        pytest.param(Receipts(20, in_time=10, delivered=20), Open(Cause.RECEIPTS, 10, 20), id="half late"),
        pytest.param(Receipts(20, in_time=11, delivered=11, failed=9), Stay(), id="less than half failed"),
        pytest.param(
            Receipts(20, in_time=10, delivered=13, failed=4), Open(Cause.RECEIPTS, 10, 20), id="late, failed, silent"
        ),
    ],
)
def test_receipts_open_a_breaker(receipts: Receipts, expected: Step | Stay) -> None:
    assert rules.decide(Standing(), Calls(good=1_000), receipts, Probes(), NOON) == expected


WRONG = Calls(faults=1_000)


@pytest.mark.parametrize(
    ("standing", "probes", "expected"),
    [
        pytest.param(opened(until=NOON + SECOND / 1000), Probes(), Stay(), id="open, just before the end of the pause"),
        pytest.param(opened(until=NOON), Probes(), HalfOpen(), id="open, at the end of the pause"),
        pytest.param(opened(until=NOON + SECOND), Probes(good=9, bad=9), Stay(), id="open: probes decide nothing"),
        pytest.param(half_open(), Probes(), Stay(), id="half-open, no result"),
        pytest.param(half_open(), Probes(bad=1), Stay(), id="half-open, one time-out"),
        pytest.param(half_open(), Probes(good=3, bad=1), Stay(), id="half-open, not known yet"),
        pytest.param(half_open(), Probes(good=4), Close(), id="half-open, enough good ones"),
        pytest.param(half_open(), Probes(good=4, bad=1), Close(), id="half-open, enough good ones of five"),
        pytest.param(half_open(), Probes(bad=2), Open(Cause.PROBES, 2, 2), id="half-open, two bad ones"),
        pytest.param(half_open(), Probes(good=4, bad=2), Open(Cause.PROBES, 2, 6), id="half-open, late bad ones"),
        pytest.param(
            Standing(BreakerState.ISOLATED, 3, NOON, isolated_by="ada", reason="bill"),
            Probes(good=9),
            Stay(),
            id="isolated",
        ),
    ],
)
def test_windows_decide_nothing_while_it_is_not_closed(
    standing: Standing, probes: Probes, expected: Step | Stay
) -> None:
    assert rules.decide(standing, WRONG, Receipts(volume=1_000), probes, NOON) == expected
    assert rules.decide(standing, Calls(), Receipts(), probes, NOON) == expected


@pytest.mark.parametrize(
    ("pause", "following"),
    [(None, 30), (30, 60), (60, 120), (120, 240), (240, 480), (480, 600), (600, 600), (45, 60), (9_000, 600)],
)
def test_pauses_double_up_to_ten_minutes(pause: int | None, following: int) -> None:
    assert rules.next_pause(None if pause is None else pause * SECOND) == following * SECOND


def test_a_pause_is_drawn_a_little_shorter_or_longer() -> None:
    assert rules.jittered(100 * SECOND, Draws(0)) == 90 * SECOND
    assert rules.jittered(100 * SECOND, Draws(1)) == 110 * SECOND


OPENING = Open(Cause.CALLS, 20, 20)


@pytest.mark.parametrize(
    ("standing", "pause"),
    [
        pytest.param(Standing(), FIRST, id="never opened before"),
        pytest.param(Standing(generation=3, since=NOON - rules.CALM, pause=LAST), FIRST, id="closed for long enough"),
        pytest.param(
            Standing(generation=3, since=NOON - rules.CALM + SECOND, pause=FIRST), SECOND_PAUSE, id="closed just now"
        ),
        pytest.param(Standing(generation=3, since=NOON), FIRST, id="enabled just now"),
        pytest.param(half_open(pause=FIRST), SECOND_PAUSE, id="half-open"),
        pytest.param(half_open(pause=LAST), LAST, id="half-open after the longest pause"),
    ],
)
def test_an_opening_draws_the_pause_that_is_due(standing: Standing, pause: dt.timedelta) -> None:
    new = rules.after(standing, OPENING, NOON, Draws(0))
    assert (new.state, new.pause, new.until) == (BreakerState.OPEN, pause, NOON + 0.9 * pause)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(
            OPENING, Standing(BreakerState.OPEN, 3, NOON, NOON - FIRST, SECOND_PAUSE, NOON + SECOND_PAUSE), id="opens"
        ),
        pytest.param(HalfOpen(), Standing(BreakerState.HALF_OPEN, 3, NOON, NOON - FIRST, FIRST), id="half-opens"),
        pytest.param(Close(), Standing(BreakerState.CLOSED, 3, NOON, pause=FIRST), id="closes, and knows its pause"),
        pytest.param(Enable(), Standing(BreakerState.CLOSED, 3, NOON), id="is enabled, and begins anew"),
        pytest.param(
            Isolate("ada", "no balance"),
            Standing(BreakerState.ISOLATED, 3, NOON, isolated_by="ada", reason="no balance"),
            id="is isolated",
        ),
    ],
)
def test_each_step_begins_a_generation(step: Step, expected: Standing) -> None:
    assert rules.after(half_open(), step, NOON, Draws(0.5)) == expected


@pytest.mark.parametrize(
    ("state", "admitted", "for_an_otp_without_another_way"),
    [
        (BreakerState.CLOSED, Admission.ALL, Admission.ALL),
        (BreakerState.HALF_OPEN, Admission.PROBES, Admission.PROBES),
        (BreakerState.OPEN, Admission.NONE, Admission.PROBES),
        (BreakerState.ISOLATED, Admission.NONE, Admission.NONE),
    ],
)
def test_what_may_pass(state: BreakerState, admitted: Admission, for_an_otp_without_another_way: Admission) -> None:
    assert rules.admission(state) is admitted
    assert rules.admission(state, only_way_of_otp=True) is for_an_otp_without_another_way


@pytest.mark.parametrize(
    ("state", "out", "ended", "left"),
    [
        (BreakerState.HALF_OPEN, 0, 0, 5),
        (BreakerState.HALF_OPEN, 2, 2, 1),
        (BreakerState.HALF_OPEN, 1, 4, 0),
        (BreakerState.HALF_OPEN, 0, 7, 0),
        (BreakerState.OPEN, 0, 90, 5),
        (BreakerState.OPEN, 4, 90, 1),
        (BreakerState.OPEN, 6, 0, 0),
    ],
)
def test_probes_are_bounded(state: BreakerState, out: int, ended: int, left: int) -> None:
    assert rules.tickets_left(state, out=out, ended=ended) == left


@pytest.mark.parametrize("limits", [(0, 1), (-1, 1), (1, 0), (1, -1)])
def test_refuses_limits_that_nothing_can_keep(limits: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="longer than nothing"):
        Limits(limits[0] * SECOND, limits[1] * SECOND)
