"""The token in the address that a BlueBubbles server posts to: it cannot sign what it posts. Pure."""

from __future__ import annotations

import base64
import hmac

_NUMBER_DIGITS = 10


def webhook_token(number: int, password: str) -> str:
    """`<host's number>.<characters>`: who sees it learns nothing of the password that it is made from."""
    digest = hmac.digest(password.encode(), f"webhook of host {number}".encode(), "sha256")
    return f"{number}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def number_in(token: str) -> int | None:
    """The host that a token names, None where it names none."""
    number = token.partition(".")[0]
    is_number = number.isascii() and number.isdigit() and len(number) <= _NUMBER_DIGITS
    return int(number) if is_number else None


def is_token(offered: str, number: int, password: str) -> bool:
    """Whether it is the one of this host and password; as quick for every other one."""
    return hmac.compare_digest(offered.encode(), webhook_token(number, password).encode())
