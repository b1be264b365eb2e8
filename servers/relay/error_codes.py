"""The error codes that relay hosts report, and whose fault each is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from otp_service.core.outcomes import ErrorClass


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One row: what people read, and what may be tried next (iMessage; on SMS 120 means the recipient)."""

    label: str
    error_class: ErrorClass


NOT_DELIVERED = 120
SERVICE_ERROR = 125
NOT_ON_IMESSAGE = 22
SIGNED_OUT = 130
RATE_LIMITED = 140

ERROR_CODES: Mapping[int, ErrorCode] = {
    NOT_DELIVERED: ErrorCode("not delivered (recipient side or account)", ErrorClass.SENDER_FAULT),
    SERVICE_ERROR: ErrorCode("service error or timeout", ErrorClass.SENDER_FAULT),
    NOT_ON_IMESSAGE: ErrorCode("recipient is not on iMessage", ErrorClass.RECIPIENT_UNREACHABLE),
    SIGNED_OUT: ErrorCode("unit signed out", ErrorClass.SENDER_FAULT),
    RATE_LIMITED: ErrorCode("rate limited by the service", ErrorClass.THROTTLED),
}

#: What an absent or unknown code is treated as; the code itself is kept as it came.
DEFAULT_CODE = SERVICE_ERROR


def error_class(code: int | None) -> ErrorClass:
    """Whose fault a failure with this code is."""
    return _row(code).error_class


def error_label(code: int | None) -> str:
    """What the code means, for people."""
    if code is not None and code not in ERROR_CODES:
        return f"unknown code {code}, treated as {DEFAULT_CODE}"
    return _row(code).label


def _row(code: int | None) -> ErrorCode:
    return ERROR_CODES.get(DEFAULT_CODE if code is None else code, ERROR_CODES[DEFAULT_CODE])
