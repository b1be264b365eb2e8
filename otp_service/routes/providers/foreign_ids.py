"""Ids of other systems, so that two spellings of one id are equal. Pure."""

from __future__ import annotations

import re

_LONGEST = 64  # digits; a longer text is no number of anybody's
_DECIMAL = re.compile(rf"[0-9]{{1,{_LONGEST}}}", re.ASCII)
_HEXADECIMAL = re.compile(rf"(?:0x)?[0-9a-f]{{1,{_LONGEST}}}", re.ASCII | re.IGNORECASE)


def normal_id(text: str) -> str:
    """The id as a decimal number without leading zeros; stripped and otherwise as it came when it is no number.

    An SMSC may answer a submission in hexadecimal and report on it in decimal, or pad one of the two with zeros.
    Digits alone are read as decimal, since nothing in them says that they are hexadecimal.
    """
    word = text.strip()
    if _DECIMAL.fullmatch(word):
        return str(int(word))
    if _HEXADECIMAL.fullmatch(word):
        return str(int(word, 16))
    return word
