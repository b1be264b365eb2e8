"""Waiting for other processes, with an end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psutil

from otp_service.embedded import processes

T = TypeVar("T")
_POLL_S = 0.02


def eventually(condition: Callable[[], T], *, within_s: float = 15.0) -> T:
    """The first true answer of `condition`; fails the test when there is none in time."""
    give_up_at = time.monotonic() + within_s
    while not (answer := condition()):
        assert time.monotonic() < give_up_at, f"not within {within_s} s"
        processes.pause(_POLL_S)
    return answer


def runs(pid: int) -> bool:
    """Whether the process lives; one that nobody has waited for yet does not."""
    try:
        return processes.lives(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False
