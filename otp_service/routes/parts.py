"""How many parts a text has as SMS, and what they cost. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from decimal import Decimal

import smsutil  # type: ignore[import-untyped]  # has no types

_ESCAPE = "\x1b"  # begins a character of the extension table: by itself it would change the one behind it


class Encoding(enum.StrEnum):
    """How a text travels as SMS."""

    GSM7 = "gsm7"  # 160 characters in one part, 153 in each of several; those of the extension table count twice
    UCS2 = "ucs2"  # 70 in one part, 67 in each of several; those outside the basic plane count twice


@dataclass(frozen=True, slots=True)
class Measure:
    """What a text is as SMS."""

    encoding: Encoding
    parts: int


def measure(text: str) -> Measure:
    """In GSM-7 where every character of the text is there, else in UCS-2. Even nothing is one part.

    A character is never torn in two by the end of a part. Tables of single languages are not used: few phones and
    fewer routes know them.
    """
    if not text or (_ESCAPE not in text and smsutil.is_valid_gsm(text)):
        return Measure(Encoding.GSM7, len(smsutil.gsm_split(text).parts) if text else 1)
    return Measure(Encoding.UCS2, len(smsutil.unicode_split(text).parts))


def cost(parts: int, per_part: Decimal | None) -> Decimal | None:
    """What so many parts cost, in the currency of the price; None where no price is known."""
    return None if per_part is None else parts * per_part
