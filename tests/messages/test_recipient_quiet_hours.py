"""Quiet hours: in the number's own time zone, over midnight, and on days when clocks are set."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.messages.recipient_rules import QuietHours, quiet_until, time_zone_of, zone
from tests.factories import NOON

ZONES = {"": "UTC", "es": "Europe/Madrid", "us": "America/New_York"}


def utc(written: str) -> dt.datetime:
    return dt.datetime.fromisoformat(written).replace(tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("hours", "place", "now", "until"),
    [
        pytest.param("22:00-08:00", "Europe/Madrid", "2026-09-01T19:59:59.999999", None, id="before the evening"),
        pytest.param("22:00-08:00", "Europe/Madrid", "2026-09-01T20:00", "2026-09-02T06:00", id="from the evening on"),
        pytest.param("22:00-08:00", "Europe/Madrid", "2026-09-01T22:00", "2026-09-02T06:00", id="at midnight"),
        pytest.param(
            "22:00-08:00", "Europe/Madrid", "2026-09-02T05:59:59.999999", "2026-09-02T06:00", id="to the morning"
        ),
        pytest.param("22:00-08:00", "Europe/Madrid", "2026-09-02T06:00", None, id="not longer"),
        pytest.param("13:00-15:00", "Europe/Madrid", "2026-09-01T10:59", None, id="before a siesta"),
        pytest.param("13:00-15:00", "Europe/Madrid", "2026-09-01T11:00", "2026-09-01T13:00", id="in a siesta"),
        pytest.param("13:00-15:00", "Europe/Madrid", "2026-09-01T13:00", None, id="after a siesta"),
        pytest.param("22:00-08:00", "America/New_York", "2026-09-01T20:00", None, id="elsewhere it is afternoon"),
        pytest.param("22:00-08:00", "Asia/Tokyo", "2026-09-01T20:00", "2026-09-01T23:00", id="elsewhere it is morning"),
        pytest.param("00:00-07:30", "UTC", "2026-09-01T00:00", "2026-09-01T07:30", id="from midnight on"),
        pytest.param("20:00-00:00", "UTC", "2026-09-01T23:59", "2026-09-02T00:00", id="until midnight"),
        pytest.param("20:00-00:00", "UTC", "2026-09-02T00:00", None, id="not after midnight"),
        pytest.param(
            "22:00-08:00", "Europe/Madrid", "2026-03-28T22:00", "2026-03-29T06:00", id="clocks are set forward"
        ),
        pytest.param(
            "22:00-02:30", "Europe/Madrid", "2026-03-29T00:59", "2026-03-29T01:30", id="to a time that is left out"
        ),
        pytest.param("22:00-08:00", "Europe/Madrid", "2026-10-24T22:00", "2026-10-25T07:00", id="clocks are set back"),
        pytest.param(
            "22:00-02:30", "Europe/Madrid", "2026-10-25T00:10", "2026-10-25T00:30", id="to a time that comes twice"
        ),
        pytest.param("22:00-02:30", "Europe/Madrid", "2026-10-25T01:10", "2026-10-25T01:30", id="to its second coming"),
    ],
)
def test_end_of_the_quiet_hours(hours: str, place: str, now: str, until: str | None) -> None:
    start, end = map(dt.time.fromisoformat, hours.split("-"))
    found = quiet_until(QuietHours(start, end, ZoneInfo(place)), utc(now))
    assert found == (until and utc(until))


TIMES = st.times().map(lambda moment: moment.replace(second=0, microsecond=0))
PLACES = st.sampled_from(["UTC", "Europe/Madrid", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"])
#: Two years of minutes.
MOMENTS = st.integers(0, 2 * 366 * 1_440).map(lambda minutes: NOON + dt.timedelta(minutes=minutes))


@given(TIMES, TIMES, PLACES, MOMENTS)
def test_the_end_is_ahead_and_not_more_than_a_day(start: dt.time, end: dt.time, place: str, now: dt.datetime) -> None:
    until = quiet_until(QuietHours(start, end, ZoneInfo(place)), now)
    assert until is None or now < until <= now + dt.timedelta(hours=25)


@given(TIMES, TIMES, PLACES, MOMENTS)
def test_a_moment_is_quiet_in_the_hours_or_in_the_others(
    start: dt.time, end: dt.time, place: str, now: dt.datetime
) -> None:
    if start != end:
        one, other = QuietHours(start, end, ZoneInfo(place)), QuietHours(end, start, ZoneInfo(place))
        assert (quiet_until(one, now) is None) != (quiet_until(other, now) is None)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        pytest.param("+34910000000", "Europe/Madrid", id="a landline"),
        pytest.param("+34928000000", "Atlantic/Canary", id="a landline on an island"),
        pytest.param("+34600000000", "Europe/Madrid", id="a mobile of a country with several zones: by the setting"),
        pytest.param("+14155552671", "America/Los_Angeles", id="one zone, whatever the setting says of the country"),
        pytest.param("+18005550100", "America/New_York", id="a toll-free number"),
        pytest.param("+351912345678", "Atlantic/Azores", id="several, and no setting: the first one"),
        pytest.param("+80012345678", "UTC", id="of no country"),
    ],
)
def test_time_zone_of_a_number(number: str, expected: str) -> None:
    assert time_zone_of(number, ZONES) == expected


@pytest.mark.parametrize("name", ["Europe/Atlantis", "", "../x", "Etc/Unknown"])
def test_a_name_of_no_time_zone(name: str) -> None:
    assert zone(name) is None
