"""What people write to us, as an SMSC delivers it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import smpp34

from otp_service.routes.providers.base import Inbound
from otp_service.routes.providers.smpp_rules import KIND_BITS, MESSAGE_PAYLOAD, is_receipt, parameters

SAR_TOTAL_SEGMENTS = 0x020E  # the tag of an optional parameter

_HAS_HEADER = 0x40  # in esm_class: the text begins with a user data header
_UCS2 = 8  # data_coding
_OF_SEVERAL = frozenset({0x00, 0x08})  # elements of a header: how many parts the text has, as the last octet but one
#: Types of number that an international one comes with: many an SMSC does not say which type it is.
_NUMBER_TYPES = frozenset({0, 1})


def inbound(pdu: smpp34.DeliverSm) -> Inbound | None:
    """What a number wrote; None for everything else.

    That is what reports on a message of ours, what comes from a name or a short code, and a part of a longer text.
    """
    if is_receipt(pdu) or pdu.esm_class & KIND_BITS or pdu.source_addr_ton not in _NUMBER_TYPES:
        return None
    optional = parameters(pdu)
    octets, header = pdu.short_message or optional.get(MESSAGE_PAYLOAD, b""), b""
    if pdu.esm_class & _HAS_HEADER:
        end = 1 + int.from_bytes(octets[:1], "big")
        header, octets = octets[1:end], octets[end:]
    if max(int.from_bytes(optional.get(SAR_TOTAL_SEGMENTS, b""), "big"), *_totals(header)) > 1:
        return None
    return Inbound(international(pdu.source_addr), _text(octets, pdu.data_coding))


def international(address: str) -> str:
    """A number in international form that may come without its +."""
    return address if address.startswith(("+", "00")) else f"+{address}"


def _totals(header: bytes) -> Iterator[int]:
    """Of how many parts a header says that this is one."""
    yield 1
    while len(header) > 2:
        end = 2 + header[1]
        if header[0] in _OF_SEVERAL and len(header) >= end > 3:
            yield header[end - 2]
        header = header[end:]


def _text(octets: bytes, coding: int) -> str:
    """Whatever the octets are. In all alphabets but one, words of plain letters are written alike."""
    return octets.decode("utf-16-be" if coding == _UCS2 else "latin-1", errors="replace")
