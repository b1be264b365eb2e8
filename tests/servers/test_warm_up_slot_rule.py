"""The earliest time of a cooldown's warm-up."""

from __future__ import annotations

import datetime as dt

import pytest

from servers.rules import Policy, warmup_slot
from tests.draws import Drawn

NOON = dt.datetime(2026, 9, 1, 12, 0, 0, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("minutes", "drawn", "has_slot"),
    [
        pytest.param(9, 5, False, id="9 min: none, whatever is drawn"),
        pytest.param(10, 5, True, id="10 min, at the margin"),
        pytest.param(10, 6, False, id="10 min, past it"),
        pytest.param(12, 5, True, id="12 min, earliest"),
        pytest.param(12, 7, True, id="12 min, at the margin"),
        pytest.param(12, 8, False, id="12 min, past it"),
        pytest.param(12, 10, False, id="12 min, latest"),
        pytest.param(15, 10, True, id="15 min: always"),
        pytest.param(59, 10, True, id="59 min: still a short one"),
        pytest.param(60, 20, True, id="60 min: a long one"),
        pytest.param(60, 30, True, id="60 min, latest"),
        pytest.param(840, 30, True, id="14 h"),
    ],
)
def test_a_slot_leaves_the_margin_to_the_end_or_there_is_none(minutes: int, drawn: int, has_slot: bool) -> None:
    slot = warmup_slot(NOON, NOON + dt.timedelta(minutes=minutes), Policy(), rng=Drawn(drawn))
    assert slot == (NOON + dt.timedelta(minutes=drawn) if has_slot else None)
