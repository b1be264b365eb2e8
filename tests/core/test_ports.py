"""What a port on a command line may be."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from otp_service.core.ports import port, port_or_any


@pytest.mark.parametrize("text", ["1", "8000", "65535"])
def test_a_port_is_taken(text: str) -> None:
    assert port(text) == port_or_any(text) == int(text)


@pytest.mark.parametrize("text", ["65536", "-1", "", "http", "8000.0", "8_000", "²", "٨"])
def test_what_is_no_port_is_refused_with_the_range(text: str) -> None:
    for parse in (port, port_or_any):
        with pytest.raises(ArgumentTypeError, match="between 1 and 65535"):
            parse(text)


def test_any_free_port_can_be_asked_for_only_where_it_is_told_afterwards() -> None:
    assert port_or_any("0") == 0
    with pytest.raises(ArgumentTypeError):
        port("0")
