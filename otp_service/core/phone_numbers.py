"""Phone numbers: from what a client writes to E.164, and to what may be shown."""

from __future__ import annotations

import re

import phonenumbers
from phonenumbers import NumberParseException, PhoneNumber, PhoneNumberFormat

#: What a number may be written with. Letters, extensions and digits of other scripts are not dialled by guess.
_WRITTEN = re.compile(r"(?:\+|00)[0-9][0-9 ().-]{3,28}", re.ASCII)
#: Seven digits or more, as people write numbers: some of what stands between digits may be among them.
_NUMBER_WITHIN = re.compile(r"\+?\d(?:[ ().-]{0,2}\d){6,}")
_HIDDEN = "•"


class PhoneNumberError(ValueError):
    """A number that cannot be sent to: a stable code, and a sentence that does not repeat the number."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def parse(written: str) -> str:
    """The E.164 form of a number written in international form, with + or 00. Raises PhoneNumberError."""
    if not _WRITTEN.fullmatch(written):
        raise PhoneNumberError(
            "not_international", "Write the number in international form: +, country code, number, as in +34600000000."
        )
    number = _parsed("+" + written.removeprefix("00").removeprefix("+"))
    if number is not None and phonenumbers.is_valid_number(number):
        return phonenumbers.format_number(number, PhoneNumberFormat.E164)
    if number is not None and phonenumbers.is_possible_number(number):
        raise PhoneNumberError("not_valid", "No such number is in use in its country: check its digits.")
    raise PhoneNumberError("not_possible", "No such number can exist: check its country code and its length.")


def _parsed(international: str) -> PhoneNumber | None:
    try:
        return phonenumbers.parse(international, None)
    except NumberParseException:
        return None


def mask(e164: str) -> str:
    """What may be shown of a number: country code, first digit and last two, as in `+34 6•• ••• •00`."""
    number = _parsed(e164)
    if number is None:
        return _HIDDEN * 3
    code = f"+{number.country_code}"
    return " ".join([code, *_in_threes(_hidden(e164.removeprefix(code)))])


def mask_within(text: str) -> str:
    """A text in which each run of 7 digits or more, which may be a number, is shown as `mask` would show it.

    A run without + has no country code that is known: its first digit and its last two stay.
    """
    return _NUMBER_WITHIN.sub(lambda found: _masked_run(found[0]), text)


def _masked_run(run: str) -> str:
    digits = re.sub(r"\D", "", run)
    return mask(f"+{digits}") if run.startswith("+") else " ".join(_in_threes(_hidden(digits)))


def _hidden(digits: str) -> str:
    length = len(digits)
    first, last = (1, 2) if length >= 7 else (0, 2) if length >= 5 else (0, 0)  # of a short number less is enough
    return digits[:first] + _HIDDEN * (length - first - last) + digits[length - last :]


def _in_threes(digits: str) -> list[str]:
    """Groups of three; a lone last digit joins the group before it."""
    groups = [digits[start : start + 3] for start in range(0, len(digits), 3)]
    if len(groups) > 1 and len(groups[-1]) == 1:
        groups[-2:] = [groups[-2] + groups[-1]]
    return groups
