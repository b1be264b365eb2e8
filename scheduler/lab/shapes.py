"""Which of the expected shapes a run of the lab shows. Pure.

A shape is what a scheme is chosen or left for, in proportions that any machine shows; not a number of seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from scheduler.lab.figures import Figures
from scheduler.lab.scenarios import Scale, Scenario
from scheduler.lab.schemes import Scheme
from scheduler.lab.sizing import slots_for

Cells = Mapping[tuple[Scheme, Scenario], Figures]

#: otp are held up by nobody when 99 of 100 wait no longer than the one, none longer than the other, and all started.
HELD, AT_WORST = timedelta(milliseconds=250), timedelta(seconds=1)
#: A push route under a cap keeps a few probes in flight while it hangs.
_PROBES = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a shape shows, and in words what was expected and what was seen."""

    shows: bool
    words: str

    def __str__(self) -> str:
        return f"{'yes' if self.shows else 'NO '}  {self.words}"


def verdicts(cells: Cells, scale: Scale) -> list[Verdict]:
    """One for each shape whose cells were run."""
    return [judge(cells[cell], scale) for cell, judge in _SHAPES if cell in cells]


def is_held(found: Figures) -> bool:
    """Whether every otp was started, 99 of 100 without a wait that counts, and the last one soon."""
    in_time = found.p99.seconds <= HELD.total_seconds() and found.worst.seconds <= AT_WORST.total_seconds()
    return found.started == found.of and in_time


Judge = Callable[[Figures, Scale], Verdict]
Shape = tuple[tuple[Scheme, Scenario], Judge]


def _starves(scheme: Scheme, scenario: Scenario) -> Shape:
    def judge(found: Figures, _scale: Scale) -> Verdict:
        return Verdict(found.started == 0, f"{scheme} starts no otp, {scenario.words}: {found.started} of {found.of}")

    return (scheme, scenario), judge


def _waits_for_push(scheme: Scheme, scenario: Scenario) -> Shape:
    """About the call: at least half of it, and not much more than all of it."""
    call = scenario.push.total_seconds()

    def judge(found: Figures, _scale: Scale) -> Verdict:
        shows = 0.5 * call <= found.worst.seconds <= 1.25 * call
        return Verdict(shows, f"{scheme} waits about as long as a push call, {scenario.words}: {found.worst} at worst")

    return (scheme, scenario), judge


def _falls_behind(scheme: Scheme, scenario: Scenario) -> Shape:
    """Its slots drain floor / latency, which is less than what comes in."""

    def judge(found: Figures, scale: Scale) -> Verdict:
        drained = scale.floor / scenario.sms.total_seconds()
        return Verdict(
            found.started < found.of,
            f"{scheme} falls behind, {scenario.words}: {found.started} of {found.of} started"
            f" ({drained:g}/s of {scale.otp_per_s}/s)",
        )

    return (scheme, scenario), judge


def _holds(scheme: Scheme, scenario: Scenario) -> Shape:
    def judge(found: Figures, scale: Scale) -> Verdict:
        needed = slots_for(scale.otp_per_s, scenario.sms)
        waits = f"p99 {found.p99}, at worst {found.worst}"
        words = f"{scheme} holds, {scenario.words}: {found.started} of {found.of} started, {waits}"
        if needed > scale.floor + scale.shared - _PROBES:
            return Verdict(True, f"{scheme} cannot hold, {scenario.words}: {needed} slots are needed")
        return Verdict(is_held(found), words)

    return (scheme, scenario), judge


def _waits_too_long(scheme: Scheme, scenario: Scenario) -> Shape:
    """It starts them, but not in time: what the scheme after it is for."""

    def judge(found: Figures, _scale: Scale) -> Verdict:
        words = f"{scheme} waits too long, {scenario.words}: p99 {found.p99}, at worst {found.worst}"
        return Verdict(not is_held(found), words)

    return (scheme, scenario), judge


def _all(
    shape: Callable[[Scheme, Scenario], Shape], scheme: Scheme, scenarios: Iterable[Scenario] = Scenario
) -> list[Shape]:
    return [shape(scheme, scenario) for scenario in scenarios]


_SHAPES: tuple[Shape, ...] = (
    *_all(_starves, Scheme.FIFO),
    *_all(_waits_for_push, Scheme.A, [Scenario.PUSH_HANGS, Scenario.PUSH_HANGS_LONG]),
    *_all(_falls_behind, Scheme.B, [Scenario.SMS_SLOW]),
    *_all(_holds, Scheme.C, [Scenario.PUSH_HANGS, Scenario.SMS_SLOW]),
    *_all(_waits_too_long, Scheme.C, [Scenario.BOTH]),
    *_all(_holds, Scheme.D),
)
