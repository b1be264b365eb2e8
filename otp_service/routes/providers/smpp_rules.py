"""SMPP's words and ours: statuses, texts, receipts, and when to bind again. Pure.

A text that does not fit into one SMS goes as `message_payload`, not as parts of our own: it has one answer, one id
and one receipt, so an attempt can never be half accepted. The SMSC cuts it up.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import smpp34

from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, Submittable
from otp_service.routes.parts import Encoding, measure
from otp_service.routes.providers.answers import foreign_id, whole_number
from otp_service.routes.providers.foreign_ids import normal_id

ROK = 0x00
MSGQFUL = 0x14
RX_T_APPN = 0x64  # to an SMSC: keep it, and deliver it again
RX_P_APPN = 0x65  # to an SMSC: this can never be read

# Tags of optional parameters.
RECEIPTED_MESSAGE_ID = 0x001E
MESSAGE_PAYLOAD = 0x0424
MESSAGE_STATE = 0x0427

#: The SMSC knows of no bind: nothing was sent, and the connection is of no use.
NO_BIND = frozenset({0x04, 0x05})
#: BINDFAIL, INVPASWD, INVSYSID: asking again soon changes nothing, and may lock us out.
BIND_REFUSED = frozenset({0x0D, 0x0E, 0x0F})

REFUSALS: Mapping[int, ErrorClass] = {
    0x01: ErrorClass.ROUTE_REJECTED,  # INVMSGLEN; this and the next two: it does not take what we write
    0x02: ErrorClass.ROUTE_REJECTED,  # INVCMDLEN
    0x03: ErrorClass.ROUTE_REJECTED,  # INVCMDID
    0x04: ErrorClass.CONNECTION_REFUSED,  # INVBNDSTS
    0x05: ErrorClass.CONNECTION_REFUSED,  # ALYBND
    0x08: ErrorClass.TEMPORARY,  # SYSERR
    0x0A: ErrorClass.ROUTE_REJECTED,  # INVSRCADR
    0x0B: ErrorClass.RECIPIENT_INVALID,  # INVDSTADR
    0x0D: ErrorClass.ROUTE_REJECTED,  # BINDFAIL
    0x0E: ErrorClass.ROUTE_REJECTED,  # INVPASWD
    0x0F: ErrorClass.ROUTE_REJECTED,  # INVSYSID
    0x14: ErrorClass.THROTTLED,  # MSGQFUL
    0x45: ErrorClass.TEMPORARY,  # SUBMITFAIL
    0x58: ErrorClass.THROTTLED,  # THROTTLED
    0x61: ErrorClass.ROUTE_REJECTED,  # INVSCHED
    0x62: ErrorClass.ROUTE_REJECTED,  # INVEXPIRY
    0x64: ErrorClass.TEMPORARY,  # RX_T_APPN
    0x65: ErrorClass.ROUTE_REJECTED,  # RX_P_APPN
    0x66: ErrorClass.ROUTE_REJECTED,  # RX_R_APPN
    0xFE: ErrorClass.TEMPORARY,  # DELIVERYFAILURE
    0xFF: ErrorClass.TEMPORARY,  # UNKNOWNERR
}


def refusal(status: int) -> ErrorClass:
    """Whose fault a `command_status` other than ROK is; one that is not in the table is taken for temporary."""
    return REFUSALS.get(status, ErrorClass.TEMPORARY)


def status_code(status: int) -> int | None:
    """A status as an error code; None for ROK, and for one that a column could not hold."""
    return whole_number(status) if status != ROK else None


def message_id(text: str) -> str:
    """An SMSC's id of a message as we keep it; "" for what cannot be kept."""
    return foreign_id(normal_id(text))


# Texts

#: `data_coding`, and the name of the codec; smsutil brings the first one.
_CODINGS: Mapping[Encoding, tuple[int, str]] = {Encoding.GSM7: (0, "gsm0338"), Encoding.UCS2: (8, "utf-16-be")}
_RECEIPT_WHEN_ENDED = 1  # registered_delivery
_LONGEST_SENDER = {5: 11}  # octets, by type of number; others:
_LONGEST_NUMBER = 20
_LONGEST_SHORT_CODE = 8  # digits; more of them are a number


def submission(send: Submittable, sender: str) -> bytes:
    """One `submit_sm` without a sequence number. Raises ValueError when the sender's name cannot be written."""
    ton, npi, source = _source(sender)
    measured = measure(send.text)
    coding, codec = _CODINGS[measured.encoding]
    octets, fits = send.text.encode(codec), measured.parts == 1
    pdu = smpp34.SubmitSm(
        source,
        send.to.removeprefix("+"),
        octets if fits else b"",
        source_addr_ton=ton,
        source_addr_npi=npi,
        dest_addr_ton=1,
        dest_addr_npi=1,
        validity_period=_absolute(send.expires_at),
        registered_delivery=_RECEIPT_WHEN_ENDED,
        data_coding=coding,
        tlvs=[] if fits else [smpp34.Tlv(MESSAGE_PAYLOAD, octets)],
    )
    return pdu.encode()


