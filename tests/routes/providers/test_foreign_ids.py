"""Ids that two systems write differently become equal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otp_service.routes.providers.foreign_ids import normal_id


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        pytest.param("6699", "6699", id="decimal"),
        pytest.param("0000006699", "6699", id="decimal with leading zeros"),
        pytest.param("1A2B", "6699", id="hexadecimal"),
        pytest.param("1a2b", "6699", id="hexadecimal in lower case"),
        pytest.param("00001A2B", "6699", id="hexadecimal with leading zeros"),
        pytest.param("0x1A2B", "6699", id="hexadecimal with its mark"),
        pytest.param("0x0010", "16", id="digits that are marked as hexadecimal"),
        pytest.param("10", "10", id="digits alone are decimal"),
        pytest.param("0", "0", id="zero"),
        pytest.param("0000", "0", id="nothing but zeros"),
        pytest.param(" 6699\r\n", "6699", id="blanks around it"),
        pytest.param("", "", id="none"),
        pytest.param("0x", "0x", id="a mark alone"),
        pytest.param("-12", "-12", id="a sign"),
        pytest.param("1_000", "1_000", id="what Python alone takes for a number"),
        pytest.param("\u0661\u0662", "\u0661\u0662", id="digits of another script"),
        pytest.param("SM0aB9", "SM0aB9", id="a word keeps its case"),
        pytest.param("e91dbf97-b6a2-4210-9595-dec4611c1bdd", "e91dbf97-b6a2-4210-9595-dec4611c1bdd", id="a UUID"),
        pytest.param("9" * 64, "9" * 64, id="the longest number"),
        pytest.param("0" + "9" * 64, "0" + "9" * 64, id="too long for a number"),
        pytest.param("f" * 65, "f" * 65, id="too long for a hexadecimal one"),
    ],
)
def test_an_id_has_one_spelling(text: str, normal: str) -> None:
    assert normal_id(text) == normal


@settings(deadline=None)  # a busy machine is no fault of an id
@given(number=st.integers(0, 2**64), zeros=st.integers(0, 20))
def test_hexadecimal_and_decimal_meet_however_many_zeros_are_in_front(number: int, zeros: int) -> None:
    padding = "0" * zeros
    assert normal_id(f"{padding}{number}") == normal_id(f"0x{padding}{number:x}") == str(number)


@settings(deadline=None)  # a busy machine is no fault of an id
@given(number=st.integers(0, 2**64), zeros=st.integers(0, 20))
def test_a_hexadecimal_with_a_letter_needs_no_mark(number: int, zeros: int) -> None:
    digits = f"{number:x}a"
    assert normal_id("0" * zeros + digits) == normal_id(digits.upper()) == str(number * 16 + 10)


@settings(deadline=None)  # a busy machine is no fault of an id
@given(st.text(max_size=80))
def test_what_is_normal_stays_as_it_is(text: str) -> None:
    assert normal_id(normal_id(text)) == normal_id(text)


@settings(deadline=None)  # a busy machine is no fault of an id
@given(st.integers(0, 2**64), st.integers(0, 2**64))
def test_two_decimal_numbers_never_meet(one: int, other: int) -> None:
    assert (normal_id(str(one)) == normal_id(str(other))) is (one == other)
