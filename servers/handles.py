"""The addresses that servers write from: numbers as E.164, e-mail addresses in lower case."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from otp_service.core import phone_numbers


def normalised(handle: str) -> str:
    """The form in which it is kept, and in which what comes in is compared. Raises ValueError with a sentence."""
    if "@" not in handle:
        try:
            return phone_numbers.parse(handle)
        except phone_numbers.PhoneNumberError as error:
            raise ValueError(f"It is neither a number nor an e-mail address. {error.detail}") from None
    try:
        validate_email(handle)
    except ValidationError:
        raise ValueError("It has an @, and is no e-mail address.") from None
    return handle.lower()
