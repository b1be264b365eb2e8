"""What a group's parameters may be, at the exact edges."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.group_rules import PARAMETERS, group_faults

TOKYO = dt.timezone(dt.timedelta(hours=9))


@dataclass(frozen=True)
class Values:
    """A group that nothing is wrong with."""

    name: Any = "Night"
    priority: Any = 5
    failed_in_row: Any = 0
    cooldown_delay_from: Any = 0
    cooldown_delay_to: Any = 0
    send_from_message_interval: Any = 0
    send_to_message_interval: Any = 0
    from_time: Any = dt.time(0, 0, 0)
    to_time: Any = dt.time(23, 59, 59)
    reset_rule: Any = ""


def faults_of(**values: Any) -> list[tuple[str, str]]:
    return [(fault.field, fault.code) for fault in group_faults(replace(Values(), **values))]


def test_the_parameters_are_those_that_are_looked_at() -> None:
    assert tuple(field.name for field in fields(Values)) == PARAMETERS


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        pytest.param("name", "x", None, id="a name of one letter"),
        pytest.param("name", "Ночь 🌙", None, id="a name in any script"),
        pytest.param("name", "x" * 100, None, id="a name of 100 characters"),
        pytest.param("name", "x" * 101, "max_length", id="a name of 101"),
        pytest.param("name", "", "blank", id="no name"),
        pytest.param("name", "  ", "blank", id="a name of spaces"),
        pytest.param("name", "a\0b", "control_characters", id="NUL in a name"),
        pytest.param("name", "a\nb", "control_characters", id="two lines in a name"),
        pytest.param("name", "a\x7fb", "control_characters", id="DEL in a name"),
        pytest.param("name", "a\u2028b", "control_characters", id="a line separator in a name"),
        pytest.param("name", "a\ud800b", "control_characters", id="half a character in a name"),
        pytest.param("name", None, "invalid", id="null for a name"),
        pytest.param("priority", -(2**31), None, id="the lowest priority"),
        pytest.param("priority", -(2**31) - 1, "min_value", id="one lower"),
        pytest.param("priority", 2**31 - 1, None, id="the highest priority"),
        pytest.param("priority", 2**31, "max_value", id="one higher"),
        pytest.param("priority", None, "invalid", id="no priority"),
        pytest.param("priority", True, "invalid", id="true for a priority"),
        pytest.param("priority", "5", "invalid", id="a priority in quotes"),
        pytest.param("priority", 5.0, "invalid", id="a priority with a point"),
        pytest.param("failed_in_row", 0, None, id="the default threshold"),
        pytest.param("failed_in_row", -1, "min_value", id="a threshold under 0"),
        pytest.param("failed_in_row", 100, None, id="a threshold of 100"),
        pytest.param("failed_in_row", 101, "max_value", id="a threshold of 101"),
        pytest.param("cooldown_delay_from", -1, "min_value", id="a delay under 0"),
        pytest.param("cooldown_delay_from", 10_080, None, id="a delay of a week, its other end not set"),
        pytest.param("cooldown_delay_from", 10_081, "max_value", id="a delay of over a week"),
        pytest.param("cooldown_delay_to", 10_080, None, id="a delay up to a week"),
        pytest.param("cooldown_delay_to", 10_081, "max_value", id="a delay up to more"),
        pytest.param("send_from_message_interval", -1, "min_value", id="an interval under 0"),
        pytest.param("send_from_message_interval", 10_081, "max_value", id="an interval of over a week"),
        pytest.param("send_to_message_interval", 10_080, None, id="an interval up to a week"),
        pytest.param("send_to_message_interval", 10_081, "max_value", id="an interval up to more"),
        pytest.param("from_time", dt.time(23, 59, 58), None, id="a window of a second"),
        pytest.param("from_time", dt.time(8, 0, 0, 1), "fraction", id="a window that begins within a second"),
        pytest.param("from_time", dt.time(8, tzinfo=TOKYO), "time_zone", id="a window in Tokyo's time"),
        pytest.param("from_time", dt.time(8, tzinfo=dt.UTC), "time_zone", id="a window that says UTC"),
        pytest.param("from_time", "08:00", "invalid", id="a text for a time"),
        pytest.param("to_time", dt.time(23, 59, 59, 999_999), "fraction", id="a window that ends within a second"),
        pytest.param("to_time", dt.time(8, tzinfo=TOKYO), "time_zone", id="the end of a window in Tokyo's time"),
        pytest.param("to_time", None, "invalid", id="null for a time"),
        pytest.param("reset_rule", "either", None, id="a reset rule"),
        pytest.param("reset_rule", "Either", "invalid_choice", id="a reset rule in capitals"),
        pytest.param("reset_rule", " ", "invalid_choice", id="a space for a reset rule"),
        pytest.param("reset_rule", None, "invalid_choice", id="null for a reset rule"),
        pytest.param("reset_rule", ["either"], "invalid_choice", id="a list of reset rules"),
    ],
)
def test_a_value_is_taken_or_refused(field: str, value: Any, code: str | None) -> None:
    assert faults_of(**{field: value}) == ([(field, code)] if code else [])


@pytest.mark.parametrize(
    ("start", "end"),
    [("cooldown_delay_from", "cooldown_delay_to"), ("send_from_message_interval", "send_to_message_interval")],
    ids=["delay", "interval"],
)
@pytest.mark.parametrize(
    ("low", "high", "refused"),
    [
        pytest.param(15, 45, False, id="in order"),
        pytest.param(15, 15, False, id="one length"),
        pytest.param(16, 15, True, id="exchanged"),
        pytest.param(2, 1, True, id="exchanged, the smallest"),
        pytest.param(15, 0, False, id="its second end not set"),
        pytest.param(0, 15, False, id="its first end not set"),
    ],
)
def test_a_range_is_in_order_unless_one_end_is_not_set(
    start: str, end: str, low: int, high: int, refused: bool
) -> None:
    assert faults_of(**{start: low, end: high}) == ([(end, "inverted")] if refused else [])


@pytest.mark.parametrize(
    ("to_time", "refused"),
    [
        pytest.param(dt.time(8, 0, 0), True, id="the same second"),
        pytest.param(dt.time(8, 0, 1), False, id="a second later"),
        pytest.param(dt.time(7, 59, 59), False, id="a second before it, over midnight"),
    ],
)
def test_a_window_is_not_empty(to_time: dt.time, refused: bool) -> None:
    assert faults_of(from_time=dt.time(8), to_time=to_time) == ([("to_time", "empty_window")] if refused else [])


def test_everything_that_is_wrong_is_said_at_once_and_in_sentences() -> None:
    wrong = Values(
        name="",
        priority=None,
        failed_in_row=101,
        cooldown_delay_from=45,
        cooldown_delay_to=15,
        send_from_message_interval=-1,
        from_time=dt.time(8),
        to_time=dt.time(8),
        reset_rule="never",
    )
    faults = group_faults(wrong)
    assert [fault.field for fault in faults] == [
        "name",
        "priority",
        "failed_in_row",
        "send_from_message_interval",
        "cooldown_delay_to",
        "to_time",
        "reset_rule",
    ]
    assert all(fault.detail.endswith(".") for fault in faults)


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.times(timezones=st.none() | st.just(TOKYO)),
    st.lists(st.integers(), max_size=2),
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(PARAMETERS, anything)))
def test_no_value_of_any_type_breaks_it(values: dict[str, Any]) -> None:
    assert {field for field, _ in faults_of(**values)} <= set(PARAMETERS)
