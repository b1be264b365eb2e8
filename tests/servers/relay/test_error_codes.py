"""Whose fault a reported code is."""

from __future__ import annotations

import pytest

from otp_service.core.outcomes import ErrorClass
from servers.relay.error_codes import error_class, error_label


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (120, ErrorClass.SENDER_FAULT),
        (125, ErrorClass.SENDER_FAULT),
        (22, ErrorClass.RECIPIENT_UNREACHABLE),
        (130, ErrorClass.SENDER_FAULT),
        (140, ErrorClass.THROTTLED),
        (4711, ErrorClass.SENDER_FAULT),
        (0, ErrorClass.SENDER_FAULT),
        (-1, ErrorClass.SENDER_FAULT),
        (None, ErrorClass.SENDER_FAULT),
    ],
)
def test_a_code_has_a_class_and_unknown_ones_count_as_125(code: int | None, expected: ErrorClass) -> None:
    assert error_class(code) is expected


def test_an_unknown_code_is_shown_as_it_came() -> None:
    assert "4711" in error_label(4711)


def test_a_known_code_has_a_label() -> None:
    assert error_label(22) == "recipient is not on iMessage"
