"""A second connection that runs while the test's own transaction is open."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from django.db import connection

T = TypeVar("T")

PATIENCE = 20.0  # seconds until a race that does not come about fails the test


class Racer(Generic[T]):
    """Runs `work` in a thread of its own, on a database connection of its own."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._pid = 0
        self._connected = threading.Event()
        self._results: list[T] = []
        self._faults: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                (self._pid,) = cursor.fetchone()
            self._connected.set()
            self._results.append(self._work())
        except BaseException as fault:  # noqa: BLE001 - handed to the test's own thread
            self._faults.append(fault)
        finally:
            self._connected.set()
            connection.close()

    def wait_until_blocked(self) -> None:
        """Return when it waits for a lock (that the test holds)."""
        assert self._connected.wait(PATIENCE)
        pause = threading.Event()
        for _ in range(int(PATIENCE / 0.01)):
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted", [self._pid])
                if cursor.fetchone():
                    return
            assert self._thread.is_alive(), "it went through without waiting"
            pause.wait(0.01)
        raise AssertionError("it neither waits nor ends")

    def result(self) -> T:
        """What the work returned; raises what it raised."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "it does not end"
        if self._faults:
            raise self._faults[0]
        return self._results[0]
