"""What becomes of a cooldown that is over."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pytest

from servers import gate_rules
from servers.gate_rules import Extend, Release, Wait, WarmUp
from servers.rules import NeedCheck, NeedCheckPath, Policy, Verdict
from tests.draws import Drawn

NOON = dt.datetime(2026, 9, 1, 12, 0, 0, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)
SECOND = dt.timedelta(seconds=1)


@dataclass(frozen=True)
class Cooling:
    """A server whose cooldown ends at noon; too short for a warm-up unless it says otherwise."""

    signed_in: bool = True
    cooldown_end_date: dt.datetime | None = NOON
    cooldown_warmup_at: dt.datetime | None = None
    cooldown_warmup_sent_date: dt.datetime | None = None
    cooldown_warmup_delivered: bool = False
    cooldown_extensions: int = 0
    fail_open_streak: int = 0


def cooling(proof: WarmUp, *, extensions: int = 0, streak: int = 0) -> Cooling:
    return Cooling(
        cooldown_warmup_at=None if proof is WarmUp.NO_SLOT else NOON - 60 * MINUTE,
        cooldown_warmup_sent_date=NOON - 50 * MINUTE if proof in {WarmUp.UNCONFIRMED, WarmUp.CONFIRMED} else None,
        cooldown_warmup_delivered=proof is WarmUp.CONFIRMED,
        cooldown_extensions=extensions,
        fail_open_streak=streak,
    )


def verdict(server: Cooling, *, late: dt.timedelta = 0 * MINUTE, draws: tuple[int, ...] = ()) -> object:
    return gate_rules.verdict(server, Policy(), now=NOON + late, rng=Drawn(*draws))


@pytest.mark.parametrize(
    ("proof", "extensions", "streak", "expected"),
    [
        pytest.param(WarmUp.CONFIRMED, 0, 0, Release(Verdict.VERIFIED, 0), id="confirmed"),
        pytest.param(WarmUp.CONFIRMED, 2, 2, Release(Verdict.VERIFIED, 0), id="confirmed at last: the streak ends"),
        pytest.param(WarmUp.NO_SLOT, 0, 0, Release(Verdict.NEUTRAL, 0), id="too short for a warm-up"),
        pytest.param(WarmUp.NO_SLOT, 0, 2, Release(Verdict.NEUTRAL, 2), id="too short: the streak stays"),
        pytest.param(WarmUp.NOT_SENT, 0, 1, Release(Verdict.NEUTRAL, 1), id="never sent: the streak stays"),
        pytest.param(WarmUp.NOT_SENT, 2, 1, Release(Verdict.NEUTRAL, 1), id="never sent in the last round"),
        pytest.param(WarmUp.UNCONFIRMED, 2, 0, Release(Verdict.FAIL_OPEN, 1), id="first exit without proof"),
        pytest.param(WarmUp.UNCONFIRMED, 2, 1, Release(Verdict.FAIL_OPEN, 2), id="second exit without proof"),
        pytest.param(WarmUp.UNCONFIRMED, 2, 2, NeedCheck(NeedCheckPath.FAIL_OPEN, 3), id="third: Need Check"),
    ],
)
def test_a_verdict_follows_from_the_warm_up(proof: WarmUp, extensions: int, streak: int, expected: object) -> None:
    assert verdict(cooling(proof, extensions=extensions, streak=streak)) == expected


@pytest.mark.parametrize("extensions", [0, 1])
@pytest.mark.parametrize(("longer", "slot"), [(55, 5), (70, 10)])
def test_an_unconfirmed_warm_up_extends_twice(extensions: int, longer: int, slot: int) -> None:
    decision = verdict(cooling(WarmUp.UNCONFIRMED, extensions=extensions, streak=2), draws=(longer, slot))
    assert decision == Extend(until=NOON + longer * MINUTE, warmup_at=NOON + slot * MINUTE)


@pytest.mark.parametrize(
    ("late", "start"),
    [
        pytest.param(7, 0, id="the usual lateness: the spans follow each other"),
        pytest.param(50, 0, id="five minutes of it are left"),
        pytest.param(51, 51, id="less of it would be left: it starts now"),
        pytest.param(1440, 1440, id="a day late"),
    ],
)
def test_an_extension_lies_in_the_future_however_late_the_sweep(late: int, start: int) -> None:
    decision = verdict(cooling(WarmUp.UNCONFIRMED), late=late * MINUTE, draws=(55, 5))
    assert decision == Extend(until=NOON + (start + 55) * MINUTE, warmup_at=NOON + (start + 5) * MINUTE)


@pytest.mark.parametrize(
    ("minutes", "slot"),
    [pytest.param(15, 10, id="as drawn"), pytest.param(14, 9, id="five minutes before its end, if it is short")],
)
def test_an_extension_has_room_for_its_warm_up(minutes: int, slot: int) -> None:
    policy = Policy(extension=(minutes, minutes))
    decision = gate_rules.verdict(cooling(WarmUp.UNCONFIRMED), policy, now=NOON, rng=Drawn(minutes, 10))
    assert decision == Extend(until=NOON + minutes * MINUTE, warmup_at=NOON + slot * MINUTE)


@pytest.mark.parametrize(
    ("late", "waits"), [(0 * SECOND, True), (60 * SECOND, True), (119 * SECOND, True), (120 * SECOND, False)]
)
def test_a_warm_up_that_left_a_moment_ago_is_given_three_minutes(late: dt.timedelta, waits: bool) -> None:
    just_sent = Cooling(cooldown_warmup_at=NOON - 60 * MINUTE, cooldown_warmup_sent_date=NOON - MINUTE)
    decision = verdict(just_sent, late=late, draws=() if waits else (60, 7))
    assert (decision == Wait(NOON + 2 * MINUTE)) is waits


def test_one_that_was_confirmed_at_once_need_not_wait() -> None:
    confirmed = Cooling(cooldown_warmup_sent_date=NOON - SECOND, cooldown_warmup_delivered=True)
    assert verdict(confirmed) == Release(Verdict.VERIFIED, 0)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        pytest.param(Cooling(), WarmUp.NO_SLOT, id="not planned"),
        pytest.param(Cooling(cooldown_warmup_at=NOON), WarmUp.NOT_SENT, id="planned"),
        pytest.param(Cooling(cooldown_warmup_at=NOON, signed_in=False), WarmUp.UNCONFIRMED, id="planned, signed out"),
        pytest.param(Cooling(signed_in=False), WarmUp.NO_SLOT, id="not planned, signed out"),
        pytest.param(Cooling(cooldown_warmup_at=NOON, cooldown_warmup_sent_date=NOON), WarmUp.UNCONFIRMED, id="sent"),
        pytest.param(
            Cooling(cooldown_warmup_at=NOON, cooldown_warmup_sent_date=NOON, cooldown_warmup_delivered=True),
            WarmUp.CONFIRMED,
            id="confirmed",
        ),
        pytest.param(
            Cooling(cooldown_warmup_delivered=True), WarmUp.CONFIRMED, id="confirmed by another internal send"
        ),
    ],
)
def test_a_warm_up_stands_where_its_fields_say(server: Cooling, expected: WarmUp) -> None:
    assert gate_rules.warm_up(server) is expected


def waiting(*, slot: int, lasts: int) -> Cooling:
    """A warm-up still to be sent: its slot, and the cooldown's end, in minutes after noon."""
    return Cooling(cooldown_warmup_at=NOON + slot * MINUTE, cooldown_end_date=NOON + lasts * MINUTE)


