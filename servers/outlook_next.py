"""What happens next to a server, in sentences. Pure.

It is asked of the rules themselves, with the server as it would be then: nothing is reckoned twice.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from servers import gate_rules, storm_rules
from servers.gate_rules import Gated, WarmUp
from servers.outlook_rules import Figures, Preheat
from servers.outlook_words import clock, count, length, minutes
from servers.preheat_rules import Finish, Judged, RepeatDay, preheat_step
from servers.rules import (
    Counted,
    Deliveries,
    NeedCheck,
    NoChange,
    Policy,
    ResetRule,
    ResetTimes,
    StartCooldown,
    Status,
    Verdict,
    WhyNot,
    decide_after_failure,
)

_DAY = dt.timedelta(days=1)
Step = StartCooldown | NeedCheck


@dataclass(frozen=True, slots=True)
class Counts:
    """What the rules look at of a server, to be changed in thought."""

    status: str
    cooldown: bool
    preheating: bool
    failed_in_row: int
    cooldown_times: int


@dataclass(frozen=True, slots=True)
class Gate:
    """What a verdict looks at, to be changed in thought."""

    signed_in: bool
    cooldown_end_date: dt.datetime | None
    cooldown_warmup_at: dt.datetime | None
    cooldown_warmup_sent_date: dt.datetime | None
    cooldown_warmup_delivered: bool
    cooldown_extensions: int
    fail_open_streak: int


def following(figures: Figures, now: dt.datetime) -> Iterator[str]:
    """The sentences, the nearest first."""
    match figures.why_not:
        case WhyNot.NEED_CHECK:
            yield "A person decides: recover, mark active, start preheat, lost, disable"
        case WhyNot.LOST | WhyNot.DISABLED:
            yield "Nothing by itself; mark active or start preheat puts it into rotation"
        case WhyNot.DELETED:
            yield "Nothing; its history stays, and mark active puts it into rotation again"
        case WhyNot.NEW:
            yield "Mark active or start preheat puts it into rotation"
            yield from _lost(figures, now)
        case WhyNot.COOLDOWN:
            yield from _cooldown(figures, now)
            yield from _lost(figures, now)
        case _:
            yield from _rotation(figures, now)


def _rotation(figures: Figures, now: dt.datetime) -> Iterator[str]:
    yield from _lost(figures, now)
    if figures.why_not is WhyNot.HOST_DISABLED:
        yield f"It may send again when host {figures.host.number} is enabled"
    if figures.why_not is WhyNot.HOST_OFFLINE:
        yield f"It may send again when host {figures.host.number} is heard of"
    if figures.why_not is WhyNot.BUDGET:
        midnight = now.astimezone(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0) + _DAY
        yield f"The day's budget begins anew at {clock(midnight, now)}"
    yield from _preheat(figures.preheat, now)
    yield _failures(figures, counts_of(figures.server), now)
    yield from _reset(figures, now)


def _lost(figures: Figures, now: dt.datetime) -> Iterator[str]:
    if figures.lost_at is not None:
        when = f"at {clock(figures.lost_at, now)}" if figures.lost_at > now else "at the next look"
        yield f"Lost {when} unless it signs in"


# --- failures and the ladder ---------------------------------------------------------------------------


def counts_of(server: Counted) -> Counts:
    """What the rules look at of it."""
    return Counts(server.status, server.cooldown, server.preheating, server.failed_in_row, server.cooldown_times)


def next_step(counts: Counts, policy: Policy, deliveries: Deliveries, now: dt.datetime) -> tuple[int, Step]:
    """How many more failures in a row have a consequence, and which: the rule is asked after each of them."""
    for failures in range(1, policy.threshold + 1):
        counts = replace(counts, failed_in_row=counts.failed_in_row + 1)
        match decide_after_failure(counts, policy, deliveries, now=now, rng=_rng()):
            case StartCooldown() | NeedCheck() as step:
                return failures, step
            case ResetTimes():
                counts = replace(counts, cooldown_times=0)
            case NoChange():
                pass
    raise AssertionError("a server in rotation has reached its threshold by now")


def _failures(figures: Figures, counts: Counts, now: dt.datetime) -> str:
    failures, step = next_step(counts, figures.policy, figures.deliveries, now)
    subject, s = ("One more failure in a row", "s") if failures == 1 else (f"{failures} more failures in a row", "")
    if figures.braked:
        span = minutes(*storm_rules.braked_range(figures.policy))
        return f"{subject} start{s} a cooldown of {span} that does not count: a storm's brake is on"
    match step:
        case StartCooldown():
            return f"{subject} start{s} cooldown #{step.number}: {minutes(*step.drawn_from)}"
        case NeedCheck():
            return f"{subject} put{s} it into Need Check: the ladder is used up"


def deliveries_missing(counts: Counts, policy: Policy, deliveries: Deliveries, now: dt.datetime) -> int:
    """How many more deliveries bring `cooldown_times` back to 0, when that is looked at."""
    # A failure that starts no cooldown is when every rule looks.
    looked_at, policy = replace(counts, failed_in_row=0), replace(policy, threshold=1)
    for missing in range(policy.deliveries_to_reset(preheating=counts.preheating)):
        more = Deliveries(deliveries.in_window + missing, deliveries.since_release + missing)
        if isinstance(decide_after_failure(looked_at, policy, more, now=now, rng=_rng()), ResetTimes):
            return missing
    return policy.deliveries_to_reset(preheating=counts.preheating)


def _reset(figures: Figures, now: dt.datetime) -> Iterator[str]:
    counts, policy, deliveries = counts_of(figures.server), figures.policy, figures.deliveries
    if counts.cooldown_times == 0:
        return
    only_on_failures = policy.reset_rule is ResetRule.CALENDAR_WINDOW
    if only_on_failures and policy.threshold == 1:
        yield "The ladder never goes back by deliveries: each failure starts a cooldown"
        return
    missing = deliveries_missing(counts, policy, deliveries, now)
    enough = policy.deliveries_to_reset(preheating=counts.preheating)
    have = f"{enough - missing} of {enough}{_counted_since(policy, deliveries)}"
    looked_at = "at the next failure that starts no cooldown" if only_on_failures else "at the next delivery"
    if missing == 0:
        yield f"The ladder goes back to the start {looked_at} ({have})"
        return
    more = f"with {count(missing, 'more delivery', 'more deliveries')}"
    yield f"The ladder goes back to the start {more} ({have}){f', {looked_at}' if only_on_failures else ''}"


def _counted_since(policy: Policy, deliveries: Deliveries) -> str:
    by_release = policy.reset_rule is ResetRule.SINCE_RELEASE
    if policy.reset_rule is ResetRule.EITHER:
        by_release = deliveries.since_release > deliveries.in_window
    return " since its release" if by_release else f" within {length(policy.reset_window, policy.minute)}"


# --- the end of a cooldown -----------------------------------------------------------------------------


def gate_of(server: Gated) -> Gate:
    """What a verdict looks at of it."""
    return Gate(
        server.signed_in,
        server.cooldown_end_date,
        server.cooldown_warmup_at,
        server.cooldown_warmup_sent_date,
        server.cooldown_warmup_delivered,
        server.cooldown_extensions,
        server.fail_open_streak,
    )


def _cooldown(figures: Figures, now: dt.datetime) -> Iterator[str]:
    gate, policy = gate_of(figures.server), figures.policy
    end = gate.cooldown_end_date
    assert end is not None  # in cooldown iff it has dates
    yield from _warm_up(gate, policy, now)
    due = _verdict_due(gate, policy, max(end, now))
    by = f"(verdict by {clock(due + figures.limits.sweep, now)})"
    when = f"At the end, {clock(end, now)} {by}" if end > now else f"Over since {clock(end, now)} {by}"
    yield f"{when}: {'; '.join(_ends(gate, policy, due, now))}"
    again = end + figures.limits.release_pause
    yield f"Released then, it gets client messages again {f'from {clock(again, now)}' if again > now else 'at once'}"
    released = replace(counts_of(figures.server), status=Status.ACTIVE, cooldown=False, failed_in_row=0)
    yield f"After a release: {_lowered(_failures(figures, released, now))}"


def _lowered(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _warm_up(gate: Gate, policy: Policy, now: dt.datetime) -> Iterator[str]:
    end, slot = gate.cooldown_end_date, gate.cooldown_warmup_at
    if gate_rules.may_send_warm_up(gate, policy, now):
        yield "Its warm-up is due: sent at the next run, if there is a server to write to"
    elif end is not None and slot is not None:
        at = max(slot, end - policy.warmup_lead)
        if at > now and gate_rules.may_send_warm_up(gate, policy, at):
            yield f"Its warm-up may be sent from {clock(at, now)}"


def _verdict_due(gate: Gate, policy: Policy, at: dt.datetime) -> dt.datetime:
    decision = gate_rules.verdict(gate, policy, now=at, rng=_rng())
    return decision.until if isinstance(decision, gate_rules.Wait) else at


def _ends(gate: Gate, policy: Policy, due: dt.datetime, now: dt.datetime) -> Iterator[str]:
    """What may come of it: one thing, or one for each way that its warm-up may take until then."""
    verified = replace(gate, cooldown_warmup_delivered=True)
    unproven = replace(gate, cooldown_warmup_sent_date=gate.cooldown_warmup_sent_date or due - policy.verdict_delay)
    unproven_end = _end(unproven, policy, due)
    match gate_rules.warm_up(gate):
        case WarmUp.CONFIRMED:
            yield f"{_end(gate, policy, due)}, as its warm-up is confirmed"
        case WarmUp.NO_SLOT:
            yield f"{_end(gate, policy, due)}, as there is no room for a warm-up"
        case WarmUp.NOT_SENT if gate.cooldown_end_date is not None and gate.cooldown_end_date <= now:
            yield f"{_end(gate, policy, due)}, as no warm-up could be sent"
        case WarmUp.NOT_SENT:
            yield f"{_end(verified, policy, due)} if its warm-up is confirmed"
            yield f"without proof: {unproven_end}"
            yield f"without a warm-up: {_end(gate, policy, due)}"
        case WarmUp.UNCONFIRMED if gate.cooldown_warmup_sent_date is None:
            yield f"{unproven_end}, as it is signed out and cannot prove itself"
        case WarmUp.UNCONFIRMED:
            yield f"{_end(verified, policy, due)} if its warm-up is confirmed by then"
            yield f"without proof: {unproven_end}"


def _end(gate: Gate, policy: Policy, at: dt.datetime) -> str:
    match gate_rules.verdict(gate, policy, now=at, rng=_rng()):
        case gate_rules.Release(verdict, streak):
            if verdict is not Verdict.FAIL_OPEN:
                return f"released {verdict.value}"
            limit = f"of {policy.fail_open_limit} such exits in a row the last is Need Check"
            return f"released without proof, number {streak} in a row ({limit})"
        case gate_rules.Extend():
            used = f"{gate.cooldown_extensions} of {policy.max_extensions} used"
            return f"extended by {minutes(*policy.extension)} ({used})"
        case NeedCheck():
            return f"Need Check, as the exit number {policy.fail_open_limit} in a row without proof"
        case gate_rules.Wait(until):
            raise AssertionError(f"no verdict is asked for before {until}")


# --- preheat -------------------------------------------------------------------------------------------


def _preheat(preheat: Preheat | None, now: dt.datetime) -> Iterator[str]:
    if preheat is None:
        return
    plan, stands = preheat.plan, preheat.stands
    if stands.asked:
        yield "A person decides: mark active, start preheat again, Need Check, disable"
        return
    end = stands.started_at + (len(plan.per_day) + stands.repeats) * plan.day
    if now < end:
        day = plan.day_number(stands.started_at, now)
        sent = sum(one.left and one.at >= stands.started_at + day * plan.day for one in stands.sends)
        yield f"Preheat: {sent} of {plan.quota(day)} internal sends of this day are made"
    yield _end_of_plan(preheat, max(end, now), now)


def _end_of_plan(preheat: Preheat, end: dt.datetime, now: dt.datetime) -> str:
    judged = preheat_step(preheat.stands, preheat.plan, end)
    assert isinstance(judged, Judged)  # at its end a plan is judged
    enough = next(n for n in range(judged.planned + 1) if n >= preheat.plan.confirmed_share * judged.planned)
    when = f"ends at {clock(end, now)}" if end > now else "is judged at the next run"
    match preheat_step(replace(preheat.stands, sends=()), preheat.plan, end):
        case Finish():
            otherwise = "it is warm"
        case RepeatDay():
            repeats = f"{preheat.stands.repeats} of {preheat.plan.repeats} repeats used"
            otherwise = f"with fewer its last day is repeated ({repeats})"
        case _:
            otherwise = "with fewer a person is asked"
    proof = f"{enough} of {judged.planned} sends confirmed make it warm (now {judged.confirmed})"
    return f"The plan {when}: {proof}, {otherwise}"


def _rng() -> random.Random:
    """Draws that are not shown: the sentences say what is drawn from."""
    return random.Random(0)  # noqa: S311 - nothing secret is drawn from it
