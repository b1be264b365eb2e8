"""Which answers mean STOP and START: one word, alone."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.messages.recipient_rules import Word, word


@pytest.mark.parametrize("text", ["STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT"])
def test_words_that_stop(text: str) -> None:
    assert word(text) is Word.STOP


@pytest.mark.parametrize("text", ["START", "UNSTOP"])
def test_words_that_start_again(text: str) -> None:
    assert word(text) is Word.START


@pytest.mark.parametrize(
    "text", ["stop", "Stop.", " STOP \n", "«stop»", "Stop!!!", "_stop_", "STOP\ufe0f", "\u200bstop"]
)
def test_case_and_what_stands_around_do_not_matter(text: str) -> None:
    assert word(text) is Word.STOP


@pytest.mark.parametrize(
    "text", ["", " ", "!", "please stop", "stop it", "don't stop", "STOP 1", "stopp", "non-stop", "yes", "s t o p"]
)
def test_other_texts_mean_nothing(text: str) -> None:
    assert word(text) is None


@given(st.sampled_from(["stop", "start"]), st.text(string.punctuation + string.whitespace))
def test_any_punctuation_around_is_ignored(text: str, around: str) -> None:
    assert word(around + text + around) is Word(text)


@pytest.mark.parametrize("text", ["." * 65_536, "." * 32_000 + "a" + "." * 32_000 + "a", "a." * 32_000])
def test_a_long_text_is_no_work(text: str) -> None:
    assert word(text) is None
