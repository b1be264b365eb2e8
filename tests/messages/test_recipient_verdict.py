"""Whether a recipient may be sent to: STOP, quiet hours and numbers that are called invalid, by lane."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.messages.recipient_rules import (
    RecipientView,
    Send,
    Suppress,
    Verdict,
    Wait,
    is_invalid,
    verdict,
)
from otp_service.messages.rules import Channel, Lane
from tests.factories import NOON

OTP, TRANSACTIONAL, PROMO = Lane.OTP, Lane.TRANSACTIONAL, Lane.PROMO
EVENING = NOON + dt.timedelta(hours=8)
NO_SMS = frozenset({Channel.SMS})
ALL, FREE = Send(frozenset()), RecipientView()
STOPPED, QUIET, INVALID = RecipientView(stopped=True), RecipientView(quiet_until=EVENING), RecipientView(invalid=True)


@pytest.mark.parametrize(
    ("view", "lane", "stop_only_promo", "expected"),
    [
        pytest.param(FREE, OTP, True, ALL, id="nothing is known: otp"),
        pytest.param(FREE, PROMO, False, ALL, id="nothing is known: promo"),
        pytest.param(RecipientView(refused_channels=NO_SMS), OTP, True, Send(NO_SMS), id="refused channel: otp"),
        pytest.param(RecipientView(refused_channels=NO_SMS), PROMO, True, Send(NO_SMS), id="refused channel: promo"),
        pytest.param(STOPPED, PROMO, True, Suppress(), id="STOP: promo"),
        pytest.param(STOPPED, PROMO, False, Suppress(), id="STOP: promo, whatever the setting"),
        pytest.param(STOPPED, TRANSACTIONAL, True, ALL, id="STOP: transactional goes on"),
        pytest.param(STOPPED, TRANSACTIONAL, False, Suppress(), id="STOP: transactional, by the setting"),
        pytest.param(STOPPED, OTP, True, ALL, id="STOP: otp goes on"),
        pytest.param(STOPPED, OTP, False, Suppress(), id="STOP: otp, by the setting"),
        pytest.param(QUIET, PROMO, True, Wait(EVENING), id="quiet: promo"),
        pytest.param(QUIET, TRANSACTIONAL, True, ALL, id="quiet: transactional"),
        pytest.param(QUIET, OTP, False, ALL, id="quiet: otp"),
        pytest.param(
            RecipientView(stopped=True, quiet_until=EVENING), PROMO, True, Suppress(), id="STOP is not only for now"
        ),
        pytest.param(INVALID, OTP, True, Suppress(), id="invalid: otp"),
        pytest.param(INVALID, TRANSACTIONAL, True, Suppress(), id="invalid: transactional"),
        pytest.param(INVALID, PROMO, True, Suppress(), id="invalid: promo"),
    ],
)
def test_verdict(view: RecipientView, lane: Lane, stop_only_promo: bool, expected: Verdict) -> None:
    assert verdict(view, lane, stop_only_promo=stop_only_promo) == expected


def ago(*seconds: float) -> list[dt.datetime]:
    return [NOON - dt.timedelta(seconds=each) for each in seconds]


MINUTE = dt.timedelta(minutes=1)


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        pytest.param(ago(), False, id="none"),
        pytest.param(ago(1, 2), False, id="two routes"),
        pytest.param(ago(1, 2, 3), True, id="three routes"),
        pytest.param(ago(1, 2, 3, 900), True, id="three of four"),
        pytest.param(ago(1, 2, 61), True, id="three within the span"),
        pytest.param(ago(1, 2, 61.000001), False, id="the first is too far from the last"),
        pytest.param(ago(59.999999, 100, 110), True, id="the newest is not that old yet"),
        pytest.param(ago(60, 100, 110), False, id="the newest is that old"),
    ],
)
def test_a_number_is_invalid_when_three_routes_say_so_within_a_span(reports: list[dt.datetime], expected: bool) -> None:
    assert is_invalid(reports, NOON, MINUTE) is expected


@given(st.lists(st.floats(0, 200)))
def test_a_number_is_valid_again_once_the_newest_report_is_too_old(seconds: list[float]) -> None:
    reports = ago(*seconds)
    assert not is_invalid(reports, max(reports, default=NOON) + MINUTE, MINUTE)
