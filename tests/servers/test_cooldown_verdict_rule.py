"""What becomes of a cooldown that is over."""

from __future__ import annotations

import datetime as dt

import pytest

from servers import rules
from servers.rules import Extend, NeedCheck, NeedCheckPath, Release, Verdict, WarmUp
from tests.draws import Drawn

NOON = dt.datetime(2026, 9, 1, 12, 0, 0, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)


def verdict(
    proof: WarmUp, *, extensions: int = 0, streak: int = 0, late: int = 0, draws: tuple[int, ...] = ()
) -> object:
    return rules.verdict(
        proof, extensions=extensions, fail_open_streak=streak, end=NOON, now=NOON + late * MINUTE, rng=Drawn(*draws)
    )


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
    assert verdict(proof, extensions=extensions, streak=streak) == expected


@pytest.mark.parametrize("extensions", [0, 1])
@pytest.mark.parametrize(("longer", "slot"), [(55, 5), (70, 10)])
def test_an_unconfirmed_warm_up_extends_twice(extensions: int, longer: int, slot: int) -> None:
    decision = verdict(WarmUp.UNCONFIRMED, extensions=extensions, streak=2, draws=(longer, slot))
    assert decision == Extend(until=NOON + longer * MINUTE, warmup_at=NOON + slot * MINUTE)


@pytest.mark.parametrize(
    ("late", "start"),
    [
        pytest.param(7, 0, id="the usual lateness: the spans follow each other"),
        pytest.param(54, 0, id="a minute of it is left"),
        pytest.param(55, 55, id="nothing of it would be left: it starts now"),
        pytest.param(1440, 1440, id="a day late"),
    ],
)
def test_an_extension_lies_in_the_future_however_late_the_sweep(late: int, start: int) -> None:
    decision = verdict(WarmUp.UNCONFIRMED, late=late, draws=(55, 5))
    assert decision == Extend(until=NOON + (start + 55) * MINUTE, warmup_at=NOON + (start + 5) * MINUTE)


@pytest.mark.parametrize(
    ("planned", "sent", "confirmed", "expected"),
    [
        pytest.param(False, False, False, WarmUp.NO_SLOT, id="not planned"),
        pytest.param(True, False, False, WarmUp.NOT_SENT, id="planned"),
        pytest.param(True, True, False, WarmUp.UNCONFIRMED, id="sent"),
        pytest.param(True, True, True, WarmUp.CONFIRMED, id="confirmed"),
        pytest.param(False, False, True, WarmUp.CONFIRMED, id="confirmed by another internal send"),
    ],
)
def test_a_warm_up_stands_where_its_fields_say(planned: bool, sent: bool, confirmed: bool, expected: WarmUp) -> None:
    assert rules.warm_up(planned=planned, sent=sent, confirmed=confirmed) is expected
