"""Numbers become E.164, and are shown masked."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.core import phone_numbers


@pytest.mark.parametrize(
    ("written", "e164"),
    [
        ("+34600000000", "+34600000000"),
        ("0034600000000", "+34600000000"),
        ("+34 600 00 00 00", "+34600000000"),
        ("+34-600-000.000", "+34600000000"),
        ("+1 (415) 555-0132", "+14155550132"),
        ("+380 50 123 4567", "+380501234567"),
        pytest.param("+39 06 6982", "+39066982", id="Italy keeps its zero"),
        pytest.param("+44 (0)20 7946 0000", "+442079460000", id="a trunk zero in brackets"),
    ],
)
def test_is_read_in_any_usual_spelling(written: str, e164: str) -> None:
    assert phone_numbers.parse(written) == e164
    assert phone_numbers.parse(e164) == e164


@given(st.text() | st.from_regex(r"(\+|00)[0-9 ().-]{1,40}", fullmatch=True))
def test_whatever_is_written_is_a_number_or_refused(written: str) -> None:
    try:
        e164 = phone_numbers.parse(written)
    except phone_numbers.PhoneNumberError:
        return
    assert phone_numbers.parse(e164) == e164


@pytest.mark.parametrize(
    ("written", "code"),
    [("612345678", "not_international"), ("+346123456789", "not_possible"), ("+34112345678", "not_valid")],
)
def test_refusal_says_what_to_do_and_not_the_number(written: str, code: str) -> None:
    with pytest.raises(phone_numbers.PhoneNumberError) as refused:
        phone_numbers.parse(written)
    assert refused.value.code == code
    assert written.removeprefix("+34") not in refused.value.detail


@pytest.mark.parametrize(
    ("e164", "shown"),
    [
        ("+34600000000", "+34 6•• ••• •00"),
        ("+14155550132", "+1 4•• ••• ••32"),
        ("+380501234567", "+380 5•• ••• •67"),
        ("+351912345678", "+351 9•• ••• •78"),
        pytest.param("+39066982", "+39 ••• •82", id="a short one keeps its first digit to itself"),
        pytest.param("+999", "•••", id="no number"),
        pytest.param("", "•••", id="nothing"),
    ],
)
def test_shows_country_and_edges_only(e164: str, shown: str) -> None:
    assert phone_numbers.mask(e164) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("order 123456", "order 123456", id="6 digits"),
        pytest.param("order 1234567", "order 1•• ••67", id="7 digits"),
        pytest.param("a1234567b", "a1•• ••67b", id="among letters"),
        pytest.param("to +34612345678!", "to +34 6•• ••• •78!", id="E.164"),
        pytest.param("+34 612 345 678", "+34 6•• ••• •78", id="with blanks"),
        pytest.param("612-345.678", "6•• ••• •78", id="with a hyphen and a point"),
        pytest.param("+44 (0)20 7946 0000", "+44 0•• ••• ••• 00", id="with brackets"),
        pytest.param("0034612345678", "0•• ••• ••• ••78", id="with 00"),
        pytest.param("٢١٢٣٤٥٦٧", "٢•• ••• ٦٧", id="digits of another script"),
        pytest.param("123456, 123456", "123456, 123456", id="two short ones"),
        pytest.param("1234567/7654321", "1•• ••67/7•• ••21", id="two long ones"),
        pytest.param("+9999999999", "•••", id="no country's"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_what_may_be_a_number_within_a_text_is_masked(text: str, shown: str) -> None:
    assert phone_numbers.mask_within(text) == shown


@given(st.text() | st.text("0123456789+ ().-x"))
def test_no_seven_digits_in_a_row_are_left_within_a_text(text: str) -> None:
    assert re.search(r"\d(?:[ ().-]{0,2}\d){6}", phone_numbers.mask_within(text)) is None


@given(st.from_regex(r"\+[0-9]{0,20}", fullmatch=True) | st.text())
def test_mask_shows_three_digits_of_the_national_number_at_most(e164: str) -> None:
    shown = phone_numbers.mask(e164)
    national = shown.partition(" ")[2]
    assert sum(character.isdigit() for character in national) <= 3
    assert "•" in shown
