"""What the embedded servers refuse, in sentences that say what to do."""

from __future__ import annotations


class EmbeddedServerError(Exception):
    """An embedded server cannot be started here; the message says why and what helps."""


class StartCancelledError(EmbeddedServerError):
    """The person in front of the terminal stopped the start half-way."""