@pytest.mark.parametrize(
    ("server", "sent"),
    [
        pytest.param(waiting(slot=1, lasts=30), False, id="before its slot"),
        pytest.param(waiting(slot=0, lasts=30), True, id="at its slot"),
        pytest.param(waiting(slot=-700, lasts=76), False, id="more than 75 min to the end"),
        pytest.param(waiting(slot=-700, lasts=75), True, id="75 min to the end"),
        pytest.param(waiting(slot=-30, lasts=1), True, id="in the last minutes, as none was sent yet"),
        pytest.param(waiting(slot=-30, lasts=0), False, id="at the end: the verdict's turn"),
        pytest.param(Cooling(cooldown_end_date=NOON + 30 * MINUTE), False, id="no slot"),
        pytest.param(Cooling(cooldown_end_date=None, cooldown_warmup_at=NOON), False, id="in no cooldown"),
    ],
)
def test_a_warm_up_is_sent_from_its_slot_on_near_the_end(server: Cooling, sent: bool) -> None:
    assert gate_rules.may_send_warm_up(server, Policy(), NOON) is sent


@pytest.mark.parametrize(("minutes", "counts"), [(0, True), (180, True), (181, False)])
def test_a_confirmation_counts_for_three_hours(minutes: int, counts: bool) -> None:
    assert gate_rules.proves_life(NOON - minutes * MINUTE, Policy(), NOON) is counts
