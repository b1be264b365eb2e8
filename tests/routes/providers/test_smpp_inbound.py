"""What of an SMSC's deliveries counts as written by a number, and what it says."""

from __future__ import annotations

import pytest
import smpp34
from hypothesis import given, settings
from hypothesis import strategies as st

from otp_service.messages.recipient_rules import Word, word
from otp_service.routes.providers.smpp_inbound import inbound, international
from otp_service.routes.providers.smpp_rules import RECEIPTED_MESSAGE_ID
from tests.routes.providers.own_smsc import wrote

HEADER, UCS2 = 0x40, 8  # esm_class, data_coding
ONE_PART, LAST_OF_TWO = b"\x05\x00\x03\x07\x01\x01", b"\x05\x00\x03\x07\x02\x02"


def word_in(pdu: smpp34.DeliverSm) -> Word | None:
    told = inbound(pdu)
    return word(told.text) if told else None


@pytest.mark.parametrize(
    "pdu",
    [
        pytest.param(wrote(b"Stop."), id="the default alphabet"),
        pytest.param(wrote(b"STOP", coding=3), id="Latin-1"),
        pytest.param(wrote(b"STOP", coding=6), id="an alphabet that nobody asked for"),
        pytest.param(wrote("STOP 🛑".encode("utf-16-be"), coding=UCS2), id="UCS-2"),
        pytest.param(wrote(b"", payload=b"stop"), id="as payload"),
        pytest.param(wrote(ONE_PART + b"STOP", esm_class=HEADER), id="with a header"),
        pytest.param(wrote(b"\x03\x25\x01\x01STOP", esm_class=HEADER), id="with a header of another kind"),
        pytest.param(wrote(b"\x00STOP", esm_class=HEADER), id="with an empty header"),
        pytest.param(wrote(ONE_PART + "STOP".encode("utf-16-be"), esm_class=HEADER, coding=UCS2), id="and in UCS-2"),
        pytest.param(wrote("STOP".encode("utf-16-be") + b"\0", coding=UCS2), id="and half a character too much"),
        pytest.param(wrote(segments=1), id="the only segment"),
        pytest.param(wrote(esm_class=0x80), id="with a path for replies"),
    ],
)
def test_a_stop_is_heard_however_it_is_written(pdu: smpp34.DeliverSm) -> None:
    assert word_in(pdu) is Word.STOP


@pytest.mark.parametrize(
    "pdu",
    [
        pytest.param(wrote(b""), id="nothing"),
        pytest.param(wrote(b"please stop"), id="more than a word"),
        pytest.param(wrote(b"", payload=b"STOP" * 15_000), id="a huge text"),
        pytest.param(wrote(b"", payload=b"." * 60_000 + b"a.a"), id="huge punctuation"),
        pytest.param(wrote("STOP".encode("utf-16-be")), id="UCS-2 that does not say so"),
        pytest.param(wrote("\u5354\u4f50".encode("utf-16-be"), coding=UCS2), id="the octets of STOP in UCS-2"),
        pytest.param(wrote(b"\xd8\x00", coding=UCS2), id="half of a pair"),
        pytest.param(wrote(b"\xff\xfe\xfd"), id="no text"),
        pytest.param(wrote(LAST_OF_TWO + b"STOP", esm_class=HEADER), id="a part of a longer text"),
        pytest.param(
            wrote(b"\x06\x08\x04\x01\x07\x02\x02STOP", esm_class=HEADER), id="a part with a reference of 16 bits"
        ),
        pytest.param(
            wrote(b"\x08\x24\x01\x01" + LAST_OF_TWO[1:] + b"STOP", esm_class=HEADER), id="said second in its header"
        ),
        pytest.param(wrote(segments=2), id="a segment of several"),
        pytest.param(wrote(b"\xffSTOP", esm_class=HEADER), id="a header longer than the text"),
        pytest.param(wrote(b"", esm_class=HEADER), id="a header that is not there"),
    ],
)
def test_what_is_no_stop_is_none_whatever_its_octets_are(pdu: smpp34.DeliverSm) -> None:
    assert word_in(pdu) is None


@pytest.mark.parametrize(
    "pdu",
    [
        pytest.param(wrote(esm_class=0x04), id="a receipt"),
        pytest.param(wrote(esm_class=0x20), id="a notification"),
        pytest.param(wrote(esm_class=0x08), id="an acknowledgement"),
        pytest.param(wrote(esm_class=0x10), id="an acknowledgement by hand"),
        pytest.param(
            smpp34.DeliverSm("34600000017", "1", b"STOP", tlvs=[smpp34.Tlv(RECEIPTED_MESSAGE_ID, b"1")]),
            id="what names a message of ours",
        ),
        pytest.param(wrote(sender="ACME", ton=5), id="from a name"),
        pytest.param(wrote(sender="34600000017", ton=5), id="from a name of digits"),
        pytest.param(wrote(sender="600000017", ton=2), id="from a national number"),
        pytest.param(wrote(sender="12345", ton=3), id="from a short code"),
    ],
)
def test_what_no_number_wrote_is_nothing(pdu: smpp34.DeliverSm) -> None:
    assert inbound(pdu) is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("34600000017", "+34600000017"),
        ("+34600000017", "+34600000017"),
        ("0034600000017", "0034600000017"),
        ("", "+"),
    ],
)
@pytest.mark.parametrize("ton", [0, 1], ids=["of no type", "international"])
def test_a_number_may_come_without_its_plus(written: str, read: str, ton: int) -> None:
    told = inbound(wrote(sender=written, ton=ton))
    assert told is not None
    assert (told.sender, international(written)) == (read, read)


def test_its_repr_shows_neither_the_number_nor_the_text() -> None:
    shown = repr(inbound(wrote(b"my secret")))
    assert "secret" not in shown
    assert "346" not in shown


@settings(deadline=None)  # a busy machine is no fault of what is read
@given(
    text=st.binary(max_size=254),
    payload=st.binary(max_size=400),
    coding=st.integers(0, 255),
    esm_class=st.sampled_from([0, HEADER]),
)
def test_nothing_that_people_write_is_a_fault_of_ours(text: bytes, payload: bytes, coding: int, esm_class: int) -> None:
    pdu = wrote(text, payload=payload, coding=coding, esm_class=esm_class)
    assert word_in(pdu) in {None, Word.STOP, Word.START}
