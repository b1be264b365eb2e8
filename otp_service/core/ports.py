"""A TCP port on a command line: the parsers for argparse's `type=`."""

from __future__ import annotations

from argparse import ArgumentTypeError


def port(text: str) -> int:
    """A port."""
    return _between(1, text, "must be between 1 and 65535")


def port_or_any(text: str) -> int:
    """A port, or 0 for any free one."""
    return _between(0, text, "must be between 1 and 65535, or 0 for any free one")


def _between(lowest: int, text: str, otherwise: str) -> int:
    if not (text.isascii() and text.isdigit() and lowest <= int(text) <= 65535):
        raise ArgumentTypeError(otherwise)
    return int(text)