def _source(sender: str) -> tuple[int, int, str]:
    """Type of number, numbering plan, address: a number, a short code, a name, or the SMSC's own for ""."""
    if not sender:
        return 0, 0, ""
    digits = sender.removeprefix("+")
    is_number = digits.isascii() and digits.isdigit()
    is_long = sender != digits or len(digits) > _LONGEST_SHORT_CODE
    ton, npi, source = ((1, 1, digits) if is_long else (3, 0, digits)) if is_number else (5, 0, sender)
    longest = _LONGEST_SENDER.get(ton, _LONGEST_NUMBER)
    if len(source) > longest or not source.isascii() or not source.isprintable():
        raise ValueError(f"A sender name is at most {longest} ASCII characters.")
    return ton, npi, source


def _absolute(moment: datetime) -> str:
    """In SMPP's absolute form, whole seconds and UTC: what waits in their queue gets no longer life from it."""
    return f"{moment.astimezone(UTC):%y%m%d%H%M%S}000+"


# Receipts

_RECEIPT_KINDS = frozenset({0x04, 0x20})  # esm_class: a delivery receipt, an intermediate notification
KIND_BITS = 0x3C  # in esm_class; 0: somebody wrote to us


@dataclass(frozen=True, slots=True)
class _Meaning:
    state: ReportedState
    error_class: ErrorClass | None = None


#: By the word of the text form.
STATES: Mapping[str, _Meaning] = {
    "ENROUTE": _Meaning(ReportedState.SENT),
    "ACCEPTD": _Meaning(ReportedState.SENT),
    "DELIVRD": _Meaning(ReportedState.DELIVERED),
    "EXPIRED": _Meaning(ReportedState.FAILED, ErrorClass.EXPIRED),
    "DELETED": _Meaning(ReportedState.FAILED, ErrorClass.ROUTE_REJECTED),
    "UNDELIV": _Meaning(ReportedState.FAILED, ErrorClass.RECIPIENT_UNREACHABLE),
    "REJECTD": _Meaning(ReportedState.FAILED, ErrorClass.ROUTE_REJECTED),
    "UNKNOWN": _Meaning(ReportedState.UNKNOWN),
}
#: `message_state`, as the word of the text form.
STATE_WORDS: Mapping[int, str] = {
    1: "ENROUTE",
    2: "DELIVRD",
    3: "EXPIRED",
    4: "DELETED",
    5: "UNDELIV",
    6: "ACCEPTD",
    7: "UNKNOWN",
    8: "REJECTD",
}
_UNKNOWN = STATES["UNKNOWN"]
_FIELD = re.compile(r"(?:^|\s)(id|stat|err):\s*(\S+)", re.IGNORECASE)
_TEXT = re.compile(r"(?:^|\s)text:", re.IGNORECASE)  # after it comes what the message said


def is_receipt(pdu: smpp34.DeliverSm) -> bool:
    """Whether a `deliver_sm` reports on a message of ours; otherwise somebody wrote to us."""
    return pdu.esm_class & KIND_BITS in _RECEIPT_KINDS or RECEIPTED_MESSAGE_ID in parameters(pdu)


def receipt(pdu: smpp34.DeliverSm) -> Receipt | None:
    """What it reports, by its optional parameters and else by its text. None when it names no message."""
    optional = parameters(pdu)
    fields = _fields(pdu.short_message or optional.get(MESSAGE_PAYLOAD, b""))
    named = optional.get(RECEIPTED_MESSAGE_ID, b"").rstrip(b"\0").decode("latin-1").strip()
    known_as = message_id(named or fields.get("id", ""))
    if not known_as:
        return None
    state = int.from_bytes(optional.get(MESSAGE_STATE, b""), "big")
    word = STATE_WORDS.get(state) or fields.get("stat", "").upper()
    meaning = STATES.get(word, _UNKNOWN)
    return Receipt(
        meaning.state,
        provider_message_id=known_as,
        error_class=meaning.error_class,
        error_code=whole_number(fields.get("err")) if meaning.error_class else None,
    )


def parameters(pdu: smpp34.DeliverSm) -> dict[int, bytes]:
    """The optional parameters, by their tags."""
    return {tlv.tag: tlv.value for tlv in pdu.tlvs}


def _fields(octets: bytes) -> dict[str, str]:
    told = _TEXT.split(octets.decode("latin-1"), maxsplit=1)[0]
    return {name.lower(): value for name, value in _FIELD.findall(told)}


# Pauses


@dataclass(frozen=True, slots=True)
class Pauses:
    """Between two tries to bind, by how many failed before; the last one repeats."""

    lost: tuple[timedelta, ...] = tuple(timedelta(seconds=s) for s in (1, 2, 5, 10, 30, 60))
    refused: tuple[timedelta, ...] = tuple(timedelta(seconds=s) for s in (60, 300, 900, 1800))


def pause(pauses: Pauses, failures: int, status: int) -> timedelta:
    """How long to wait after the `failures`th failure in a row (from 1), whose bind was answered `status` (0: not)."""
    steps = pauses.refused if status in BIND_REFUSED else pauses.lost
    return steps[min(failures, len(steps)) - 1]


_JITTER = 0.2


def jittered(delay: timedelta, rng: random.Random) -> timedelta:
    """The delay, a fifth longer or shorter at most: many that lost one SMSC do not come back together."""
    return delay * rng.uniform(1 - _JITTER, 1 + _JITTER)
