"""What happens next to a server, in sentences: they agree with the rules that decide it."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers import gate_rules, outlook_next, rules
from servers.outlook_next import Counts
from servers.outlook_rules import HostSeen, Limits, Preheat
from servers.preheat_rules import Preheating, PreheatPlan, Sent
from servers.rules import Deliveries, NeedCheck, Policy, ResetRule, ResetTimes, StartCooldown, WhyNot
from tests.servers.outlook_figures import HOUR, MINUTE, NOON, Seen, Window, figures, in_cooldown

# ruff: noqa: RUF001 - ranges are written with a dash


def told(server: Seen, why_not: WhyNot | None = None, **more: Any) -> list[str]:
    return list(outlook_next.following(figures(server, why_not, **more), NOON))


# --- failures ------------------------------------------------------------------------------------------

ENOUGH = Deliveries(in_window=11, since_release=0)


@pytest.mark.parametrize(
    ("server", "policy", "deliveries", "expected"),
    [
        pytest.param(
            Seen(failed_in_row=1, cooldown_times=2),
            Policy(),
            Deliveries(0, 0),
            "One more failure in a row starts cooldown #3: 12–14 h",
            id="one before the threshold",
        ),
        pytest.param(
            Seen(),
            Policy(),
            Deliveries(0, 0),
            "2 more failures in a row start cooldown #1: 60–120 min",
            id="nothing counted",
        ),
        pytest.param(
            Seen(failed_in_row=1, cooldown_times=4),
            Policy(),
            Deliveries(0, 0),
            "One more failure in a row puts it into Need Check: the ladder is used up",
            id="the ladder is used up",
        ),
        pytest.param(
            Seen(cooldown_times=3),
            Policy(cooldown_range=(15, 45)),
            Deliveries(0, 0),
            "2 more failures in a row start cooldown #4: 15–45 min",
            id="a group's range",
        ),
        pytest.param(
            Seen(failed_in_row=5),
            Policy(threshold=2),
            Deliveries(0, 0),
            "One more failure in a row starts cooldown #1: 60–120 min",
            id="over the threshold, as it was lowered",
        ),
        pytest.param(
            Seen(cooldown_times=3),
            Policy(),
            ENOUGH,
            "2 more failures in a row start cooldown #1: 60–120 min",
            id="the first of them brings the ladder back",
        ),
        pytest.param(
            Seen(failed_in_row=1, cooldown_times=3),
            Policy(),
            ENOUGH,
            "One more failure in a row starts cooldown #4: 12–14 h",
            id="the threshold comes first",
        ),
    ],
)
def test_failures(server: Seen, policy: Policy, deliveries: Deliveries, expected: str) -> None:
    assert expected in told(server, policy=policy, deliveries=deliveries)


def test_a_storms_brake_bends_what_failures_lead_to() -> None:
    assert told(Seen(failed_in_row=1, cooldown_times=4), braked=True)[0] == (
        "One more failure in a row starts a cooldown of 60–120 min that does not count: a storm's brake is on"
    )


policies = st.builds(Policy, threshold=st.integers(1, 5), reset_rule=st.sampled_from(ResetRule))
counters = st.builds(Seen, failed_in_row=st.integers(0, 6), cooldown_times=st.integers(0, 5), preheating=st.booleans())
deliveries_made = st.builds(Deliveries, in_window=st.integers(0, 14), since_release=st.integers(0, 14))


@given(counters, policies, deliveries_made)
def test_so_many_failures_have_that_consequence_by_the_rule_and_one_less_has_none(
    server: Seen, policy: Policy, deliveries: Deliveries
) -> None:
    failures, expected = outlook_next.next_step(outlook_next.counts_of(server), policy, deliveries, NOON)
    times, decisions = server.cooldown_times, []
    for number in range(1, failures + 1):
        after = replace(server, failed_in_row=server.failed_in_row + number, cooldown_times=times)
        decision = rules.decide_after_failure(after, policy, deliveries, now=NOON, rng=random.Random())
        decisions.append(decision)
        times = 0 if isinstance(decision, ResetTimes) else times
    assert not any(isinstance(decision, (StartCooldown, NeedCheck)) for decision in decisions[:-1])
    match expected, decisions[-1]:
        case StartCooldown(), StartCooldown() as last:
            assert (expected.number, expected.drawn_from) == (last.number, last.drawn_from)
        case _:
            assert expected == decisions[-1]


# --- the ladder ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "deliveries", "expected"),
    [
        pytest.param(
            ResetRule.CALENDAR_WINDOW,
            Deliveries(7, 7),
            "The ladder goes back to the start with 4 more deliveries (7 of 11 within 14 h),"
            " at the next failure that starts no cooldown",
            id="window",
        ),
        pytest.param(
            ResetRule.CALENDAR_WINDOW,
            Deliveries(10, 0),
            "The ladder goes back to the start with 1 more delivery (10 of 11 within 14 h),"
            " at the next failure that starts no cooldown",
            id="window, one before",
        ),
        pytest.param(
            ResetRule.CALENDAR_WINDOW,
            Deliveries(11, 0),
            "The ladder goes back to the start at the next failure that starts no cooldown (11 of 11 within 14 h)",
            id="window, enough",
        ),
        pytest.param(
            ResetRule.SINCE_RELEASE,
            Deliveries(11, 7),
            "The ladder goes back to the start with 4 more deliveries (7 of 11 since its release)",
            id="since release",
        ),
        pytest.param(
            ResetRule.EITHER,
            Deliveries(3, 8),
            "The ladder goes back to the start with 3 more deliveries (8 of 11 since its release)",
            id="either, the release is nearer",
        ),
        pytest.param(
            ResetRule.EITHER,
            Deliveries(8, 3),
            "The ladder goes back to the start with 3 more deliveries (8 of 11 within 14 h)",
            id="either, the window is nearer",
        ),
        pytest.param(
            ResetRule.EITHER,
            Deliveries(11, 3),
            "The ladder goes back to the start at the next delivery (11 of 11 within 14 h)",
            id="either, enough",
        ),
    ],
)
def test_what_brings_the_ladder_back(rule: ResetRule, deliveries: Deliveries, expected: str) -> None:
    server = Seen(cooldown_times=2)
    assert told(server, policy=Policy(reset_rule=rule), deliveries=deliveries)[-1] == expected


def test_nothing_is_said_of_the_ladder_at_its_start() -> None:
    assert not any("ladder goes back" in sentence for sentence in told(Seen(), deliveries=ENOUGH))


def test_with_a_threshold_of_one_the_window_never_brings_the_ladder_back() -> None:
    sentences = told(Seen(cooldown_times=2), policy=Policy(threshold=1), deliveries=ENOUGH)
    assert sentences[-1] == "The ladder never goes back by deliveries: each failure starts a cooldown"


def test_a_drill_tells_the_window_in_its_own_minutes() -> None:
    policy = Policy(minute=MINUTE / 60, reset_window=14 * HOUR / 60)
    assert "0 of 11 within 14 h" in told(Seen(cooldown_times=2), policy=policy)[-1]


@given(counters.filter(lambda server: server.cooldown_times > 0), policies, deliveries_made)
def test_so_many_deliveries_bring_the_ladder_back_by_the_rule_and_one_less_does_not(
    server: Seen, policy: Policy, deliveries: Deliveries
) -> None:
    missing = outlook_next.deliveries_missing(outlook_next.counts_of(server), policy, deliveries, NOON)

    def comes_back(more: int) -> bool:
        made = Deliveries(deliveries.in_window + more, deliveries.since_release + more)
        if policy.reset_rule is not ResetRule.CALENDAR_WINDOW:
            return isinstance(rules.decide_after_delivery(server, policy, made), ResetTimes)
        fails_once = Counts("active", False, server.preheating, 1, server.cooldown_times)
        patient = replace(policy, threshold=2)
        decision = rules.decide_after_failure(fails_once, patient, made, now=NOON, rng=random.Random())
        return isinstance(decision, ResetTimes)

    assert comes_back(missing)
    assert missing == 0 or not comes_back(missing - 1)


# --- cooldowns -----------------------------------------------------------------------------------------

AT_END = "At the end, 14:05 UTC (verdict by 14:12 UTC)"
EXTENDED = "extended by 55–70 min (0 of 2 used)"
SENT = NOON + 80 * MINUTE


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        pytest.param(
            in_cooldown(cooldown_warmup_sent_date=SENT, cooldown_warmup_delivered=True),
            f"{AT_END}: released verified, as its warm-up is confirmed",
            id="confirmed",
        ),
        pytest.param(
            in_cooldown(cooldown_warmup_at=None),
            f"{AT_END}: released neutral, as there is no room for a warm-up",
            id="too short",
        ),
        pytest.param(
            in_cooldown(),
            f"{AT_END}: released verified if its warm-up is confirmed; without proof: {EXTENDED};"
            " without a warm-up: released neutral",
            id="not sent yet",
        ),
        pytest.param(
            in_cooldown(cooldown_warmup_sent_date=SENT),
            f"{AT_END}: released verified if its warm-up is confirmed by then; without proof: {EXTENDED}",
            id="sent",
        ),
        pytest.param(
            in_cooldown(cooldown_warmup_sent_date=SENT, cooldown_extensions=1),
            f"{AT_END}: released verified if its warm-up is confirmed by then;"
            " without proof: extended by 55–70 min (1 of 2 used)",
            id="sent, extended once",
        ),
        pytest.param(
            in_cooldown(cooldown_warmup_sent_date=SENT, cooldown_extensions=2, fail_open_streak=1),
            f"{AT_END}: released verified if its warm-up is confirmed by then; without proof:"
            " released without proof, number 2 in a row (of 3 such exits in a row the last is Need Check)",
            id="sent, extensions used up",
        ),
        pytest.param(
            in_cooldown(cooldown_warmup_sent_date=SENT, cooldown_extensions=2, fail_open_streak=2),
            f"{AT_END}: released verified if its warm-up is confirmed by then;"
            " without proof: Need Check, as the exit number 3 in a row without proof",
            id="sent, the third exit without proof",
        ),
        pytest.param(
            in_cooldown(signed_in=False),
            f"{AT_END}: {EXTENDED}, as it is signed out and cannot prove itself",
            id="signed out",
        ),
        pytest.param(
            in_cooldown(cooldown_end_date=NOON, cooldown_warmup_at=NOON - 30 * MINUTE),
            "Over since 12:00 UTC (verdict by 12:07 UTC): released neutral, as no warm-up could be sent",
            id="over, nothing sent",
        ),
        pytest.param(
            in_cooldown(cooldown_end_date=NOON, cooldown_warmup_sent_date=NOON - MINUTE),
            f"Over since 12:00 UTC (verdict by 12:09 UTC): released verified if its warm-up is confirmed by then;"
            f" without proof: {EXTENDED}",
            id="over, and the warm-up left a minute ago",
        ),
    ],
)
def test_the_end_of_a_cooldown(server: Seen, expected: str) -> None:
    assert expected in told(server, WhyNot.COOLDOWN)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        pytest.param(in_cooldown(), "Its warm-up may be sent from 13:40 UTC", id="its slot"),
        pytest.param(
            in_cooldown(cooldown_warmup_at=NOON + 20 * MINUTE),
            "Its warm-up may be sent from 12:50 UTC",
            id="the last 75 minutes begin after its slot",
        ),
        pytest.param(
            in_cooldown(cooldown_warmup_at=NOON, cooldown_end_date=NOON + 75 * MINUTE),
            "Its warm-up is due: sent at the next run, if there is a server to write to",
            id="due",
        ),
        pytest.param(in_cooldown(cooldown_warmup_sent_date=NOON), None, id="sent"),
        pytest.param(in_cooldown(cooldown_warmup_at=None), None, id="no slot"),
        pytest.param(in_cooldown(signed_in=False), None, id="signed out"),
        pytest.param(in_cooldown(cooldown_warmup_delivered=True), None, id="confirmed already"),
    ],
)
def test_when_a_warm_up_is_sent(server: Seen, expected: str | None) -> None:
    sentences = [one for one in told(server, WhyNot.COOLDOWN) if one.startswith("Its warm-up")]
    assert sentences == ([expected] if expected else [])


def test_after_a_cooldown_client_messages_come_again_and_the_ladder_goes_on() -> None:
    sentences = told(in_cooldown(failed_in_row=2), WhyNot.COOLDOWN)
    assert "Released then, it gets client messages again from 14:15 UTC" in sentences
    overdue = told(in_cooldown(cooldown_end_date=NOON - 10 * MINUTE), WhyNot.COOLDOWN)
    assert "Released then, it gets client messages again at once" in overdue
    assert sentences[-1] == "After a release: 2 more failures in a row start cooldown #3: 12–14 h"


gates = st.builds(
    in_cooldown,
    signed_in=st.booleans(),
    cooldown_warmup_at=st.sampled_from([None, NOON - HOUR, NOON + 100 * MINUTE]),
    cooldown_warmup_sent_date=st.sampled_from([None, NOON - HOUR, NOON - MINUTE]),
    cooldown_warmup_delivered=st.booleans(),
    cooldown_extensions=st.integers(0, 2),
    fail_open_streak=st.integers(0, 2),
    cooldown_end_date=st.sampled_from([NOON - HOUR, NOON, NOON + MINUTE, NOON + 125 * MINUTE]),
)


@given(gates)
def test_what_the_rule_says_if_nothing_changes_is_among_what_is_told(server: Seen) -> None:
    end = server.cooldown_end_date
    assert end is not None
    at = max(end, NOON)
    decision = gate_rules.verdict(server, Policy(), now=at, rng=random.Random())
    if isinstance(decision, gate_rules.Wait):
        decision = gate_rules.verdict(server, Policy(), now=decision.until, rng=random.Random())
    sentence = next(one for one in told(server, WhyNot.COOLDOWN) if "(verdict by" in one)
    match decision:
        case gate_rules.Release(rules.Verdict.FAIL_OPEN, streak):
            assert f"released without proof, number {streak} in a row" in sentence
        case gate_rules.Release(verdict):
            assert f"released {verdict.value}" in sentence
        case gate_rules.Extend():
            assert "extended by 55–70 min" in sentence
        case NeedCheck():
            assert "Need Check, as the exit number 3" in sentence
        case gate_rules.Wait():
            pytest.fail("it has waited")


# --- out of rotation, out of reach ---------------------------------------------------------------------

FAILURES = "2 more failures in a row start cooldown #1: 60–120 min"


@pytest.mark.parametrize(
    ("why_not", "more", "expected"),
    [
        pytest.param(None, {}, [FAILURES], id="free"),
        pytest.param(WhyNot.RESTING, {}, [FAILURES], id="resting"),
        pytest.param(
            WhyNot.BUDGET,
            {"limits": Limits(1, 0, 10 * MINUTE, 7 * MINUTE)},
            ["The day's budget begins anew at 2026-09-02 00:00 UTC", FAILURES],
            id="budget",
        ),
        pytest.param(
            WhyNot.SIGNED_OUT,
            {"lost_at": NOON + HOUR},
            ["Lost at 13:00 UTC unless it signs in", FAILURES],
            id="signed out",
        ),
        pytest.param(
            WhyNot.SIGNED_OUT,
            {"lost_at": NOON},
            ["Lost at the next look unless it signs in", FAILURES],
            id="signed out for long enough",
        ),
        pytest.param(
            WhyNot.HOST_OFFLINE,
            {"host": HostSeen(3, None)},
            ["It may send again when host 3 is heard of", FAILURES],
            id="host offline",
        ),
        pytest.param(
            WhyNot.HOST_DISABLED, {}, ["It may send again when host 3 is enabled", FAILURES], id="host disabled"
        ),
        pytest.param(WhyNot.NEW, {}, ["Mark active or start preheat puts it into rotation"], id="new"),
        pytest.param(
            WhyNot.NEED_CHECK,
            {},
            ["A person decides: recover, mark active, start preheat, lost, disable"],
            id="need check",
        ),
        pytest.param(
            WhyNot.LOST, {}, ["Nothing by itself; mark active or start preheat puts it into rotation"], id="lost"
        ),
        pytest.param(
            WhyNot.DELETED,
            {},
            ["Nothing; its history stays, and mark active puts it into rotation again"],
            id="deleted",
        ),
    ],
)
def test_what_comes_next(why_not: WhyNot | None, more: dict[str, Any], expected: list[str]) -> None:
    assert told(Seen(), why_not, **more) == expected


# --- preheat -------------------------------------------------------------------------------------------


def preheat(days: float, sends: int = 0, *, repeats: int = 0, asked: bool = False, confirmed: bool = True) -> Preheat:
    start = NOON - dt.timedelta(days=days)
    made = tuple(Sent(NOON - MINUTE, confirmed) for _ in range(sends))
    return Preheat(PreheatPlan(), Preheating(start, repeats, asked, hour=12, sends=made, haste=0))


@pytest.mark.parametrize(
    ("stands", "expected"),
    [
        pytest.param(
            preheat(1.5, sends=5),
            [
                "Preheat: 5 of 8 internal sends of this day are made",
                (
                    "The plan ends at 2026-09-05 00:00 UTC: 48 of 60 sends confirmed make it warm (now 5),"
                    " with fewer its last day is repeated (0 of 2 repeats used)"
                ),
            ],
            id="its second day",
        ),
        pytest.param(
            preheat(5, sends=3, confirmed=False),
            [
                (
                    "The plan is judged at the next run: 48 of 60 sends confirmed make it warm (now 0),"
                    " with fewer its last day is repeated (0 of 2 repeats used)"
                ),
            ],
            id="over",
        ),
        pytest.param(
            preheat(6.5, sends=2, repeats=2),
            [
                "Preheat: 2 of 20 internal sends of this day are made",
                (
                    "The plan ends at 2026-09-02 00:00 UTC: 16 of 20 sends confirmed make it warm (now 2),"
                    " with fewer a person is asked"
                ),
            ],
            id="its last repeat",
        ),
        pytest.param(
            preheat(8, repeats=2, asked=True),
            ["A person decides: mark active, start preheat again, Need Check, disable"],
            id="a person was asked",
        ),
    ],
)
def test_a_preheat(stands: Preheat, expected: list[str]) -> None:
    assert told(Seen(), preheat=stands) == [*expected, FAILURES]


def test_groups_do_not_matter_to_what_the_policy_says() -> None:
    assert told(Seen(), groups=(Window("Night", 1),)) == [FAILURES]
