"""How many parts a text has, at the exact edges of a part."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.routes.parts import Encoding, Measure, cost, measure

GSM7, UCS2 = Encoding.GSM7, Encoding.UCS2
BASIC = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡"
    "ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
EXTENSION = "\f^{}\\[~]|€"


@pytest.mark.parametrize(
    ("text", "encoding", "parts"),
    [
        pytest.param("", GSM7, 1, id="nothing"),
        pytest.param("a", GSM7, 1, id="one"),
        pytest.param("a" * 160, GSM7, 1, id="160 in one part"),
        pytest.param("a" * 161, GSM7, 2, id="161 in two"),
        pytest.param("a" * 306, GSM7, 2, id="153 in each of two"),
        pytest.param("a" * 307, GSM7, 3, id="one more in three"),
        pytest.param("€" * 80, GSM7, 1, id="the extension table counts twice"),
        pytest.param("€" * 80 + "a", GSM7, 2, id="the extension table counts twice, one too many"),
        pytest.param("a" * 152 + "€" + "a" * 7, GSM7, 2, id="161 septets: an escape ends where a part would"),
        pytest.param("a" * 152 + "€" + "a" * 151, GSM7, 2, id="the escape is not torn from its character"),
        pytest.param("a" * 152 + "€" + "a" * 152, GSM7, 3, id="what the escape left empty is lost"),
        pytest.param("€" * 152, GSM7, 2, id="76 of the extension table in each of two"),
        pytest.param("€" * 153, GSM7, 3, id="one more of the extension table"),
        pytest.param("a\n" * 80, GSM7, 1, id="line ends count once"),
        pytest.param("я", UCS2, 1, id="Cyrillic"),
        pytest.param("я" * 70, UCS2, 1, id="70 in one part"),
        pytest.param("я" * 71, UCS2, 2, id="71 in two"),
        pytest.param("я" * 134, UCS2, 2, id="67 in each of two"),
        pytest.param("я" * 135, UCS2, 3, id="one more of UCS-2 in three"),
        pytest.param("a" * 69 + "я", UCS2, 1, id="one letter decides for the whole text"),
        pytest.param("a" * 70 + "я", UCS2, 2, id="one letter decides, one too many"),
        pytest.param("🙂" * 35, UCS2, 1, id="emoji count twice"),
        pytest.param("🙂" * 35 + "a", UCS2, 2, id="emoji count twice, one too many"),
        pytest.param("🙂" * 66, UCS2, 2, id="33 emoji in each of two: none is torn"),
        pytest.param("🙂" * 67, UCS2, 3, id="one more emoji in three"),
        pytest.param("€" * 35 + "я", UCS2, 1, id="the extension table counts once in UCS-2"),
        pytest.param("ç", UCS2, 1, id="small c with a cedilla is not in the table"),
        pytest.param("Ç", GSM7, 1, id="the capital is"),
        pytest.param("`", UCS2, 1, id="a back-tick is not"),
        pytest.param("\u2019", UCS2, 1, id="nor a curly apostrophe"),
        pytest.param("\xa0", UCS2, 1, id="nor a space that does not break"),
        pytest.param("\t", UCS2, 1, id="nor a tab"),
        pytest.param("a\x1be", UCS2, 1, id="an escape of its own would make a euro sign of the e"),
        pytest.param("ς\n", UCS2, 1, id="a line end at the end hides nothing"),
    ],
)
def test_measures_a_text(text: str, encoding: Encoding, parts: int) -> None:
    assert measure(text) == Measure(encoding, parts)


@pytest.mark.parametrize("character", BASIC + EXTENSION)
def test_every_character_of_the_two_tables_travels_as_gsm7(character: str) -> None:
    assert measure(character) == Measure(GSM7, 1)


@given(st.text(st.sampled_from(BASIC + EXTENSION), min_size=1, max_size=700))
def test_parts_of_gsm7_hold_every_septet_and_no_more_than_are_needed(text: str) -> None:
    septets = sum(2 if character in EXTENSION else 1 for character in text)
    found = measure(text)
    assert found.encoding is GSM7
    if septets <= 160:
        assert found.parts == 1
    else:
        assert -(-septets // 153) <= found.parts <= -(-septets // 152)


@given(st.text(min_size=1, max_size=300))
def test_parts_of_ucs2_hold_every_unit_and_no_more_than_are_needed(text: str) -> None:
    units = len((text + "я").encode("utf-16-be")) // 2
    found = measure(text + "я")
    assert found.encoding is UCS2
    if units <= 70:
        assert found.parts == 1
    else:
        assert -(-units // 67) <= found.parts <= -(-units // 66)


@pytest.mark.parametrize(
    ("parts", "price", "total"),
    [(1, "0.05", "0.05"), (3, "0.0071", "0.0213"), (2, "0", "0")],
)
def test_a_text_costs_its_parts(parts: int, price: str, total: str) -> None:
    assert cost(parts, Decimal(price)) == Decimal(total)


def test_without_a_price_there_is_no_cost() -> None:
    assert cost(2, None) is None
