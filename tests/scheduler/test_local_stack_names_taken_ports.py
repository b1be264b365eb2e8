"""A port that is taken is named before anything starts."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from scheduler.local_stack import LocalStackError, Options, free_port, refuse_taken_ports


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that something listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize("option", ["--port", "--simulator-port"])
def test_the_option_that_chooses_another_is_named(taken_port: int, option: str) -> None:
    free = {"--port": free_port(), "--simulator-port": free_port()}
    with pytest.raises(LocalStackError, match=rf"Port {taken_port} cannot be used .*choose another with {option}\."):
        refuse_taken_ports({**free, option: taken_port})


def test_free_ports_are_fine() -> None:
    refuse_taken_ports({"--port": free_port()})


def test_one_port_cannot_serve_both() -> None:
    port = free_port()
    with pytest.raises(LocalStackError, match="--port and --simulator-port must differ"):
        refuse_taken_ports({"--port": port, "--simulator-port": port})


def test_without_a_simulator_its_port_does_not_matter() -> None:
    assert Options(port=8000, simulator_port=None, demo_data=True).ports == {"--port": 8000}
