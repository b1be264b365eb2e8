"""Whatever happens to a route, in whatever order: its breaker never opens on little, never freezes, never floods."""

from __future__ import annotations

import datetime as dt
import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from otp_service.routes import breaker_rules as rules
from otp_service.routes.breaker_rules import (
    Admission,
    BreakerState,
    Calls,
    Cause,
    Close,
    Enable,
    HalfOpen,
    Isolate,
    Open,
    Probes,
    Receipts,
    Standing,
    Stay,
)
from tests.conftest import NOON

SECOND = dt.timedelta(seconds=1)
WINDOW = 60 * SECOND


class Route(RuleBasedStateMachine):
    """One breaker, its calls as a plain list, its tickets, and a clock that only these rules move."""

    reached: set[str] = set()  # in all runs together

    def __init__(self) -> None:
        super().__init__()
        self.now, self.rng = NOON, random.Random(1)
        self.standing = Standing()
        self.calls: list[tuple[dt.datetime, int, bool]] = []  # ended at, generation, good
        self.under_way: list[int] = []  # generations of calls that have not ended
        self.out: list[dt.datetime] = []  # when tickets of this era expire
        self.probes = Probes()

    def change(self, step: rules.Step) -> None:
        old, self.standing = self.standing, rules.after(self.standing, step, self.now, self.rng)
        assert self.standing.generation == old.generation + 1
        assert self.standing.since == self.now
        self.out, self.probes = [], Probes()
        self.reached.add(f"{old.state} to {self.standing.state}")

    def window(self) -> Calls:
        era = [good for at, gen, good in self.calls if gen == self.standing.generation and at > self.now - WINDOW]
        return Calls(good=era.count(True), faults=era.count(False))

    @rule(seconds=st.sampled_from([1, 5, 29, 31, 59, 61, 300, 599, 601, 3_600]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * SECOND
        self.out = [expires_at for expires_at in self.out if expires_at > self.now]

    @precondition(lambda self: rules.admission(self.standing.state) is Admission.ALL)
    @rule(number=st.sampled_from([1, 9, 10, 19, 20, 40]), good=st.booleans())
    def calls_end(self, number: int, *, good: bool) -> None:
        self.calls += [(self.now, self.standing.generation, good)] * number

    @precondition(lambda self: rules.admission(self.standing.state) is Admission.ALL)
    @rule()
    def a_call_hangs(self) -> None:
        self.under_way.append(self.standing.generation)

    @precondition(lambda self: self.under_way)
    @rule()
    def hanging_calls_time_out(self) -> None:
        self.calls += [(self.now, generation, False) for generation in self.under_way]
        self.under_way.clear()

    @precondition(lambda self: rules.admission(self.standing.state) is Admission.PROBES)
    @rule(wanted=st.integers(1, 9))
    def probes_leave(self, wanted: int) -> None:
        ended = self.probes.good + self.probes.bad
        left = rules.tickets_left(self.standing.state, out=len(self.out), ended=ended)
        self.out += [self.now + rules.TICKET_LIFE] * min(wanted, left)

    @precondition(lambda self: self.out)
    @rule(good=st.booleans())
    def a_probe_ends(self, *, good: bool) -> None:
        self.out.pop()
        self.probes = Probes(self.probes.good + good, self.probes.bad + (not good))

    @precondition(lambda self: self.standing.state is BreakerState.CLOSED)
    @rule(bad=st.integers(9, 20), good=st.integers(0, 11))
    def a_bad_minute_passes(self, bad: int, good: int) -> None:
        self.calls_end(bad, good=False)
        self.calls_end(good, good=True)
        self.it_is_looked_at()

    @precondition(lambda self: self.standing.until is not None)
    @rule(seconds=st.integers(-1, 1))
    def the_pause_ends(self, seconds: int) -> None:
        assert self.standing.until is not None
        self.now = max(self.now, self.standing.until + seconds * SECOND)
        self.it_is_looked_at()

    @precondition(lambda self: self.standing.state is BreakerState.HALF_OPEN)
    @rule(results=st.sampled_from([(4, 0), (4, 0), (3, 1), (4, 1), (0, 2), (0, 1)]))
    def probes_go_and_end(self, results: tuple[int, int]) -> None:
        self.probes_leave(5)
        for result in [True] * results[0] + [False] * results[1]:
            if self.out:
                self.a_probe_ends(good=result)
        self.it_is_looked_at()

    @rule()
    def it_is_looked_at(self) -> None:
        old, window = self.standing, self.window()
        step = rules.decide(old, window, Receipts(), self.probes, self.now)
        if isinstance(step, Stay):
            assert old.state is not BreakerState.OPEN or (old.until is not None and self.now < old.until)
            assert self.probes.good < 4
            assert self.probes.bad < 2
            return
        match old.state, step:
            case BreakerState.CLOSED, Open(Cause.CALLS, bad, volume):
                assert (bad, volume) == (window.bad, window.volume)
                assert volume >= 20
                assert 2 * bad >= volume
            case BreakerState.OPEN, HalfOpen():
                assert old.until is not None
                assert self.now >= old.until
            case BreakerState.HALF_OPEN, Close():
                assert self.probes.good >= 4
            case BreakerState.HALF_OPEN, Open(Cause.PROBES):
                assert self.probes.bad >= 2
            case _:
                raise AssertionError(f"{step} of one that is {old.state}")
        self.change(step)
        self._check_pause(old)

    def _check_pause(self, old: Standing) -> None:
        if self.standing.state is not BreakerState.OPEN:
            return
        assert self.standing.pause in rules.PAUSES
        place = rules.PAUSES.index(self.standing.pause)
        if old.pause in rules.PAUSES:
            grown = min(rules.PAUSES.index(old.pause) + 1, len(rules.PAUSES) - 1)
            assert place in {0, grown}
            assert place == grown or old.state is BreakerState.CLOSED
        else:
            assert place == 0

    @precondition(lambda self: self.standing.state is not BreakerState.ISOLATED)
    @rule()
    def a_person_isolates_it(self) -> None:
        self.change(Isolate("ada", "no balance"))

    @precondition(lambda self: self.standing.state is not BreakerState.CLOSED)
    @rule()
    def a_person_enables_it(self) -> None:
        self.change(Enable())

    @invariant()
    def probes_are_few(self) -> None:
        assert len(self.out) <= 5
        if self.standing.state is BreakerState.HALF_OPEN:
            assert len(self.out) + self.probes.good + self.probes.bad <= 5

    @invariant()
    def it_stands_in_a_possible_way(self) -> None:
        standing = self.standing
        shut = standing.state in {BreakerState.OPEN, BreakerState.HALF_OPEN}
        assert (standing.opened_at is not None) == shut
        assert (standing.until is not None) == (standing.state is BreakerState.OPEN)
        assert bool(standing.isolated_by) == bool(standing.reason) == (standing.state is BreakerState.ISOLATED)
        assert not shut or standing.pause is not None

    @invariant()
    def an_open_one_ends_within_its_longest_pause(self) -> None:
        if self.standing.until is not None and self.standing.since is not None:
            assert self.standing.until - self.standing.since <= 1.1 * rules.PAUSES[-1]


def test_a_breaker_does_what_it_may_whatever_happens() -> None:
    Route.reached.clear()
    run_state_machine_as_test(
        Route,
        settings=settings(
            max_examples=80, stateful_step_count=40, deadline=None, derandomize=True, database=None
        ),  # derandomized: what must have been reached, below, is no matter of luck
    )
    steps = {"closed to open", "open to half_open", "half_open to closed", "half_open to open", "isolated to closed"}
    assert steps | {"closed to isolated", "open to isolated", "open to closed"} <= Route.reached
