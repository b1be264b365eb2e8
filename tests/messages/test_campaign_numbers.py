"""Numbers of campaigns are judged as those of single messages, only faster."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from phonenumbers import COUNTRY_CODE_TO_REGION_CODE, PhoneNumberFormat, example_number, format_number

from otp_service.core import phone_numbers
from otp_service.messages import number_patterns

_REGIONS = [name for names in COUNTRY_CODE_TO_REGION_CODE.values() for name in names if name != "001"]
#: A valid number of each region that has an example.
_EXAMPLES = [format_number(found, PhoneNumberFormat.E164) for name in _REGIONS if (found := example_number(name))]


@st.composite
def nearly_valid(draw: st.DrawFn) -> str:
    """A valid number with a digit changed, taken away or put in."""
    number = draw(st.sampled_from(_EXAMPLES))
    at = draw(st.integers(1, len(number) - 1))
    return number[:at] + draw(st.text("0123456789", max_size=2)) + number[at + draw(st.integers(0, 1)) :]


def judged(written: str) -> str | None:
    try:
        return phone_numbers.parse(written)
    except phone_numbers.PhoneNumberError:
        return None


@settings(max_examples=1_500, deadline=None)
@given(written=nearly_valid() | st.from_regex(r"\+[0-9]{4,16}", fullmatch=True))
@example(written="+44020 7946 0958")
@example(written="+5491123456789")
@example(written="+5215512345678")
@example(written="+390612345678")
def test_what_is_surely_valid_is_so_by_the_whole_parser(written: str) -> None:
    if number_patterns.is_surely_valid(written):
        assert judged(written) == written


@pytest.mark.parametrize("number", ["+34600000000", "+351912345678", "+380501234567", "+12015550123", "+447400123456"])
def test_the_common_form_is_recognised(number: str) -> None:
    assert judged(number) == number
    assert number_patterns.is_surely_valid(number)


def test_hardly_any_valid_number_needs_the_whole_parser() -> None:
    sure = sum(map(number_patterns.is_surely_valid, _EXAMPLES))
    assert len(_EXAMPLES) > 200
    assert sure > 0.9 * len(_EXAMPLES)


@pytest.mark.parametrize("written", ["+34 600 000 000", "0034600000000", "+34٦00000000", "+34600000000\n", "", "+0"])
def test_other_forms_are_left_to_the_whole_parser(written: str) -> None:
    assert not number_patterns.is_surely_valid(written)
