"""A sweep whose pause is drawn works once when its turn has come."""

from __future__ import annotations

import datetime as dt
import random

import pytest
from django.db import transaction

from servers.models import SweepTime
from servers.sweep_times import take_turn
from tests.racing import Racer

MINUTE = dt.timedelta(minutes=1)


class Draw(random.Random):
    """Draws one share of the jitter."""

    def __init__(self, share: float) -> None:
        super().__init__(0)
        self.share = share

    def random(self) -> float:
        return self.share


def turn(now: dt.datetime, share: float = 0.0) -> bool:
    return take_turn("sweep", now=now, pause=2 * MINUTE, jitter=5 * MINUTE, tick=MINUTE, rng=Draw(share))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("share", "seconds"),
    [
        pytest.param(0.0, 120, id="two minutes at least"),
        pytest.param(0.5, 240, id="two more drawn"),
        pytest.param(1.0, 360, id="four more drawn: seven at most, with the tick"),
    ],
)
def test_the_next_turn_comes_after_the_pause_and_what_was_drawn(now: dt.datetime, share: float, seconds: int) -> None:
    assert turn(now, share)
    at = now + seconds * MINUTE / 60
    assert not turn(at - MINUTE / 60, share)
    assert turn(at, share)


@pytest.mark.django_db
def test_after_a_long_stop_there_is_one_turn(now: dt.datetime) -> None:
    assert turn(now)
    later = now + 1440 * MINUTE
    assert turn(later)
    assert not turn(later)
    assert SweepTime.objects.get().last_at == later


@pytest.mark.django_db
def test_a_clock_that_ran_ahead_does_not_stop_the_sweep(now: dt.datetime) -> None:
    assert turn(now + 1440 * MINUTE)
    assert turn(now)
    assert not turn(now)


@pytest.mark.django_db
def test_sweeps_do_not_take_each_others_turns(now: dt.datetime) -> None:
    for name in ("one", "other"):
        assert take_turn(name, now=now, pause=MINUTE, jitter=MINUTE, tick=MINUTE)


@pytest.mark.django_db(transaction=True)
def test_of_two_that_ask_at_once_one_works(now: dt.datetime) -> None:
    turn(now)
    with transaction.atomic():
        assert turn(now + 3 * MINUTE)
        second = Racer(lambda: turn(now + 3 * MINUTE))
        second.wait_until_blocked()
    assert second.result() is False


@pytest.mark.django_db(transaction=True)
def test_of_two_that_are_the_very_first_one_works(now: dt.datetime) -> None:
    with transaction.atomic():
        assert turn(now)
        second = Racer(lambda: turn(now))
        second.wait_until_blocked()
    assert second.result() is False
